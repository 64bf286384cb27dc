-- What relays say of their brokers.

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
