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

-- add_plain: the same for events that have nothing but the columns' defaults in the others.
INSERT INTO @event (id, aggregate_type, aggregate_id, event_type, payload)
VALUES (:id, :aggregate_type, :aggregate_id, :event_type, :payload)
ON CONFLICT DO NOTHING;

-- claim_added: what this transaction has added and heads its key becomes the direct pass's.
-- There is no index on the keys of pending events, so the few that lie below are compared one by
-- one; if they are not few, there is a backlog, and the relay is at work on it.
UPDATE @queue
SET state = 5, claim_token = :token, due_at = :until
WHERE lane = (SELECT id FROM @lane WHERE name = :lane)
  AND seq IN (
    WITH added (id) AS (VALUES (:id)),
    mine AS MATERIALIZED (
        SELECT q.seq, q.key, q.lane
        FROM added
        CROSS JOIN @event AS e ON e.id = added.id
        CROSS JOIN @lane AS lane ON lane.name = :lane AND NOT lane.paused
        CROSS JOIN @queue AS q ON q.lane = lane.id AND q.seq = e.seq
        WHERE q.state = 0
    ),
    below AS MATERIALIZED (
        SELECT pending.seq, pending.key FROM @queue AS pending INDEXED BY @queue_hot
        WHERE pending.lane = (SELECT mine.lane FROM mine)
          AND pending.state = 0
          AND pending.seq < (SELECT max(mine.seq) FROM mine)
        ORDER BY pending.seq
        LIMIT 201
    )
    SELECT mine.seq FROM mine
    WHERE (SELECT count(*) FROM below) <= 200
      AND NOT EXISTS (SELECT 1 FROM below
                      WHERE below.key = mine.key AND below.seq < mine.seq
                        AND below.seq NOT IN (SELECT other.seq FROM mine AS other))
      AND NOT EXISTS (SELECT 1 FROM @queue AS b INDEXED BY @queue_blockers
                      WHERE b.lane = mine.lane AND b.key = mine.key AND b.seq < mine.seq
                        AND b.state IN (1, 3, 4, 5)));
