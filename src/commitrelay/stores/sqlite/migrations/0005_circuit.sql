-- What relays say of their brokers.

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
