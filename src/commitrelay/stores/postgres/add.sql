-- add_event: one row per event, in the order given; an id that is there already is left alone.
-- No RETURNING and no conflict target: both would ask the producer's role for SELECT.
-- All values but the payload travel as text, whatever codecs the caller's connection has.
INSERT INTO @event (
    id, aggregate_type, aggregate_id, event_type, payload,
    content_type, headers, idempotency_key, deliver_at
)
VALUES (
    :id::text::uuid, :aggregate_type::text, :aggregate_id::text, :event_type::text, :payload::bytea,
    :content_type::text, :headers::text::json, :idempotency_key::text, :deliver_at::text::timestamptz
)
ON CONFLICT DO NOTHING;

-- lock_keys: the writers of a key wait for each other until commit; always in the same order.
-- The table's oid keeps two outboxes of one database apart, by whatever search_path it is found.
WITH keys AS MATERIALIZED (
    SELECT hashtextextended(
        key.aggregate_type || chr(31) || key.aggregate_id, '@event'::regclass::oid::bigint
    ) AS hash
    FROM (VALUES (:aggregate_type::text, :aggregate_id::text)) AS key (aggregate_type, aggregate_id)
    ORDER BY hash
)
SELECT pg_advisory_xact_lock(hash) FROM keys;
