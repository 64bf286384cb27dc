-- What operators did, failed attempts, and what was edited.

-- What operators did, written before they did it: `events` grows with what was changed. `detail` is
-- a JSON object; times here and below are in milliseconds since 1970.
CREATE TABLE IF NOT EXISTS @audit (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at     INTEGER NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    lane   TEXT,
    detail TEXT NOT NULL DEFAULT '{}',
    events INTEGER NOT NULL DEFAULT 0
);

-- Which events of which lane an operator's act has changed.
CREATE TABLE IF NOT EXISTS @audit_event (
    seq   INTEGER NOT NULL,
    audit INTEGER NOT NULL,
    lane  INTEGER NOT NULL,
    PRIMARY KEY (seq, audit, lane)
) WITHOUT ROWID;

-- One row per failed attempt, gone with its event.
CREATE TABLE IF NOT EXISTS @attempt (
    id      INTEGER PRIMARY KEY,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    lane    INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    relay   TEXT NOT NULL,
    error   TEXT NOT NULL
);

CREATE INDEX IF NOT EXISTS @attempt_seq ON @attempt (seq);

-- What an event was before an operator edited it, gone with the event.
CREATE TABLE IF NOT EXISTS @edit (
    id           INTEGER PRIMARY KEY,
    seq          INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    actor        TEXT NOT NULL,
    payload      BLOB NOT NULL,
    content_type TEXT NOT NULL,
    headers      TEXT NOT NULL
);

CREATE INDEX IF NOT EXISTS @edit_seq ON @edit (seq);

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
        WHEN d.verdict = 1 THEN 'discarded'
        ELSE 'resolved'
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
