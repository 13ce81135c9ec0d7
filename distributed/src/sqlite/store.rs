//! The store of SQLite.

use std::path::Path;
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::clean_up::page;
use super::decide::Acquire;
use super::table::set_up;
use super::thread::{Call, run};
use crate::sql::fault::Fault;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::op::{Op, Store};

/// The calls that may wait for the thread. A further one waits for a place.
const QUEUE: usize = 4_096;

const BUCKETS: &str = include_str!("../../migrations/sqlite/buckets.sql");

/// Buckets in a file of SQLite.
///
/// They survive a restart of the process. Processes of one host may share the file; it must not be
/// on a network's file system. The clock is the wall clock of the host.
///
/// A thread owns the connection. It decides all calls that wait in one transaction, and it ends
/// when the store is dropped and the calls that waited are answered. A call whose caller has gone
/// before its turn is not decided.
///
/// A row in the file that is no bucket fails a call with a permanent error that names the key.
pub struct SqliteStore {
    calls: mpsc::Sender<Call>,
}

impl SqliteStore {
    /// Opens a file, and creates it and the table if they are missing. Blocks for the time of some
    /// reads and writes of the file.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the file cannot be opened or is no database.
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteStore, StoreError> {
        SqliteStore::with_connection(Connection::open(path).map_err(Fault::from)?)
    }

    /// Opens a store in memory: its buckets end with it.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if there is no memory, or no thread to be had.
    pub fn in_memory() -> Result<SqliteStore, StoreError> {
        SqliteStore::with_connection(Connection::open_in_memory().map_err(Fault::from)?)
    }

    /// Returns a store on a connection. It sets the journal to a write-ahead log, `synchronous` to
    /// `NORMAL` and the timeout to a second, and creates the table if it is missing.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the file cannot be written or is no database.
    pub fn with_connection(connection: Connection) -> Result<SqliteStore, StoreError> {
        set_up(&connection).map_err(Fault::from)?;
        connection.execute_batch(BUCKETS).map_err(Fault::from)?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        thread::Builder::new()
            .name("tollgate-sqlite".into())
            .spawn(move || run(&connection, receiver))
            .map_err(|error| StoreError::new(StoreErrorKind::Refused, error))?;
        Ok(SqliteStore { calls: sender })
    }

    /// Creates the table if it is missing. A store does so when it is opened.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the file cannot be written.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        Ok(self.run(|connection| connection.execute_batch(BUCKETS).map_err(Fault::from)).await??)
    }

    /// Deletes the rows that have been full for a time, and returns their number. No decision
    /// changes: a key without a row is a full bucket.
    ///
    /// A row is full under the quota of the call that wrote it. The time should exceed the longest
    /// step back of the clock. The rows are read in pages of 1,000, and other calls come between.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the file cannot be read or written. Pages before it are cleaned up.
    pub async fn clean_up(&self, full_for: Duration) -> Result<u64, StoreError> {
        let grace_us = i64::try_from(full_for.as_micros()).unwrap_or(i64::MAX);
        let (mut deleted, mut after) = (0, Vec::new());
        loop {
            let page = self.run(move |connection| page(connection, &after, grace_us)).await??;
            deleted += page.deleted;
            match page.last {
                Some(last) => after = last,
                None => return Ok(deleted),
            }
        }
    }

    /// Runs a job on the thread.
    pub(super) async fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> R + Send + 'static,
    ) -> Result<R, StoreError> {
        self.call(|reply| {
            Call::Run(Box::new(move |connection| {
                // A caller that has gone needs no answer.
                let _ = reply.send(job(connection));
            }))
        })
        .await
    }

    async fn call<R>(&self, call: impl FnOnce(oneshot::Sender<R>) -> Call) -> Result<R, StoreError> {
        let (reply, answer) = oneshot::channel();
        let ended = "the thread of the store has ended";
        let sent = self.calls.send(call(reply)).await;
        sent.map_err(|_| StoreError::new(StoreErrorKind::Permanent, ended))?;
        answer.await.map_err(|_| StoreError::new(StoreErrorKind::Unknown, ended))
    }
}

impl Store for SqliteStore {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        let answers = self.call(|reply| Call::Acquire(Acquire::new(ops, reply))).await??;
        for (op, answer) in ops.iter_mut().zip(answers) {
            op.answer = answer;
        }
        Ok(())
    }
}
