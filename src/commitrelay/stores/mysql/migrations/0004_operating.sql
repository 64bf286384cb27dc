-- What operators did, failed attempts, and what was edited.

-- What operators did, written before they did it: `events` grows with what was changed.
CREATE TABLE IF NOT EXISTS @audit (
    id     BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at     DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6)),
    actor  VARCHAR(255) NOT NULL,
    action VARCHAR(40) NOT NULL,
    lane   VARCHAR(255),
    detail MEDIUMTEXT NOT NULL DEFAULT ('{}') CHECK (json_valid(detail)),
    events BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB, CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- Which events of which lane an operator's act has changed.
CREATE TABLE IF NOT EXISTS @audit_event (
    seq   BIGINT NOT NULL,
    audit BIGINT NOT NULL,
    lane  INT NOT NULL,
    PRIMARY KEY (seq, audit, lane)
) ENGINE = InnoDB, CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- One row per failed attempt, gone with its event.
CREATE TABLE IF NOT EXISTS @attempt (
    id      BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    seq     BIGINT NOT NULL,
    at      DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6)),
    lane    INT NOT NULL,
    attempt INT NOT NULL,
    relay   VARCHAR(255) NOT NULL,
    error   TEXT NOT NULL,
    KEY @@attempt_seq (seq)
) ENGINE = InnoDB, CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- What an event was before an operator edited it, gone with the event.
CREATE TABLE IF NOT EXISTS @edit (
    id           BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    seq          BIGINT NOT NULL,
    at           DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6)),
    actor        VARCHAR(255) NOT NULL,
    payload      LONGBLOB NOT NULL,
    content_type VARCHAR(255) NOT NULL,
    headers      MEDIUMTEXT NOT NULL,
    KEY @@edit_seq (seq)
) ENGINE = InnoDB, CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- The outbox as everybody knows it: one row per event and lane.
CREATE OR REPLACE VIEW @view AS
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
    CASE d.verdict WHEN 0 THEN d.at END,
    c.completed_at
FROM @event AS e
LEFT JOIN @completion AS c ON c.event_id = e.id
CROSS JOIN @lane AS lane
JOIN @delivery AS d ON d.id = (
    SELECT max(j.id) FROM @delivery AS j
    WHERE j.page = e.seq >> 12 AND j.lane = lane.id AND find_in_set(e.seq, j.seqs))
WHERE NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.seq = e.seq AND q.lane = lane.id)
UNION ALL
SELECT
    e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.idempotency_key,
    e.created_at, NULL, CASE WHEN c.completed_at IS NULL THEN 'unrouted' ELSE 'completed' END,
    NULL, NULL, NULL, c.completed_at
FROM @event AS e
LEFT JOIN @completion AS c ON c.event_id = e.id
WHERE NOT EXISTS (SELECT 1 FROM @queue AS q WHERE q.seq = e.seq)
  AND NOT EXISTS (
        SELECT 1 FROM @delivery AS j
        WHERE j.page = e.seq >> 12 AND find_in_set(e.seq, j.seqs));
