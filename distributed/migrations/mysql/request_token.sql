-- Takes a token, and selects whether there was one. The clock is read once, before the row is
-- locked: a session decides at the time at which it began to wait for the lock. A call that finds
-- no token neither locks nor writes.
--
-- No setting of the session counts. The clock is UTC in each time zone, and the variable
-- `timestamp` does not set it. In any column the ids are compared by bytes, and by an index.
CREATE PROCEDURE IF NOT EXISTS request_token(
    IN bucket_id TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci
)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE clock DATETIME(6)
        DEFAULT SYSDATE(6) + INTERVAL TIMESTAMPDIFF(SECOND, NOW(), UTC_TIMESTAMP()) SECOND;
    DECLARE taken INT DEFAULT 0;
    IF EXISTS (
        SELECT 1 FROM token_buckets
        WHERE id = bucket_id AND BINARY id = BINARY bucket_id
            AND (available >= 1 OR clock >= last_refill_at + INTERVAL refill_seconds SECOND)
    ) THEN
        -- The second column depends on no column that is set before it.
        UPDATE token_buckets
        SET available = IF(clock >= last_refill_at + INTERVAL refill_seconds SECOND, capacity, available) - 1,
            last_refill_at = last_refill_at + INTERVAL GREATEST(
                TIMESTAMPDIFF(MICROSECOND, last_refill_at, clock) DIV (refill_seconds * 1000000), 0
            ) * refill_seconds SECOND
        WHERE id = bucket_id AND BINARY id = BINARY bucket_id
            AND (available >= 1 OR clock >= last_refill_at + INTERVAL refill_seconds SECOND);
        SET taken = ROW_COUNT();
    END IF;
    SELECT taken;
END
