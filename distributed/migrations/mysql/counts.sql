-- The counts of windows of tollgate-distributed. A key without a row has used no token.
CREATE TABLE IF NOT EXISTS tollgate_counts (
    id VARBINARY(255) NOT NULL PRIMARY KEY,
    -- The begin of the present window or sub-window, in microseconds since 1970.
    start_us BIGINT NOT NULL CHECK (start_us BETWEEN 0 AND 9007199254740991),
    -- The tokens used in the present sub-window and in each one before it that counts: seven bytes each.
    used VARBINARY(455) NOT NULL CHECK (LENGTH(used) >= 7 AND LENGTH(used) MOD 7 = 0),
    -- From this time on no token counts, and the row may be deleted.
    end_us BIGINT NOT NULL CHECK (end_us BETWEEN 0 AND 9007199254740991)
) ENGINE = InnoDB
