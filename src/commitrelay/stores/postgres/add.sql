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

-- add_plain: the same for events that have nothing but the columns' defaults in the others.
INSERT INTO @event (id, aggregate_type, aggregate_id, event_type, payload)
VALUES (
    :id::text::uuid, :aggregate_type::text, :aggregate_id::text, :event_type::text, :payload::bytea
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

-- before_claim: no plan that suits an empty queue only, as drivers keep plans while it grows.
-- It holds until the transaction ends, of which the claim is the last statement.
SELECT
    set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('enable_sort', 'off', true);

-- claim_added: what this transaction has added and heads its key becomes the direct pass's.
-- There is no index on the keys of pending events, so the few that lie below are compared one by
-- one; if they are not few, there is a backlog, and the relay is at work on it. Under REPEATABLE READ
-- an earlier event could be hidden: then nothing is claimed. The planner has no choice but to look the
-- events up by their ids (see queries.sql).
UPDATE @queue AS q
SET state = 5,
    claim_token = :token::bigint,
    due_at = statement_timestamp() + :until::bigint * interval '1 millisecond'
WHERE q.lane = (SELECT lane.id FROM @lane AS lane WHERE lane.name = :lane::text)
  AND q.seq = ANY (ARRAY(
    WITH mine AS MATERIALIZED (
        SELECT added.seq, added.key, lane.id AS lane
        FROM (VALUES (:id::text)) AS event (id)
        CROSS JOIN LATERAL (SELECT seq FROM @event WHERE id = event.id::uuid OFFSET 0) AS e
        CROSS JOIN LATERAL (SELECT * FROM @queue
                            WHERE seq = e.seq AND state + 0 = 0 OFFSET 0) AS added
        JOIN @lane AS lane ON lane.id = added.lane
        WHERE lane.name = :lane::text
          AND NOT lane.paused
          AND current_setting('transaction_isolation') = 'read committed'
    ),
    below AS MATERIALIZED (
        SELECT pending.seq, pending.key FROM @queue AS pending
        WHERE pending.lane = (SELECT mine.lane FROM mine LIMIT 1)
          AND pending.state = 0
          AND pending.seq < (SELECT max(mine.seq) FROM mine)
        ORDER BY pending.lane, pending.seq
        LIMIT 201
    )
    SELECT mine.seq FROM mine
    WHERE (SELECT count(*) FROM below) <= 200
      AND NOT EXISTS (SELECT FROM below
                      WHERE below.key = mine.key AND below.seq < mine.seq
                        AND below.seq NOT IN (SELECT other.seq FROM mine AS other))
      AND (SELECT b.seq FROM @queue AS b
           WHERE b.lane = mine.lane AND b.key = mine.key AND b.seq < mine.seq
             AND b.state IN (1, 3, 4, 5)
           ORDER BY b.lane, b.key, b.seq LIMIT 1) IS NULL));
