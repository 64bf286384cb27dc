-- The inbox, and completions of the outbox's own events.

-- What a consumer has handled: the mark commits together with the effect. Ids of other systems need
-- not be uuids. The token tells whose mark it is, so that nobody takes back another one's. done_at
-- is in milliseconds since 1970.
CREATE TABLE IF NOT EXISTS @inbox (
    consumer TEXT NOT NULL CHECK (length(consumer) BETWEEN 1 AND 255),
    event_id TEXT NOT NULL CHECK (length(event_id) BETWEEN 1 AND 255),
    token    INTEGER NOT NULL,
    done_at  INTEGER NOT NULL
                 DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)),
    PRIMARY KEY (consumer, event_id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS @inbox_done ON @inbox (done_at);

-- The log's own inbox, for workflows within one database. completed_at is NULL while an event was
-- begun and not completed.
CREATE TABLE IF NOT EXISTS @completion (
    event_id     TEXT PRIMARY KEY,
    completed_at TEXT
) WITHOUT ROWID;

-- The outbox as everybody knows it: one row per event and lane.
DROP VIEW IF EXISTS @view;

CREATE VIEW IF NOT EXISTS @view AS
SELECT
    e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.idempotency_key,
    e.created_at,
    lane.name AS lane,
    CASE q.state
        WHEN 0 THEN 'pending' WHEN 1 THEN 'retrying' WHEN 2 THEN 'scheduled'
        WHEN 3 THEN 'parked' WHEN 4 THEN 'dead' WHEN 5 THEN 'claimed' WHEN 6 THEN 'dead'
    END AS status,
    q.attempts AS retry_count,
    q.last_error,
    NULL AS published_at,
    c.completed_at
FROM @queue AS q
JOIN @event AS e ON e.seq = q.seq
LEFT JOIN @completion AS c ON c.event_id = e.id
JOIN @lane AS lane ON lane.id = q.lane
UNION ALL
SELECT
    e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.idempotency_key,
    e.created_at,
    lane.name,
    CASE
        WHEN c.completed_at IS NOT NULL THEN 'completed'
        WHEN d.verdict = 0 THEN 'published'
        ELSE 'discarded'
    END,
    NULL,
    NULL,
    CASE d.verdict WHEN 0
        THEN strftime('%Y-%m-%dT%H:%M:%fZ', d.at / 1000.0, 'unixepoch') END,
    c.completed_at
FROM @event AS e
LEFT JOIN @completion AS c ON c.event_id = e.id
CROSS JOIN @lane AS lane
JOIN @delivery AS d ON d.id = (
    SELECT max(j.id) FROM @delivery AS j
    WHERE j.smallest >> 12 = e.seq >> 12 AND j.lane = lane.id
      AND e.seq IN (SELECT value FROM json_each(j.seqs)))
WHERE NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.lane = lane.id AND q.seq = e.seq)
UNION ALL
SELECT
    e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.idempotency_key,
    e.created_at, NULL, CASE WHEN c.completed_at IS NULL THEN 'unrouted' ELSE 'completed' END,
    NULL, NULL, NULL, c.completed_at
FROM @event AS e
LEFT JOIN @completion AS c ON c.event_id = e.id
WHERE NOT EXISTS (
        SELECT 1 FROM @lane AS lane JOIN @queue AS q ON q.lane = lane.id AND q.seq = e.seq)
  AND NOT EXISTS (
        SELECT 1 FROM @delivery AS j
        WHERE j.smallest >> 12 = e.seq >> 12
          AND e.seq IN (SELECT value FROM json_each(j.seqs)));
