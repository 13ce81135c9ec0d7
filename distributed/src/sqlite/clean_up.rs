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

/// A table, whose rows decide as missing ones from a time on.
#[derive(Clone, Copy)]
pub(super) enum Table {
    Buckets,
    Counts,
}

impl Table {
    /// Returns the name of the table, and its column with that time.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Table::Buckets => ("tollgate_buckets", "full_us"),
            Table::Counts => ("tollgate_counts", "end_us"),
        }
    }
}

/// Deletes the rows of the page after a key that decide as missing ones. A page without such rows
/// takes no lock.
pub(super) fn page(
    connection: &Connection,
    table: Table,
    after: &[u8],
    grace_us: i64,
) -> Result<Page, Fault> {
    let (table, until) = table.names();
    let before = i64::try_from(now_us()).unwrap_or(i64::MAX).saturating_sub(grace_us);
    let (last, full): (Option<Vec<u8>>, i64) = connection
        .prepare_cached(&format!(
            "SELECT max(id), coalesce(sum({until} < ?2), 0)
         FROM (SELECT id, {until} FROM {table} WHERE id > ?1 ORDER BY id LIMIT ?3)"
        ))?
        .query_row(params![after, before, PAGE], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let deleted = match &last {
        Some(last) if full > 0 => transaction(connection, "BEGIN IMMEDIATE", || {
            let mut delete = connection.prepare_cached(&format!(
                "DELETE FROM {table} WHERE id > ?1 AND id <= ?2 AND {until} < ?3"
            ))?;
            Ok(delete.execute(params![after, last, before])?)
        })?,
        _ => 0,
    };
    Ok(Page { deleted: deleted as u64, last })
}
