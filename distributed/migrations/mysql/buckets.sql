-- The buckets of tollgate-distributed. A key without a row has a full bucket.
CREATE TABLE IF NOT EXISTS tollgate_buckets (
    id VARBINARY(255) NOT NULL PRIMARY KEY,
    -- The level at last_us, in credits; negative in debt.
    credits BIGINT NOT NULL CHECK (credits BETWEEN -9007199254740991 AND 9007199254740991),
    -- The server's time of the level, in microseconds since 1970.
    last_us BIGINT NOT NULL CHECK (last_us BETWEEN 0 AND 4611686018427387904),
    -- The credits of a token.
    unit BIGINT NOT NULL CHECK (unit BETWEEN 1 AND 9007199254740991),
    -- From this time on the bucket is full, and the row may be deleted.
    full_us BIGINT NOT NULL
) ENGINE = InnoDB
