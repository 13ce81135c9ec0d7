//! The statements.

use std::sync::LazyLock;

use tokio_postgres::types::Type;

use crate::sql::terms::COLUMNS;

/// The clock is read for each row: `now()` would be the time before a lock was waited for.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us";

/// Decides a batch. Its parameters are the keys, and the numbers of
/// [`Terms`](crate::sql::terms::Terms).
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

/// Deletes the full rows of a page, and returns their number and the last key of the page. A row
/// that a batch has locked stays.
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
