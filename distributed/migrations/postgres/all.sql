-- Decides calls of buckets and of counts, all or none. Returns the answer of each bucket, and then
-- that of each count: their columns with commas, and a semicolon behind each answer.
--
-- After a refusal the rows are as they were, and the answers are those of the granted calls.
--
-- A later body gets another name: clients of this version call this one during an upgrade.
DO $do$ BEGIN
    IF to_regproc('tollgate_all_1') IS NOT NULL THEN
        RETURN;
    END IF;
    CREATE FUNCTION tollgate_all_1(
        bucket_keys text[], bucket_numbers bigint[], count_keys text[], count_numbers bigint[]
    ) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
    DECLARE
        buckets text;
        counts text;
    BEGIN
        BEGIN
            SELECT string_agg(format('%s,%s,%s,%s,%s;', granted, credits, last_us, unit, now_us), '' ORDER BY place)
            INTO buckets FROM tollgate_acquire_1(bucket_keys, bucket_numbers);
            SELECT string_agg(
                format('%s,%s,%s,%s,%s,%s;', granted, changed, start_us, encode(used, 'hex'), end_us, now_us),
                '' ORDER BY place)
            INTO counts FROM tollgate_count_1(count_keys, count_numbers);
            IF concat(';', buckets, counts) LIKE '%;0,%' THEN
                RAISE EXCEPTION 'refused' USING ERRCODE = 'TGREF';
            END IF;
        EXCEPTION WHEN SQLSTATE 'TGREF' THEN
            -- This undoes the writes. The variables keep their values.
            NULL;
        END;
        RETURN concat(buckets, counts);
    END $$;
END $do$;
