//! The table of buckets that are refilled at intervals.

use rusqlite::{Connection, OptionalExtension, params};

use super::store::SqliteStore;
use super::table::now_us;
use crate::sql::fault::Fault;
use crate::store::error::StoreError;
use crate::tokens::requester::TokenTable;

const TABLE: &str = include_str!("../../migrations/sqlite/tokens.sql");

const AVAILABLE: &str = "SELECT 1 FROM token_buckets WHERE id = ?1
    AND (available >= 1 OR ?2 - last_refill_at >= refill_seconds * 1000000)";

/// Each expression sees the old row.
const TAKE: &str = "UPDATE token_buckets SET
    available = -1
        + CASE WHEN ?2 - last_refill_at >= refill_seconds * 1000000 THEN capacity ELSE available END,
    last_refill_at = last_refill_at
        + max(0, (?2 - last_refill_at) / (refill_seconds * 1000000)) * refill_seconds * 1000000
    WHERE id = ?1 AND (available >= 1 OR ?2 - last_refill_at >= refill_seconds * 1000000)
    RETURNING 1";

impl TokenTable for SqliteStore {
    async fn create_token_table(&self) -> Result<(), StoreError> {
        Ok(self.run(|connection| connection.execute_batch(TABLE).map_err(Fault::from)).await??)
    }

    async fn take_token(&self, id: &str) -> Result<bool, StoreError> {
        let id = id.to_owned();
        Ok(self.run(move |connection| take(connection, &id).map_err(Fault::from)).await??)
    }
}

/// Takes a token. A read comes first: an update takes the write lock even if it changes no row.
fn take(connection: &Connection, id: &str) -> rusqlite::Result<bool> {
    let now_us = i64::try_from(now_us()).unwrap_or(i64::MAX);
    for sql in [AVAILABLE, TAKE] {
        let found = connection.prepare_cached(sql)?.query_row(params![id, now_us], |_| Ok(())).optional()?;
        if found.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}
