-- The counts of windows of tollgate-distributed, and the function that decides calls on them. A key
-- without a row has used no token. As of buckets, half of each page is left free.
DO $do$ BEGIN
    IF to_regclass('tollgate_counts') IS NULL THEN
        CREATE TABLE tollgate_counts (
            id bytea NOT NULL PRIMARY KEY,
            -- The begin of the present window or sub-window, in microseconds since 1970.
            start_us bigint NOT NULL CHECK (start_us BETWEEN 0 AND 9007199254740991),
            -- The tokens used in the present sub-window and in each one before it that counts: seven
            -- bytes each.
            used bytea NOT NULL CHECK (length(used) BETWEEN 7 AND 455 AND length(used) % 7 = 0),
            -- From this time on no token counts, and the row may be deleted.
            end_us bigint NOT NULL CHECK (end_us BETWEEN 0 AND 9007199254740991)
        ) WITH (
            fillfactor = 50,
            autovacuum_vacuum_scale_factor = 0,
            autovacuum_vacuum_threshold = 1000,
            autovacuum_vacuum_cost_delay = 0
        );
    END IF;
END $do$;
-- Decides the calls of a batch, each by Count::step, in two passes as tollgate_acquire_1 does. A row
-- of the result has the place of the call, and the count after it; none if there is none.
--
-- A later body gets another name: clients of this version call this one during an upgrade.
DO $do$ BEGIN
    IF to_regproc('tollgate_count_1') IS NOT NULL THEN
        RETURN;
    END IF;
    CREATE FUNCTION tollgate_count_1(keys text[], numbers bigint[]) RETURNS TABLE (
        place bigint, granted bigint, changed integer, start_us bigint, used bytea, end_us bigint,
        now_us bigint
    ) LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $$
    DECLARE
        key bytea;
        locked boolean;
        tokens bigint;
        counts bigint;
        kind bigint;
        first bigint;
        second bigint;
        third bigint;
        leased bigint;
        spent bigint;
        back bigint;
        of_us bigint;
        fewest bigint;
        most bigint;
        began bigint;
        edge bigint;
        present bytea;
        went_back boolean;
        head bigint;
        total bigint;
        added bigint;
        there bigint;
        ends bigint;
    BEGIN
        FOR place, key IN
            SELECT n - 1, decode(hex, 'hex') FROM unnest(keys) WITH ORDINALITY AS k(hex, n)
            ORDER BY hex COLLATE "C"
        LOOP
            tokens := numbers[12 * place + 1];
            counts := numbers[12 * place + 2];
            kind := numbers[12 * place + 3];
            first := numbers[12 * place + 4];
            second := numbers[12 * place + 5];
            third := numbers[12 * place + 6];
            leased := numbers[12 * place + 7];
            spent := numbers[12 * place + 8];
            back := numbers[12 * place + 9];
            of_us := numbers[12 * place + 10];
            fewest := numbers[12 * place + 11];
            most := numbers[12 * place + 12];
            locked := false;
            LOOP
                IF locked THEN
                    SELECT c.start_us, c.used, c.end_us INTO start_us, used, end_us
                    FROM tollgate_counts AS c WHERE c.id = key FOR UPDATE;
                ELSE
                    SELECT c.start_us, c.used, c.end_us INTO start_us, used, end_us
                    FROM tollgate_counts AS c WHERE c.id = key;
                END IF;
                -- now() is the start of the transaction, before a wait for a lock.
                now_us := extract(epoch FROM clock_timestamp()) * 1000000;
                granted := 0;
                changed := 0;

                -- The window of the server's clock.
                IF kind = 0 THEN
                    began := now_us - ((now_us - second) % first + first) % first;
                    edge := began + first;
                    began := greatest(began, 0);
                ELSIF kind = 1 THEN
                    began := now_us;
                    edge := now_us + first;
                ELSIF now_us >= first AND now_us < second THEN
                    began := first;
                    edge := second;
                ELSIF now_us >= second AND now_us < third THEN
                    began := second;
                    edge := third;
                ELSE
                    -- The client tells the error by the time of the answer.
                    EXIT;
                END IF;

                -- The tokens that count in it. A step back of the clock by a second or less is waited
                -- for.
                present := NULL;
                went_back := false;
                IF now_us < end_us THEN
                    went_back := start_us - now_us > 1000000;
                    IF length(used) <> 7 * counts
                        OR counts > 1 AND end_us - start_us <> (edge - began) * counts
                    THEN
                        total := 0;
                        FOR n IN 0 .. length(used) / 7 - 1 LOOP
                            total := total
                                + ('x00' || encode(substring(used FROM 7 * n + 1 FOR 7), 'hex'))::bit(64)::bigint;
                        END LOOP;
                        present := decode(lpad(to_hex(total), 14, '0') || repeat('00', (7 * (counts - 1))::integer),
                            'hex');
                    ELSIF went_back THEN
                        present := used;
                    ELSIF kind = 1 THEN
                        IF start_us + first > now_us THEN
                            present := used;
                            began := start_us;
                            edge := start_us + first;
                        END IF;
                    ELSIF start_us > now_us THEN
                        present := used;
                        began := start_us;
                        edge := start_us + (end_us - start_us) / counts;
                    ELSIF counts = 1 OR began <= start_us THEN
                        present := used;
                    ELSE
                        present := substring(
                            decode(repeat('00', (7 * least((began - start_us) / (edge - began), counts))::integer), 'hex')
                                || used
                            FROM 1 FOR (7 * counts)::integer);
                    END IF;
                END IF;
                present := coalesce(present, decode(repeat('00', (7 * counts)::integer), 'hex'));

                head := ('x00' || encode(substring(present FROM 1 FOR 7), 'hex'))::bit(64)::bigint;
                total := head;
                FOR n IN 1 .. counts - 1 LOOP
                    total := total
                        + ('x00' || encode(substring(present FROM (7 * n + 1)::integer FOR 7), 'hex'))::bit(64)::bigint;
                END LOOP;
                -- Numbers above those that are counted stay: the client tells the error by the row.
                added := CASE
                    WHEN of_us IN (0, edge) THEN greatest(least(spent, 9007199254740991 - total), 0)
                    ELSE 0
                END;
                head := head + added;
                total := total + added;
                IF back > 0 THEN
                    granted := CASE WHEN of_us = edge THEN -least(back, head) ELSE 0 END;
                ELSE
                    there := greatest(tokens - total, 0);
                    granted := CASE
                        WHEN there < fewest THEN 0
                        WHEN leased > 0 THEN least(most, greatest(fewest, there / 2))
                        ELSE least(most, there)
                    END;
                END IF;
                head := head + granted;

                IF granted = 0 AND added = 0 AND NOT went_back THEN
                    EXIT;
                END IF;
                present := overlay(present PLACING decode(lpad(to_hex(head), 14, '0'), 'hex') FROM 1 FOR 7);
                ends := edge + (edge - began) * (counts - 1);
                IF used IS NULL THEN
                    INSERT INTO tollgate_counts (id, start_us, used, end_us)
                    VALUES (key, began, present, ends) ON CONFLICT DO NOTHING;
                ELSE
                    UPDATE tollgate_counts AS c SET start_us = began, used = present, end_us = ends
                    WHERE c.id = key AND c.start_us = tollgate_count_1.start_us
                        AND c.used = tollgate_count_1.used AND c.end_us = tollgate_count_1.end_us;
                END IF;
                IF FOUND THEN
                    changed := 1;
                    start_us := began;
                    used := present;
                    end_us := ends;
                    EXIT;
                END IF;
                locked := true;
            END LOOP;
            RETURN NEXT;
        END LOOP;
    END $$;
END $do$;
