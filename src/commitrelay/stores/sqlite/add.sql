-- add_event: one row per event, in the order given; an id that is there already is left alone.
-- There is no lock_keys: SQLite has one writer at a time, so whoever inserts an event holds the
-- database's write lock until commit, and seq order is commit order for every key.
INSERT INTO @event (
    id, aggregate_type, aggregate_id, event_type, payload,
    content_type, headers, idempotency_key, deliver_at
)
VALUES (
    :id, :aggregate_type, :aggregate_id, :event_type, :payload,
    :content_type, :headers, :idempotency_key, :deliver_at
)
ON CONFLICT DO NOTHING;
