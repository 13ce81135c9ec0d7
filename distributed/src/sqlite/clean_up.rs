//! The deletion of rows that decide as missing ones.

use rusqlite::{Connection, params};

use super::decide::transaction;
use super::table::now_us;
use crate::sql::fault::Fault;

/// The rows of a page.
const PAGE: i64 = 1_000;

/// The result of one page.
pub(super) struct Page {
    pub(super) deleted: u64,
    /// The last key of the page; `None` if there are no more rows.
    pub(super) last: Option<Vec<u8>>,
}

/// Deletes the full rows of the page after a key. A page without full rows takes no lock.
pub(super) fn page(connection: &Connection, after: &[u8], grace_us: i64) -> Result<Page, Fault> {
    let before = i64::try_from(now_us()).unwrap_or(i64::MAX).saturating_sub(grace_us);
    let (last, full): (Option<Vec<u8>>, i64) = connection
        .prepare_cached(
            "SELECT max(id), coalesce(sum(full_us < ?2), 0)
         FROM (SELECT id, full_us FROM tollgate_buckets WHERE id > ?1 ORDER BY id LIMIT ?3)",
        )?
        .query_row(params![after, before, PAGE], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let deleted = match &last {
        Some(last) if full > 0 => transaction(connection, "BEGIN IMMEDIATE", || {
            let mut delete = connection
                .prepare_cached("DELETE FROM tollgate_buckets WHERE id > ?1 AND id <= ?2 AND full_us < ?3")?;
            Ok(delete.execute(params![after, last, before])?)
        })?,
        _ => 0,
    };
    Ok(Page { deleted: deleted as u64, last })
}
