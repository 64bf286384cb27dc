-- add_event: one row per event, in the order given. An id or key that is there already fails the
-- statement, and then the events are added one by one: nothing else tells exactly which are new,
-- whatever flags the connection has and with no right but INSERT.
INSERT INTO @event (
    id, aggregate_type, aggregate_id, event_type, payload,
    content_type, headers, idempotency_key, deliver_at
)
VALUES (
    :id, :aggregate_type, :aggregate_id, :event_type, :payload,
    :content_type, :headers, :idempotency_key, :deliver_at
);

-- add_plain: the same for events that have nothing but the columns' defaults in the others.
INSERT INTO @event (id, aggregate_type, aggregate_id, event_type, payload)
VALUES (:id, :aggregate_type, :aggregate_id, :event_type, :payload);

-- add_without_trigger: the same on a log without a trigger, which enqueue_event has to follow.
INSERT INTO @event (
    id, aggregate_type, aggregate_id, event_type, payload,
    content_type, headers, idempotency_key, deliver_at, enqueued
)
VALUES (
    :id, :aggregate_type, :aggregate_id, :event_type, :payload,
    :content_type, :headers, :idempotency_key, :deliver_at, TRUE
);

-- enqueue_event: what the trigger does, for the events with these ids.
INSERT INTO @queue (lane, seq, `key`, bucket, state, due_at)
SELECT
    lane.id, hashed.seq, hashed.hash, hashed.hash & 63,
    CASE WHEN hashed.deliver_at > utc_timestamp(6) THEN 2 ELSE 0 END,
    CASE WHEN hashed.deliver_at > utc_timestamp(6) THEN hashed.deliver_at END
FROM (
    SELECT
        e.seq, e.aggregate_type, e.event_type, e.deliver_at,
        CAST(conv(left(sha2(concat_ws(char(31), e.aggregate_type, e.aggregate_id), 256), 16), 16, 10)
             AS UNSIGNED) AS hash
    FROM @event AS e
    WHERE e.id IN (:ids)
) AS hashed
STRAIGHT_JOIN @lane AS lane
WHERE (lane.aggregate_types IS NULL
       OR json_contains(lane.aggregate_types, json_quote(hashed.aggregate_type)))
  AND (lane.event_types IS NULL
       OR json_contains(lane.event_types, json_quote(hashed.event_type)));

-- lock_keys: the writers of a key wait for each other until commit; always in the same order.
INSERT INTO @turn (slot) VALUES (:slot)
ON DUPLICATE KEY UPDATE slot = slot;
