-- Consumers: who reads which partition, and which events were started with care.

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
