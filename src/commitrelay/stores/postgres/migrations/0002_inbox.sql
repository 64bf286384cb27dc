-- The inbox, and completions of the outbox's own events.

-- What a consumer has handled: the mark commits together with the effect. Ids of other systems need
-- not be uuids. The token tells whose mark it is, so that nobody takes back another one's.
CREATE TABLE IF NOT EXISTS @inbox (
    consumer text NOT NULL CHECK (length(consumer) BETWEEN 1 AND 255),
    event_id text NOT NULL CHECK (length(event_id) BETWEEN 1 AND 255),
    token    bigint NOT NULL,
    done_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, event_id)
);

CREATE INDEX IF NOT EXISTS @@inbox_done ON @inbox (done_at);

-- The log's own inbox, for workflows within one database: whoever begins an event holds its row
-- until commit. completed_at is NULL while it was begun and not completed.
CREATE TABLE IF NOT EXISTS @completion (
    event_id     uuid PRIMARY KEY,
    completed_at timestamptz
);

-- The outbox as everybody knows it: one row per event and lane. The `+ 0` keeps the planner from
-- walking the journal backwards by its primary key instead of searching it by seq.
CREATE OR REPLACE VIEW @view AS
SELECT
    e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.idempotency_key,
    e.created_at,
    lane.name AS lane,
    CASE
        WHEN q.state = 0 THEN 'pending'
        WHEN q.state = 1 THEN 'retrying'
        WHEN q.state = 2 THEN 'scheduled'
        WHEN q.state = 3 THEN 'parked'
        WHEN q.state IN (4, 6) THEN 'dead'
        WHEN q.state = 5 THEN 'claimed'
        WHEN c.completed_at IS NOT NULL THEN 'completed'
        WHEN d.verdict = 0 THEN 'published'
        WHEN d.verdict = 1 THEN 'discarded'
    END AS status,
    q.attempts AS retry_count,
    q.last_error,
    CASE WHEN d.verdict = 0 THEN d.at END AS published_at,
    c.completed_at
FROM @event AS e
CROSS JOIN @lane AS lane
LEFT JOIN @queue AS q ON q.lane = lane.id AND q.seq = e.seq
LEFT JOIN @completion AS c ON c.event_id = e.id
LEFT JOIN LATERAL (
    SELECT j.verdict, j.at FROM @delivery AS j
    WHERE int8range(j.smallest, j.largest, '[]') @> e.seq
      AND j.lane = lane.id AND e.seq = ANY (j.seqs)
    ORDER BY j.id + 0 DESC
    LIMIT 1
) AS d ON q.seq IS NULL
WHERE q.seq IS NOT NULL OR d.verdict IS NOT NULL
UNION ALL
SELECT
    e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.idempotency_key,
    e.created_at, NULL, CASE WHEN c.completed_at IS NULL THEN 'unrouted' ELSE 'completed' END,
    NULL, NULL, NULL, c.completed_at
FROM @event AS e
LEFT JOIN @completion AS c ON c.event_id = e.id
WHERE NOT EXISTS (
        SELECT FROM @queue AS q WHERE q.seq = e.seq)
  AND NOT EXISTS (
        SELECT FROM @delivery AS j
        WHERE int8range(j.smallest, j.largest, '[]') @> e.seq AND e.seq = ANY (j.seqs));
