-- Optional: the tables are not logged. Updates cost half, and all buckets are full and all counts are
-- empty after a crash of the server or a failover.
DO $do$ BEGIN
    IF (SELECT relpersistence <> 'u' FROM pg_class WHERE oid = to_regclass('tollgate_buckets')) THEN
        ALTER TABLE tollgate_buckets SET UNLOGGED;
    END IF;
    IF (SELECT relpersistence <> 'u' FROM pg_class WHERE oid = to_regclass('tollgate_counts')) THEN
        ALTER TABLE tollgate_counts SET UNLOGGED;
    END IF;
END $do$;
