-- Decides one call by Bucket::step, and appends its answer to @tollgate:
-- granted,credits,last_us,unit,now_us; where the row is that after the call.
--
-- A first pass reads without a lock, and answers a call that changes nothing. A second pass decides
-- the others again, under the lock of the row. The session must be in a transaction at READ
-- COMMITTED, its time zone must be UTC, and its client must not count found rows.
--
-- A later body gets another name: clients of this version call this one during an upgrade.
CREATE PROCEDURE IF NOT EXISTS tollgate_acquire_1(
    IN p_id VARBINARY(255), IN p_capacity BIGINT, IN p_floor BIGINT, IN p_debt BIGINT, IN p_tick BIGINT,
    IN p_per_tick BIGINT, IN p_unit BIGINT, IN p_fill BIGINT, IN p_fill_us BIGINT, IN p_spent BIGINT,
    IN p_back BIGINT, IN p_least BIGINT, IN p_most BIGINT
)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE was_credits, was_last, was_unit, level, since, now_us BIGINT;
    DECLARE elapsed, part, there, share, granted BIGINT;
    DECLARE changed, locked BOOLEAN DEFAULT FALSE;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    decide: LOOP
        SET was_credits = NULL, was_last = NULL, was_unit = NULL;
        IF locked THEN
            SELECT credits, last_us, unit INTO was_credits, was_last, was_unit
            FROM tollgate_buckets WHERE id = p_id FOR UPDATE;
        ELSE
            SELECT credits, last_us, unit INTO was_credits, was_last, was_unit
            FROM tollgate_buckets WHERE id = p_id;
        END IF;
        SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));

        -- The level under the call's quota. Whole tokens stay whole, and a part is rounded down.
        IF was_unit IS NULL THEN
            SET level = p_capacity, elapsed = 0;
        ELSE
            SET level = GREATEST(was_credits, -p_floor), elapsed = now_us - was_last;
            IF was_unit <> p_unit THEN
                SET part = MOD(MOD(was_credits, was_unit) + was_unit, was_unit);
                SET level = LEAST(GREATEST(
                    CAST((was_credits - part) DIV was_unit AS DECIMAL(65, 0)) * p_unit
                        + CAST(part AS DECIMAL(65, 0)) * p_unit DIV was_unit,
                    -p_floor), p_capacity);
            END IF;
        END IF;

        -- The refill. A step back of the clock by a second or less is waited for.
        IF elapsed < -1000000 THEN
            SET since = now_us;
        ELSEIF elapsed < 0 THEN
            SET since = was_last;
        ELSEIF elapsed DIV p_tick >= p_fill THEN
            SET level = p_capacity, since = now_us;
        ELSE
            SET level = level + elapsed DIV p_tick * p_per_tick;
            -- A full bucket does not keep the part of a tick.
            SET since = IF(level >= p_capacity, now_us, now_us - MOD(elapsed, p_tick));
        END IF;
        SET level = LEAST(level, p_capacity);

        IF p_spent > 0 THEN
            SET level = GREATEST(level - p_spent, -p_floor);
        END IF;
        IF p_most < 0 THEN
            SET granted = p_most, level = LEAST(level + p_back, p_capacity);
        ELSE
            SET there = GREATEST(level + p_debt, 0) DIV p_unit;
            SET share = IF(p_debt > 0, GREATEST(p_least, there DIV 2), there);
            SET granted = IF(there >= p_least, LEAST(p_most, share), 0);
            SET level = level - granted * p_unit;
        END IF;

        SET changed = granted <> 0 OR p_spent > 0 OR elapsed < -1000000;
        IF NOT changed THEN
            LEAVE decide;
        ELSEIF was_unit IS NULL THEN
            INSERT INTO tollgate_buckets (id, credits, last_us, unit, full_us)
            VALUES (p_id, level, since, p_unit, since + p_fill_us)
            ON DUPLICATE KEY UPDATE credits = tollgate_buckets.credits;
            -- A row that another session has inserted is locked now, and is as it was.
            IF ROW_COUNT() = 1 THEN
                LEAVE decide;
            END IF;
        ELSEIF locked THEN
            UPDATE tollgate_buckets
            SET credits = level, last_us = since, unit = p_unit, full_us = since + p_fill_us
            WHERE id = p_id;
            LEAVE decide;
        END IF;
        SET locked = TRUE;
    END LOOP;
    IF changed THEN
        SET was_credits = level, was_last = since, was_unit = p_unit;
    END IF;
    SET @tollgate = CONCAT(@tollgate, granted, ',', IFNULL(was_credits, ''), ',', IFNULL(was_last, ''), ',',
        IFNULL(was_unit, ''), ',', now_us, ';');
END
