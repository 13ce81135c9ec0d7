-- Buckets that are refilled to their capacity at intervals: see TokenRequester.
CREATE TABLE IF NOT EXISTS token_buckets (
    id TEXT NOT NULL PRIMARY KEY,
    available INTEGER NOT NULL CHECK (available >= 0),
    capacity INTEGER NOT NULL CHECK (capacity > 0),
    refill_seconds INTEGER NOT NULL CHECK (refill_seconds BETWEEN 1 AND 1000000000),
    -- In microseconds since 1970.
    last_refill_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
