-- The outbox on MySQL and MariaDB. One plain INSERT into @event is the whole producer contract,
-- and INSERT on it the only right that a producer's account needs. All times are UTC.

-- The log: append-only; nothing but an operator's edit updates it. Keys are compared by their hash,
-- because text columns take 'a' and 'a ' for the same.
CREATE TABLE IF NOT EXISTS @event (
    seq              BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id               CHAR(36) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL DEFAULT (uuid()),
    aggregate_type   VARCHAR(255) NOT NULL CHECK (aggregate_type <> ''),
    aggregate_id     VARCHAR(255) NOT NULL CHECK (aggregate_id <> ''),
    event_type       VARCHAR(255) NOT NULL CHECK (event_type <> ''),
    payload          LONGBLOB NOT NULL,
    content_type     VARCHAR(255) NOT NULL DEFAULT 'application/json',
    headers          MEDIUMTEXT NOT NULL DEFAULT ('{}') CHECK (json_valid(headers)),
    idempotency_key  VARCHAR(255) CHECK (idempotency_key <> ''),
    created_at       DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6)),
    deliver_at       DATETIME(6),
    idempotency_bytes VARBINARY(1020) GENERATED ALWAYS AS (CAST(idempotency_key AS BINARY)) STORED,
    UNIQUE KEY @@event_id (id),
    UNIQUE KEY @@event_idempotency (idempotency_bytes),
    CHECK (char_length(id) = 36)
) ENGINE = InnoDB, CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- A named destination with its own filter (a JSON array of names, NULL: all) and pause switch.
CREATE TABLE IF NOT EXISTS @lane (
    id              INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name            VARCHAR(255) NOT NULL UNIQUE,
    paused          BOOLEAN NOT NULL DEFAULT FALSE,
    aggregate_types MEDIUMTEXT CHECK (json_valid(aggregate_types)),
    event_types     MEDIUMTEXT CHECK (json_valid(event_types)),
    created_at      DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6))
) ENGINE = InnoDB, CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- What is still to be delivered: one row per event and lane, gone once delivered. due_at is when
-- a retry or a scheduled event is due, or when the claim on a claimed one expires; NULL otherwise,
-- so that its index is short where it is searched. blocking_key stands in for a partial index.
CREATE TABLE IF NOT EXISTS @queue (
    seq          BIGINT NOT NULL,
    lane         INT NOT NULL,
    `key`        BIGINT UNSIGNED NOT NULL,
    bucket       TINYINT UNSIGNED NOT NULL,
    state        TINYINT UNSIGNED NOT NULL DEFAULT 0,
    attempts     INT NOT NULL DEFAULT 0,
    due_at       DATETIME(6),
    claim_token  BIGINT NOT NULL DEFAULT 0,
    last_error   TEXT,
    blocking_key BIGINT UNSIGNED
        GENERATED ALWAYS AS (CASE WHEN state IN (1, 3, 4, 5) THEN `key` END) STORED,
    PRIMARY KEY (seq, lane),
    KEY @@queue_hot (lane, state, seq),
    KEY @@queue_due (lane, due_at),
    KEY @@queue_blockers (lane, blocking_key, seq)
) ENGINE = InnoDB, CHARACTER SET utf8mb4, COLLATE utf8mb4_bin, STATS_PERSISTENT = 0;

-- The journal: one row per settled batch and page of 4,096 seqs, so that the delivery of an
-- event is found by its page. `seqs` is separated by commas.
CREATE TABLE IF NOT EXISTS @delivery (
    id       BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    page     BIGINT NOT NULL,
    smallest BIGINT NOT NULL,
    largest  BIGINT NOT NULL,
    at       DATETIME(6) NOT NULL,
    lane     INT NOT NULL,
    events   INT NOT NULL,
    verdict  TINYINT UNSIGNED NOT NULL,
    relay    VARCHAR(255) NOT NULL,
    seqs     MEDIUMTEXT CHARACTER SET ascii NOT NULL,
    KEY @@delivery_page (page),
    KEY @@delivery_at (lane, at)
) ENGINE = InnoDB, CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- Who owns which buckets of a lane, until when: bit n of `buckets` is bucket n. Tokens only grow.
CREATE TABLE IF NOT EXISTS @lease (
    token      BIGINT NOT NULL AUTO_INCREMENT UNIQUE,
    lane       INT NOT NULL,
    relay      VARCHAR(255) NOT NULL,
    strategy   VARCHAR(40) NOT NULL,
    buckets    BIGINT UNSIGNED NOT NULL DEFAULT 0,
    expires_at DATETIME(6) NOT NULL,
    joined_at  DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6)),
    PRIMARY KEY (lane, relay)
) ENGINE = InnoDB, CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- Relays that hold off, because their broker cannot be reached; what one said is void after
-- `expires_at`, and gone when it sends again.
CREATE TABLE IF NOT EXISTS @circuit (
    lane       INT NOT NULL,
    relay      VARCHAR(255) NOT NULL,
    opened_at  DATETIME(6) NOT NULL,
    error      TEXT NOT NULL,
    expires_at DATETIME(6) NOT NULL,
    PRIMARY KEY (lane, relay)
) ENGINE = InnoDB, CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- With serialize_keys, the writers of a key hold the row of its slot until they commit.
CREATE TABLE IF NOT EXISTS @turn (
    slot SMALLINT UNSIGNED NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

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

-- Who reads a partition for a consumer; gone when the reader lets go of it. Whoever finds the row of
-- another reader knows that this one died; `deaths` counts those in a row.
CREATE TABLE IF NOT EXISTS @reader (
    consumer    VARBINARY(1020) NOT NULL,
    `partition` VARBINARY(1020) NOT NULL,
    reader      VARCHAR(255) NOT NULL,
    deaths      INT NOT NULL DEFAULT 0,
    since       DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6)),
    PRIMARY KEY (consumer, `partition`)
) ENGINE = InnoDB, CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- Events whose handling was begun after readers had died, and how often; gone when it ends.
CREATE TABLE IF NOT EXISTS @start (
    consumer VARBINARY(1020) NOT NULL,
    event_id VARBINARY(1020) NOT NULL,
    starts   INT NOT NULL DEFAULT 1,
    at       DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6)),
    PRIMARY KEY (consumer, event_id)
) ENGINE = InnoDB, CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

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

CREATE TABLE IF NOT EXISTS @migration (
    number     INT NOT NULL PRIMARY KEY,
    name       VARCHAR(255) NOT NULL,
    applied_at DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6))
) ENGINE = InnoDB, CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- Fills the queue of every lane whose filter matches, with the rights of whoever creates it.
CREATE TRIGGER IF NOT EXISTS @enqueue AFTER INSERT ON @event FOR EACH ROW
    INSERT INTO @queue (lane, seq, `key`, bucket, state, due_at)
    SELECT
        lane.id, NEW.seq, hashed.hash, hashed.hash & 63,
        CASE WHEN NEW.deliver_at > utc_timestamp(6) THEN 2 ELSE 0 END,
        CASE WHEN NEW.deliver_at > utc_timestamp(6) THEN NEW.deliver_at END
    FROM (SELECT CAST(conv(left(sha2(concat_ws(char(31), NEW.aggregate_type, NEW.aggregate_id), 256),
                                16), 16, 10) AS UNSIGNED) AS hash) AS hashed
    STRAIGHT_JOIN @lane AS lane
    WHERE (lane.aggregate_types IS NULL
           OR json_contains(lane.aggregate_types, json_quote(NEW.aggregate_type)))
      AND (lane.event_types IS NULL
           OR json_contains(lane.event_types, json_quote(NEW.event_type)));

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

INSERT INTO @lane (name) VALUES ('default') ON DUPLICATE KEY UPDATE name = 'default';

INSERT INTO @migration (number, name) VALUES (1, '0001_initial')
ON DUPLICATE KEY UPDATE number = 1;
INSERT INTO @migration (number, name) VALUES (2, '0002_inbox')
ON DUPLICATE KEY UPDATE number = 2;
INSERT INTO @migration (number, name) VALUES (3, '0003_consumer')
ON DUPLICATE KEY UPDATE number = 3;
INSERT INTO @migration (number, name) VALUES (4, '0004_operating')
ON DUPLICATE KEY UPDATE number = 4;
INSERT INTO @migration (number, name) VALUES (5, '0005_circuit')
ON DUPLICATE KEY UPDATE number = 5;
