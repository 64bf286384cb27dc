-- Consumers: who reads which partition, and which events were started with care.

-- Who reads a partition for a consumer; gone when the reader lets go of it. Whoever finds the row of
-- another reader knows that this one died; `deaths` counts those in a row.
CREATE TABLE IF NOT EXISTS @reader (
    consumer  text NOT NULL,
    partition text NOT NULL,
    reader    text NOT NULL,
    deaths    integer NOT NULL DEFAULT 0,
    since     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, partition)
);

-- Events whose handling was begun after readers had died, and how often; gone when it ends.
CREATE TABLE IF NOT EXISTS @start (
    consumer text NOT NULL,
    event_id text NOT NULL,
    starts   integer NOT NULL DEFAULT 1,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, event_id)
);
