-- Buckets that are refilled to their capacity at intervals: see TokenRequester. A table and a
-- function that are there stay as they are. Another function of the name is an error.
DO $do$
DECLARE
    found text := (SELECT prosrc FROM pg_proc WHERE oid = to_regprocedure('request_token(text)'));
BEGIN
    IF to_regclass('token_buckets') IS NULL THEN
        CREATE TABLE token_buckets (
            id text NOT NULL PRIMARY KEY,
            available integer NOT NULL CHECK (available >= 0),
            capacity integer NOT NULL CHECK (capacity > 0),
            refill_seconds integer NOT NULL CHECK (refill_seconds BETWEEN 1 AND 1000000000),
            last_refill_at timestamptz NOT NULL
        ) WITH (fillfactor = 50);
    END IF;
    IF found IS NULL THEN
        -- Takes a token, and returns whether there was one. The clock is read once for both columns,
        -- after the row is locked. A call that finds no token neither locks nor writes.
        CREATE FUNCTION request_token(bucket_id text) RETURNS boolean LANGUAGE sql VOLATILE AS $$
            WITH taken AS (
                UPDATE token_buckets AS b SET (available, last_refill_at) = (
                    SELECT CASE WHEN whole >= 1 THEN b.capacity ELSE b.available END - 1,
                        b.last_refill_at + greatest(whole, 0)::float8 * b.refill_seconds * interval '1 second'
                    FROM (
                        SELECT div(extract(epoch FROM clock_timestamp() - b.last_refill_at)::numeric * 1000000,
                            b.refill_seconds::numeric * 1000000) AS whole
                        OFFSET 0
                    ) AS passed
                )
                WHERE b.id = bucket_id AND (
                    b.available >= 1 OR clock_timestamp() >= b.last_refill_at + b.refill_seconds * interval '1 second'
                )
                RETURNING true
            )
            SELECT EXISTS (SELECT FROM taken)
        $$;
    ELSIF position('token_buckets' IN found) = 0 THEN
        RAISE 'the function request_token(text) is there, and is not the one of tollgate';
    END IF;
END $do$;
