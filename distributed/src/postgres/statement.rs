//! The statements.

use tokio_postgres::types::Type;

use crate::sql::parameters::COLUMNS;

/// The statement that decides a batch. Its parameters are the keys, and the
/// [`Parameters`](crate::sql::parameters::Parameters) of the calls. Rows are locked in the order of
/// their keys, so that no two batches wait for each other.
pub(super) const ACQUIRE: &str = "
    SELECT o.id, step.*
    FROM (
        SELECT * FROM unnest(
            $1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
            $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
            $13::bigint[]
        ) AS o(id, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12) ORDER BY id
    ) AS o,
    LATERAL tollgate_acquire_1(id, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12) AS step";

/// Returns the types of the parameters of [`ACQUIRE`].
pub(super) fn types() -> [Type; 1 + COLUMNS] {
    std::array::from_fn(|index| if index == 0 { Type::BYTEA_ARRAY } else { Type::INT8_ARRAY })
}

/// The statement that deletes the full rows of a page. Returns their number, and the last key of
/// the page. A locked row stays.
pub(super) const CLEAN_UP: &str = "
    WITH page AS MATERIALIZED (
        SELECT id FROM tollgate_buckets WHERE id > $1 ORDER BY id LIMIT 1000
    ),
    ends AS MATERIALIZED (SELECT id FROM page ORDER BY id DESC LIMIT 1),
    idle AS MATERIALIZED (
        SELECT b.id FROM tollgate_buckets AS b, ends
        WHERE b.id > $1 AND b.id <= ends.id
            AND b.full_us < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $2
        ORDER BY b.id FOR UPDATE OF b SKIP LOCKED
    ),
    gone AS (DELETE FROM tollgate_buckets AS b USING idle WHERE b.id = idle.id RETURNING 1)
    SELECT (SELECT count(*) FROM gone), (SELECT id FROM ends)";
