-- Optional: the table is not logged. Updates cost half. After a crash of the server, and on a
-- replica that takes over, all buckets are full.
ALTER TABLE tollgate_buckets SET UNLOGGED;
