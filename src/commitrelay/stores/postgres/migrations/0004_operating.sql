-- What operators did, failed attempts, and what was edited.

-- Lists of what was published begin at the newest settled event.
CREATE INDEX IF NOT EXISTS @@delivery_largest ON @delivery (largest);

-- What operators did, written before they did it: `events` grows with what was changed.
CREATE TABLE IF NOT EXISTS @audit (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor  text NOT NULL,
    action text NOT NULL,
    lane   text,
    detail json NOT NULL DEFAULT '{}',
    events bigint NOT NULL DEFAULT 0
);

-- Which events of which lane an operator's act has changed.
CREATE TABLE IF NOT EXISTS @audit_event (
    seq   bigint NOT NULL,
    audit bigint NOT NULL,
    lane  integer NOT NULL,
    PRIMARY KEY (seq, audit, lane)
);

-- One row per failed attempt, gone with its event.
CREATE TABLE IF NOT EXISTS @attempt (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    seq     bigint NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    lane    integer NOT NULL,
    attempt integer NOT NULL,
    relay   text NOT NULL,
    error   text NOT NULL
);

CREATE INDEX IF NOT EXISTS @@attempt_seq ON @attempt (seq);

-- What an event was before an operator edited it, gone with the event.
CREATE TABLE IF NOT EXISTS @edit (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    seq          bigint NOT NULL,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor        text NOT NULL,
    payload      bytea NOT NULL,
    content_type text NOT NULL,
    headers      json NOT NULL
);

CREATE INDEX IF NOT EXISTS @@edit_seq ON @edit (seq);

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
        WHEN d.verdict = 2 THEN 'resolved'
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
