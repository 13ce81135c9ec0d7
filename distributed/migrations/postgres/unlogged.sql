-- Optional: the table is not logged. Updates cost half, and all buckets are full after a crash of
-- the server or a failover.
ALTER TABLE tollgate_buckets SET UNLOGGED;
