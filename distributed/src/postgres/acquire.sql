-- Decides a batch of calls, each by the law of Bucket::step.
--
-- A first part reads without a lock. It answers the calls that change nothing, with the rows that
-- it found. The other calls write in the order of their keys: no two batches wait for each other.
-- If another session changed a row in between, its call is decided again, under the lock of the
-- row. If that decision changes nothing, the bucket is written as it was: RETURNING needs the row.
--
WITH ops AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
        $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[]
    ) AS o(id, capacity, floor, debt, tick, per_tick, token, fill, fill_us, spent, back, fewest, most)
),
seen AS MATERIALIZED (
    SELECT * FROM {step from seen} AS step
),
written AS (
    INSERT INTO tollgate_buckets AS b (id, credits, last_us, unit, full_us, granted, now_us)
    SELECT id, level, since_us, token, since_us + fill_us, granted, now_us
    FROM seen WHERE changed ORDER BY id
    ON CONFLICT (id) DO UPDATE SET (credits, last_us, unit, full_us, granted, now_us) = (
        SELECT
            CASE WHEN changed THEN level ELSE credits END,
            CASE WHEN changed THEN since_us ELSE last_us END,
            CASE WHEN changed THEN token ELSE unit END,
            CASE WHEN changed THEN since_us + fill_us ELSE b.full_us END,
            granted, now_us
        FROM {step from locked} AS step
    )
    RETURNING b.id, b.granted, b.credits, b.last_us, b.unit, b.now_us
)
SELECT id, granted, credits, last_us, unit, now_us FROM written
UNION ALL
SELECT id, 0, credits, last_us, unit, now_us FROM seen WHERE NOT changed
