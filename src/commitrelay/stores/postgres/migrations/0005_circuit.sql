-- What relays say of their brokers.

-- Relays that hold off, because their broker cannot be reached; what one said is void after
-- `expires_at`, and gone when it sends again.
CREATE TABLE IF NOT EXISTS @circuit (
    lane       integer NOT NULL,
    relay      text NOT NULL,
    opened_at  timestamptz NOT NULL,
    error      text NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (lane, relay)
);
