-- Decides one call by Count::step, and appends its answer to @tollgate:
-- granted,changed,start_us,used,end_us,now_us; where the row is that after the call.
--
-- It has two passes, as tollgate_acquire_1 has, and needs the same session.
--
-- A later body gets another name: clients of this version call this one during an upgrade.
CREATE PROCEDURE IF NOT EXISTS tollgate_count_1(
    IN p_id VARBINARY(255), IN p_tokens BIGINT, IN p_counts BIGINT, IN p_kind BIGINT, IN p_first BIGINT,
    IN p_second BIGINT, IN p_third BIGINT, IN p_leased BIGINT, IN p_spent BIGINT, IN p_back BIGINT,
    IN p_of BIGINT, IN p_least BIGINT, IN p_most BIGINT
)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE was_start, was_end, now_us, began, edge, head, total, added, there, granted, ends, n BIGINT;
    DECLARE was_used, present VARBINARY(1024);
    DECLARE changed, locked, went_back BOOLEAN DEFAULT FALSE;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    decide: LOOP
        SET was_start = NULL, was_used = NULL, was_end = NULL, granted = 0, changed = FALSE, went_back = FALSE;
        IF locked THEN
            SELECT start_us, used, end_us INTO was_start, was_used, was_end
            FROM tollgate_counts WHERE id = p_id FOR UPDATE;
        ELSE
            SELECT start_us, used, end_us INTO was_start, was_used, was_end
            FROM tollgate_counts WHERE id = p_id;
        END IF;
        SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));

        -- The window of the server's clock.
        IF p_kind = 0 THEN
            SET began = now_us - MOD(MOD(now_us - p_second, p_first) + p_first, p_first);
            SET edge = began + p_first, began = GREATEST(began, 0);
        ELSEIF p_kind = 1 THEN
            SET began = now_us, edge = now_us + p_first;
        ELSEIF now_us >= p_first AND now_us < p_second THEN
            SET began = p_first, edge = p_second;
        ELSEIF now_us >= p_second AND now_us < p_third THEN
            SET began = p_second, edge = p_third;
        ELSE
            -- The client tells the error by the time of the answer.
            LEAVE decide;
        END IF;

        -- The tokens that count in it. A step back of the clock by a second or less is waited for.
        SET present = NULL;
        IF was_end > now_us THEN
            SET went_back = was_start - now_us > 1000000;
            IF LENGTH(was_used) <> 7 * p_counts
                OR p_counts > 1 AND was_end - was_start <> (edge - began) * p_counts
            THEN
                SET total = 0, n = 0;
                WHILE n < LENGTH(was_used) DIV 7 DO
                    SET total = total + CAST(CONV(HEX(SUBSTRING(was_used, 7 * n + 1, 7)), 16, 10) AS SIGNED);
                    SET n = n + 1;
                END WHILE;
                SET present = CONCAT(UNHEX(LPAD(HEX(total), 14, '0')), REPEAT(x'00', 7 * (p_counts - 1)));
            ELSEIF went_back THEN
                SET present = was_used;
            ELSEIF p_kind = 1 THEN
                IF was_start + p_first > now_us THEN
                    SET present = was_used, began = was_start, edge = was_start + p_first;
                END IF;
            ELSEIF was_start > now_us THEN
                SET present = was_used, began = was_start, edge = was_start + (was_end - was_start) DIV p_counts;
            ELSEIF p_counts = 1 OR began <= was_start THEN
                SET present = was_used;
            ELSE
                SET present = LEFT(
                    CONCAT(REPEAT(x'00', 7 * LEAST((began - was_start) DIV (edge - began), p_counts)), was_used),
                    7 * p_counts);
            END IF;
        END IF;
        SET present = COALESCE(present, REPEAT(x'00', 7 * p_counts));

        SET head = CAST(CONV(HEX(LEFT(present, 7)), 16, 10) AS SIGNED), total = head, n = 1;
        WHILE n < p_counts DO
            SET total = total + CAST(CONV(HEX(SUBSTRING(present, 7 * n + 1, 7)), 16, 10) AS SIGNED), n = n + 1;
        END WHILE;
        -- Numbers above those that are counted stay: the client tells the error by the row.
        SET added = IF(p_of = 0 OR p_of = edge, GREATEST(LEAST(p_spent, 9007199254740991 - total), 0), 0);
        SET head = head + added, total = total + added;
        IF p_back > 0 THEN
            SET granted = IF(p_of = edge, -LEAST(p_back, head), 0);
        ELSE
            SET there = GREATEST(p_tokens - total, 0);
            SET granted = CASE
                WHEN there < p_least THEN 0
                WHEN p_leased > 0 THEN LEAST(p_most, GREATEST(p_least, there DIV 2))
                ELSE LEAST(p_most, there)
            END;
        END IF;
        SET head = head + granted;

        SET changed = granted <> 0 OR added <> 0 OR went_back;
        IF NOT changed THEN
            LEAVE decide;
        END IF;
        SET present = CONCAT(UNHEX(LPAD(HEX(head), 14, '0')), SUBSTRING(present, 8));
        SET ends = edge + (edge - began) * (p_counts - 1);
        IF was_used IS NULL THEN
            INSERT INTO tollgate_counts (id, start_us, used, end_us) VALUES (p_id, began, present, ends)
            ON DUPLICATE KEY UPDATE start_us = tollgate_counts.start_us;
            -- A row that another session has inserted is locked now, and is as it was.
            IF ROW_COUNT() = 1 THEN
                LEAVE decide;
            END IF;
        ELSEIF locked THEN
            UPDATE tollgate_counts SET start_us = began, used = present, end_us = ends WHERE id = p_id;
            LEAVE decide;
        END IF;
        SET locked = TRUE;
    END LOOP;
    IF changed THEN
        SET was_start = began, was_used = present, was_end = ends;
    END IF;
    SET @tollgate = CONCAT(@tollgate, granted, ',', changed, ',', IFNULL(was_start, ''), ',',
        IFNULL(HEX(was_used), ''), ',', IFNULL(was_end, ''), ',', now_us, ';');
END
