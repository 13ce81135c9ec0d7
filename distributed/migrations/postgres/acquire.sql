-- Decides the calls of a batch, each by Bucket::step. The keys are in hexadecimal digits, and each
-- call has twelve numbers. A row of the result has the place of the call, and the bucket after it;
-- none if there is none.
--
-- The first pass reads without a lock. A call that changes nothing is answered, and another one is
-- written if the bucket still is as it was read. Else the next pass decides again, under the lock
-- of the row. Rows are locked in one order of the keys, so that no two batches wait for each other.
-- The transaction must be at READ COMMITTED.
--
-- A later body gets another name: clients of this version call this one during an upgrade.
DO $do$ BEGIN
    IF to_regproc('tollgate_acquire_1') IS NOT NULL THEN
        RETURN;
    END IF;
    CREATE FUNCTION tollgate_acquire_1(keys text[], numbers bigint[]) RETURNS TABLE (
        place bigint, granted bigint, credits bigint, last_us bigint, unit bigint, now_us bigint
    ) LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $$
    DECLARE
        key bytea;
        locked boolean;
        level bigint;
        since bigint;
        elapsed bigint;
        part bigint;
        there bigint;
        capacity bigint;
        floor bigint;
        debt bigint;
        tick bigint;
        per_tick bigint;
        token bigint;
        fill bigint;
        fill_us bigint;
        spent bigint;
        back bigint;
        fewest bigint;
        most bigint;
    BEGIN
        FOR place, key IN
            SELECT n - 1, decode(hex, 'hex') FROM unnest(keys) WITH ORDINALITY AS k(hex, n)
            ORDER BY hex COLLATE "C"
        LOOP
            capacity := numbers[12 * place + 1];
            floor := numbers[12 * place + 2];
            debt := numbers[12 * place + 3];
            tick := numbers[12 * place + 4];
            per_tick := numbers[12 * place + 5];
            token := numbers[12 * place + 6];
            fill := numbers[12 * place + 7];
            fill_us := numbers[12 * place + 8];
            spent := numbers[12 * place + 9];
            back := numbers[12 * place + 10];
            fewest := numbers[12 * place + 11];
            most := numbers[12 * place + 12];
            locked := false;
            LOOP
                IF locked THEN
                    SELECT b.credits, b.last_us, b.unit INTO credits, last_us, unit
                    FROM tollgate_buckets AS b WHERE b.id = key FOR UPDATE;
                ELSE
                    SELECT b.credits, b.last_us, b.unit INTO credits, last_us, unit
                    FROM tollgate_buckets AS b WHERE b.id = key;
                END IF;
                -- now() is the start of the transaction, before a wait for a lock.
                now_us := extract(epoch FROM clock_timestamp()) * 1000000;

                -- The level under the call's quota. Whole tokens stay whole, and a part is rounded down.
                level := CASE WHEN unit IS NULL THEN capacity ELSE greatest(credits, -floor) END;
                elapsed := coalesce(now_us - last_us, 0);
                IF unit <> token THEN
                    part := (credits % unit + unit) % unit;
                    level := least(capacity, greatest(-floor,
                        (credits - part) / unit * token::numeric + div(part * token::numeric, unit)));
                END IF;

                -- The refill. A step back of the clock by a second or less is waited for.
                IF elapsed < -1000000 THEN
                    since := now_us;
                ELSIF elapsed < 0 THEN
                    since := last_us;
                ELSIF elapsed / tick >= fill THEN
                    level := capacity;
                    since := now_us;
                ELSE
                    level := level + elapsed / tick * per_tick;
                    -- A full bucket does not keep the part of a tick.
                    since := CASE WHEN level >= capacity THEN now_us ELSE now_us - elapsed % tick END;
                END IF;
                level := least(level, capacity);

                IF spent > 0 THEN
                    level := greatest(level - spent, -floor);
                END IF;
                IF most < 0 THEN
                    granted := most;
                    level := least(level + back, capacity);
                ELSE
                    there := greatest(level + debt, 0) / token;
                    granted := CASE
                        WHEN there < fewest THEN 0
                        WHEN debt > 0 THEN least(most, greatest(fewest, there / 2))
                        ELSE least(most, there)
                    END;
                    level := level - granted * token;
                END IF;

                IF granted = 0 AND spent <= 0 AND elapsed >= -1000000 THEN
                    EXIT;
                ELSIF unit IS NULL THEN
                    INSERT INTO tollgate_buckets (id, credits, last_us, unit, full_us)
                    VALUES (key, level, since, token, since + fill_us) ON CONFLICT DO NOTHING;
                ELSE
                    UPDATE tollgate_buckets AS b
                    SET credits = level, last_us = since, unit = token, full_us = since + fill_us
                    WHERE b.id = key AND b.credits = tollgate_acquire_1.credits
                        AND b.last_us = tollgate_acquire_1.last_us AND b.unit = tollgate_acquire_1.unit;
                END IF;
                IF FOUND THEN
                    credits := level;
                    last_us := since;
                    unit := token;
                    EXIT;
                END IF;
                locked := true;
            END LOOP;
            RETURN NEXT;
        END LOOP;
    END $$;
END $do$;
