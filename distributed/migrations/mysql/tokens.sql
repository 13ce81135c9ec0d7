-- Buckets that are refilled to their capacity at intervals: see TokenRequester.
CREATE TABLE IF NOT EXISTS token_buckets (
    id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL PRIMARY KEY,
    available INT NOT NULL CHECK (available >= 0),
    capacity INT NOT NULL CHECK (capacity > 0),
    refill_seconds INT NOT NULL CHECK (refill_seconds BETWEEN 1 AND 1000000000),
    -- In UTC.
    last_refill_at DATETIME(6) NOT NULL
) ENGINE = InnoDB
