-- The buckets of tollgate-distributed. A key without a row has a full bucket.
CREATE TABLE IF NOT EXISTS tollgate_buckets (
    id BLOB NOT NULL PRIMARY KEY,
    -- The level at last_us, in credits; negative in debt.
    credits INTEGER NOT NULL,
    -- The time of the level, in microseconds since 1970.
    last_us INTEGER NOT NULL,
    -- The credits of a token.
    unit INTEGER NOT NULL,
    -- From this time on the bucket is full, and the row may be deleted.
    full_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
