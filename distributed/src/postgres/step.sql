-- The step from one row, as nested queries: each computes the next numbers. OFFSET 0 keeps the
-- planner from merging them, so an expression is computed once.
(
    SELECT taken.*,
        CASE WHEN most < 0 THEN least(paid + back, capacity) ELSE paid - granted * token END AS level,
        granted <> 0 OR spent > 0 OR elapsed < -1000000 AS changed
    FROM (
        SELECT shares.*,
            CASE WHEN most < 0 THEN most WHEN there >= fewest THEN least(most, share) ELSE 0 END AS granted
        FROM (
            SELECT tokens.*,
                CASE WHEN debt > 0 THEN greatest(fewest, there / 2) ELSE there END AS share
            FROM (
                SELECT paid.*, greatest(paid + debt, 0) / token AS there
                FROM (
                    SELECT refilled.*,
                        CASE WHEN spent > 0 THEN greatest(refilled - spent, -floor) ELSE refilled END AS paid
                    FROM (
                        SELECT passed.*,
                            least(capacity, CASE
                                WHEN elapsed < 0 THEN credits_now
                                WHEN elapsed / tick >= fill THEN capacity
                                ELSE credits_now + elapsed / tick * per_tick
                            END) AS refilled,
                            CASE
                                -- A step back of the clock by a second or less is waited for.
                                WHEN elapsed BETWEEN -1000000 AND -1 THEN last_us
                                WHEN elapsed < 0 OR elapsed / tick >= fill THEN now_us
                                -- A full bucket does not keep the part of a tick.
                                WHEN credits_now + elapsed / tick * per_tick >= capacity THEN now_us
                                ELSE now_us - elapsed % tick
                            END AS since_us
                        FROM (
                            SELECT stored.*,
                                coalesce(now_us - last_us, 0) AS elapsed,
                                CASE
                                    WHEN unit IS NULL THEN capacity
                                    WHEN unit = token THEN greatest(credits, -floor)
                                    -- Whole tokens stay whole, and a part is rounded down.
                                    ELSE least(greatest(
                                        (credits - (credits % unit + unit) % unit) / unit * token::numeric
                                            + div((credits % unit + unit) % unit * token::numeric, unit),
                                        -floor), capacity)::bigint
                                END AS credits_now
                            FROM ({row} OFFSET 0) AS stored
                            OFFSET 0
                        ) AS passed
                        OFFSET 0
                    ) AS refilled
                    OFFSET 0
                ) AS paid
                OFFSET 0
            ) AS tokens
            OFFSET 0
        ) AS shares
        OFFSET 0
    ) AS taken
    OFFSET 0
)
