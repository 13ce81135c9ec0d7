//! The statements.

use std::sync::LazyLock;

use tokio_postgres::types::Type;

use crate::sql::parameters::COLUMNS;

/// The clock, read for each row: `now()` is the start of the transaction, before a wait for a lock.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us";

/// The statement that decides a batch. Its parameters are the keys, and the
/// [`Parameters`](crate::sql::parameters::Parameters) of the calls.
pub(super) static ACQUIRE: LazyLock<String> = LazyLock::new(|| {
    let step = include_str!("step.sql");
    let columns = format!("SELECT o.*, b.credits, b.last_us, b.unit, {NOW} FROM ops AS o");
    let seen = format!("{columns} LEFT JOIN tollgate_buckets AS b ON b.id = o.id");
    let locked = format!("{columns} WHERE o.id = b.id");
    include_str!("acquire.sql")
        .replace("{step from seen}", &step.replace("{row}", &seen))
        .replace("{step from locked}", &step.replace("{row}", &locked))
});

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
