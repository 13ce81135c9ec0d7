-- The counts of windows of tollgate-distributed. A key without a row has used no token.
CREATE TABLE IF NOT EXISTS tollgate_counts (
    id BLOB NOT NULL PRIMARY KEY,
    -- The begin of the present window or sub-window, in microseconds since 1970.
    start_us INTEGER NOT NULL,
    -- The tokens used in the present sub-window and in each one before it that counts: seven bytes each.
    used BLOB NOT NULL,
    -- From this time on no token counts, and the row may be deleted.
    end_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
