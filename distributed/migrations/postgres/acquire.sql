-- Decides one call by Bucket::step, and returns the bucket after the call; none if there is none.
--
-- The first pass reads without a lock. A call that changes nothing is answered, and another one is
-- written if the bucket still is as it was read. Else the next pass decides again, under the lock
-- of the row. The transaction must be at READ COMMITTED.
--
-- A later body gets another name: clients of this version call this one during an upgrade.
DO $do$ BEGIN
    IF to_regproc('tollgate_acquire_1') IS NOT NULL THEN
        RETURN;
    END IF;
    CREATE FUNCTION tollgate_acquire_1(
        p_id bytea, capacity bigint, floor bigint, debt bigint, tick bigint, per_tick bigint, token bigint,
        fill bigint, fill_us bigint, spent bigint, back bigint, fewest bigint, most bigint,
        OUT granted bigint, OUT credits bigint, OUT last_us bigint, OUT unit bigint, OUT now_us bigint
    ) LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $$
    DECLARE
        locked boolean := false;
        level bigint;
        since bigint;
        elapsed bigint;
        part bigint;
        there bigint;
    BEGIN
        LOOP
            IF locked THEN
                SELECT b.credits, b.last_us, b.unit INTO credits, last_us, unit
                FROM tollgate_buckets AS b WHERE b.id = p_id FOR UPDATE;
            ELSE
                SELECT b.credits, b.last_us, b.unit INTO credits, last_us, unit
                FROM tollgate_buckets AS b WHERE b.id = p_id;
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
                RETURN;
            ELSIF unit IS NULL THEN
                INSERT INTO tollgate_buckets (id, credits, last_us, unit, full_us)
                VALUES (p_id, level, since, token, since + fill_us) ON CONFLICT DO NOTHING;
                EXIT WHEN FOUND;
            ELSE
                UPDATE tollgate_buckets AS b
                SET credits = level, last_us = since, unit = token, full_us = since + fill_us
                WHERE b.id = p_id AND b.credits = tollgate_acquire_1.credits
                    AND b.last_us = tollgate_acquire_1.last_us AND b.unit = tollgate_acquire_1.unit;
                EXIT WHEN FOUND;
            END IF;
            locked := true;
        END LOOP;
        credits := level;
        last_us := since;
        unit := token;
    END $$;
END $do$;
