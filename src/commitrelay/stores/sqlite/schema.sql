-- The outbox on SQLite. One plain INSERT into @event is the whole producer contract.

-- The log: append-only; nothing but an operator's edit updates it.
CREATE TABLE IF NOT EXISTS @event (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    id              TEXT NOT NULL UNIQUE DEFAULT (lower(
                        hex(randomblob(4)) || '-' || hex(randomblob(2))
                        || '-4' || substr(hex(randomblob(2)), 2)
                        || '-' || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2)
                        || '-' || hex(randomblob(6)))),
    aggregate_type  TEXT NOT NULL CHECK (length(aggregate_type) BETWEEN 1 AND 255),
    aggregate_id    TEXT NOT NULL CHECK (length(aggregate_id) BETWEEN 1 AND 255),
    event_type      TEXT NOT NULL CHECK (length(event_type) BETWEEN 1 AND 255),
    payload         BLOB NOT NULL,
    content_type    TEXT NOT NULL DEFAULT 'application/json',
    headers         TEXT NOT NULL DEFAULT '{}',
    idempotency_key TEXT CHECK (length(idempotency_key) BETWEEN 1 AND 255),
    created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
                        CHECK (julianday(created_at) IS NOT NULL),
    deliver_at      TEXT CHECK (deliver_at IS NULL OR julianday(deliver_at) IS NOT NULL)
);

CREATE UNIQUE INDEX IF NOT EXISTS @event_idempotency
    ON @event (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- A named destination with its own filter (a JSON array of names, NULL: all) and pause switch.
CREATE TABLE IF NOT EXISTS @lane (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    name            TEXT NOT NULL UNIQUE,
    paused          INTEGER NOT NULL DEFAULT 0,
    aggregate_types TEXT,
    event_types     TEXT,
    created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- What is still to be delivered: one row per event and lane, gone once delivered.
-- due_at is in milliseconds since 1970, rounded up, so that nothing is ever early.
CREATE TABLE IF NOT EXISTS @queue (
    lane        INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    key         TEXT NOT NULL,
    bucket      INTEGER NOT NULL,
    state       INTEGER NOT NULL DEFAULT 0,
    attempts    INTEGER NOT NULL DEFAULT 0,
    due_at      INTEGER,
    claim_token INTEGER NOT NULL DEFAULT 0,
    last_error  TEXT,
    PRIMARY KEY (lane, seq)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS @queue_hot ON @queue (lane, seq) WHERE state = 0;
CREATE INDEX IF NOT EXISTS @queue_due ON @queue (lane, due_at) WHERE state IN (1, 2);
CREATE INDEX IF NOT EXISTS @queue_blockers ON @queue (lane, key, seq) WHERE state IN (1, 3, 4, 5);
CREATE INDEX IF NOT EXISTS @queue_dead ON @queue (lane, seq) WHERE state IN (4, 6);

-- The journal: one row per settled batch and page of 4,096 seqs, so that the delivery of an
-- event is found by its page. `seqs` is a JSON array; `at` is in milliseconds since 1970.
CREATE TABLE IF NOT EXISTS @delivery (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    lane     INTEGER NOT NULL,
    relay    TEXT NOT NULL,
    verdict  INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    smallest INTEGER NOT NULL,
    largest  INTEGER NOT NULL,
    events   INTEGER NOT NULL,
    seqs     TEXT NOT NULL
);

CREATE INDEX IF NOT EXISTS @delivery_page ON @delivery (smallest >> 12);
CREATE INDEX IF NOT EXISTS @delivery_at ON @delivery (lane, at);

-- Who owns which buckets of a lane, until when. AUTOINCREMENT: a token is never given twice.
CREATE TABLE IF NOT EXISTS @lease (
    token      INTEGER PRIMARY KEY AUTOINCREMENT,
    lane       INTEGER NOT NULL,
    relay      TEXT NOT NULL,
    strategy   TEXT NOT NULL,
    buckets    TEXT NOT NULL DEFAULT '[]',
    expires_at INTEGER NOT NULL,
    joined_at  INTEGER NOT NULL,
    UNIQUE (lane, relay)
);

-- Relays that hold off, because their broker cannot be reached; what one said is void after
-- `expires_at`, and gone when it sends again. Times
-- are in milliseconds since 1970.
CREATE TABLE IF NOT EXISTS @circuit (
    lane       INTEGER NOT NULL,
    relay      TEXT NOT NULL,
    opened_at  INTEGER NOT NULL,
    error      TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (lane, relay)
) WITHOUT ROWID;

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

-- Who reads a partition for a consumer; gone when the reader lets go of it. Whoever finds the row of
-- another reader knows that this one died; `deaths` counts those in a row.
CREATE TABLE IF NOT EXISTS @reader (
    consumer  TEXT NOT NULL,
    partition TEXT NOT NULL,
    reader    TEXT NOT NULL,
    deaths    INTEGER NOT NULL DEFAULT 0,
    since     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (consumer, partition)
) WITHOUT ROWID;

-- Events whose handling was begun after readers had died, and how often; gone when it ends.
CREATE TABLE IF NOT EXISTS @start (
    consumer TEXT NOT NULL,
    event_id TEXT NOT NULL,
    starts   INTEGER NOT NULL DEFAULT 1,
    at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (consumer, event_id)
) WITHOUT ROWID;

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

CREATE TABLE IF NOT EXISTS @migration (
    number     INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- An event with a deliver_at starts as scheduled (2), also when that time has passed: it is then
-- due at once. Milliseconds are rounded up by one because SQLite may cut finer digits off.
CREATE TRIGGER IF NOT EXISTS @enqueue AFTER INSERT ON @event
BEGIN
    INSERT INTO @queue (lane, seq, key, bucket, state, due_at)
    SELECT
        lane.id,
        NEW.seq,
        NEW.aggregate_type || char(31) || NEW.aggregate_id,
        coalesce(
            unicode(substr('000' || NEW.aggregate_id, -1))
            + 11 * unicode(substr('000' || NEW.aggregate_id, -2, 1))
            + 37 * unicode(substr('000' || NEW.aggregate_id, -3, 1))
            + 59 * unicode(substr('000' || NEW.aggregate_id, -4, 1))
            + length(NEW.aggregate_type), 0) & 63,
        CASE WHEN NEW.deliver_at IS NULL THEN 0 ELSE 2 END,
        CAST(round((julianday(NEW.deliver_at) - 2440587.5) * 86400000.0) AS INTEGER) + 1
    FROM @lane AS lane
    WHERE (lane.aggregate_types IS NULL
           OR NEW.aggregate_type IN (SELECT value FROM json_each(lane.aggregate_types)))
      AND (lane.event_types IS NULL
           OR NEW.event_type IN (SELECT value FROM json_each(lane.event_types)));
END;

-- The outbox as everybody knows it: one row per event and lane.
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

INSERT INTO @lane (name) VALUES ('default') ON CONFLICT (name) DO NOTHING;

INSERT INTO @migration (number, name) VALUES (1, '0001_initial') ON CONFLICT (number) DO NOTHING;
INSERT INTO @migration (number, name) VALUES (2, '0002_inbox') ON CONFLICT (number) DO NOTHING;
INSERT INTO @migration (number, name) VALUES (3, '0003_consumer') ON CONFLICT (number) DO NOTHING;
INSERT INTO @migration (number, name) VALUES (4, '0004_operating') ON CONFLICT (number) DO NOTHING;
INSERT INTO @migration (number, name) VALUES (5, '0005_circuit') ON CONFLICT (number) DO NOTHING;
