-- Buckets that are refilled to their capacity at intervals: see TokenRequester.
CREATE TABLE IF NOT EXISTS token_buckets (
    id text NOT NULL PRIMARY KEY,
    available integer NOT NULL CHECK (available >= 0),
    capacity integer NOT NULL CHECK (capacity > 0),
    refill_seconds integer NOT NULL CHECK (refill_seconds BETWEEN 1 AND 1000000000),
    last_refill_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Takes a token, and returns whether there was one. The clock is read once for both columns, after
-- the row is locked. A call that finds no token neither locks nor writes.
CREATE OR REPLACE FUNCTION request_token(bucket_id text) RETURNS boolean LANGUAGE sql VOLATILE AS $$
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
