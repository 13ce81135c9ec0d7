//! The tables of buckets and counts: their settings, and a row read and written.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, Error, OptionalExtension, params};

use crate::law::bucket::Bucket;
use crate::law::count::Count;
use crate::law::spec::Spec;
use crate::sql::count_row::CountRow;
use crate::sql::row::{MAX_US, Row, fill_us, shown};
use crate::store::error::{StoreError, StoreErrorKind};

/// The longest wait of a transaction for one of another process.
const BUSY: Duration = Duration::from_secs(1);

/// A bucket or a count could not be read.
pub(super) enum Unread {
    /// The row is none, or no month of the call is that of the clock.
    Row(StoreError),
    /// SQLite failed.
    File(Error),
}

impl From<Error> for Unread {
    fn from(error: Error) -> Unread {
        Unread::File(error)
    }
}

/// Sets a connection up. A crash of the machine may lose the last transactions, and leaves the file
/// sound.
pub(super) fn set_up(connection: &Connection) -> Result<(), Error> {
    connection.busy_timeout(BUSY)?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.execute_batch("PRAGMA synchronous = NORMAL")
}

/// Returns the wall clock, in microseconds since 1970; 0 for an earlier time.
pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Reads the bucket of a key.
pub(super) fn read(connection: &Connection, key: &[u8]) -> Result<Option<Bucket>, Unread> {
    let mut select =
        connection.prepare_cached("SELECT credits, last_us, unit FROM tollgate_buckets WHERE id = ?1")?;
    let row = select
        .query_row([key], |row| Ok(Row { credits: row.get(0)?, last_us: row.get(1)?, unit: row.get(2)? }));
    found(key, "bucket", row, |row| row.bucket(key))
}

/// Reads the count of a key.
pub(super) fn read_count(connection: &Connection, key: &[u8]) -> Result<Option<Count>, Unread> {
    let mut select =
        connection.prepare_cached("SELECT start_us, used, end_us FROM tollgate_counts WHERE id = ?1")?;
    let row = select.query_row([key], |row| {
        Ok(CountRow { start_us: row.get(0)?, used: row.get(1)?, end_us: row.get(2)? })
    });
    found(key, "count", row, |row| row.count(key))
}

/// Returns the value of a row, if there is one.
fn found<R, T>(
    key: &[u8],
    name: &str,
    row: Result<R, Error>,
    read: impl FnOnce(R) -> Result<T, StoreError>,
) -> Result<Option<T>, Unread> {
    match row.optional() {
        Ok(row) => row.map(read).transpose().map_err(Unread::Row),
        Err(error @ Error::InvalidColumnType(..)) => {
            let message = format!("the row of key {} is no {name}: {error}", shown(key));
            Err(Unread::Row(StoreError::new(StoreErrorKind::Permanent, message)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Writes the bucket of a key.
pub(super) fn write(connection: &Connection, key: &[u8], spec: &Spec, bucket: &Bucket) -> Result<(), Error> {
    // No clock reaches `MAX_US`.
    let last_us = i64::try_from(bucket.last_us).unwrap_or(MAX_US).min(MAX_US);
    let (credits, unit) = (bucket.credits, bucket.per_token as i64);
    let mut upsert = connection.prepare_cached(
        "INSERT INTO tollgate_buckets (id, credits, last_us, unit, full_us) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (id) DO UPDATE SET credits = excluded.credits, last_us = excluded.last_us,
         unit = excluded.unit, full_us = excluded.full_us",
    )?;
    upsert.execute(params![key, credits, last_us, unit, last_us + fill_us(spec)])?;
    Ok(())
}

/// Writes the count of a key.
pub(super) fn write_count(connection: &Connection, key: &[u8], count: &Count) -> Result<(), Error> {
    let CountRow { start_us, used, end_us } = CountRow::of(count);
    let mut upsert = connection.prepare_cached(
        "INSERT INTO tollgate_counts (id, start_us, used, end_us) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (id) DO UPDATE SET start_us = excluded.start_us, used = excluded.used,
         end_us = excluded.end_us",
    )?;
    upsert.execute(params![key, start_us, used, end_us])?;
    Ok(())
}
