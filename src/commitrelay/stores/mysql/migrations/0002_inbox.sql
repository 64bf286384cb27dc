-- The inbox, and completions of the outbox's own events.

-- What a consumer has handled: the mark commits together with the effect. Ids of other systems need
-- not be uuids; they are compared as bytes of UTF-8. The token tells whose mark it is, so that
-- nobody takes back another one's.
CREATE TABLE IF NOT EXISTS @inbox (
    consumer VARBINARY(1020) NOT NULL CHECK (consumer <> ''),
    event_id VARBINARY(1020) NOT NULL CHECK (event_id <> ''),
    token    BIGINT NOT NULL,
    done_at  DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6)),
    PRIMARY KEY (consumer, event_id),
    KEY @@inbox_done (done_at)
) ENGINE = InnoDB, CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- The log's own inbox, for workflows within one database: whoever begins an event holds its row
-- until commit. completed_at is NULL while it was begun and not completed.
CREATE TABLE IF NOT EXISTS @completion (
    event_id     CHAR(36) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL PRIMARY KEY,
    completed_at DATETIME(6)
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
        ELSE 'discarded'
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
