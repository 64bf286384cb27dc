-- Consumers: who reads which partition, and which events were started with care.

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
