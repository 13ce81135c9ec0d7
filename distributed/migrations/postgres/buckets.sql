-- The buckets of tollgate-distributed. A key without a row has a full bucket. Half of each page is
-- left free, and only the key has an index. So an update stays on its page and touches no index. An
-- index on another column would end that.
--
-- A role without the right to create leaves a table that is there as it is.
DO $do$ BEGIN
    IF to_regclass('tollgate_buckets') IS NULL THEN
        CREATE TABLE tollgate_buckets (
            id bytea NOT NULL PRIMARY KEY,
            -- The level at last_us, in credits; negative in debt.
            credits bigint NOT NULL CHECK (credits BETWEEN -9007199254740991 AND 9007199254740991),
            -- The server's time of the level, in microseconds since 1970.
            last_us bigint NOT NULL CHECK (last_us BETWEEN 0 AND 4611686018427387904),
            -- The credits of a token.
            unit bigint NOT NULL CHECK (unit BETWEEN 1 AND 9007199254740991),
            -- From this time on the bucket is full, and the row may be deleted.
            full_us bigint NOT NULL
        ) WITH (
            fillfactor = 50,
            autovacuum_vacuum_scale_factor = 0,
            autovacuum_vacuum_threshold = 1000,
            autovacuum_vacuum_cost_delay = 0
        );
    END IF;
END $do$;
