//! The store of SQLite.

use std::fmt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};
use tokio::sync::{mpsc, oneshot};

use super::clean_up::{Table, page};
use super::decide::{Acquire, decide_all};
use super::table::set_up;
use super::thread::{Message, run};
use crate::sql::fault::Fault;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::lanes::Lanes;
use crate::store::op::{Op, OwnedOp, Store, settle};

/// The most calls in the queue of the thread. A further one waits for room.
const QUEUE: usize = 4_096;

/// The longest time for others at the opening of a file. SQLite waits for a writer, but not for one
/// that closes the last connection at that moment.
const OPENING: Duration = Duration::from_secs(5);

const TABLES: &str = concat!(
    include_str!("../../migrations/sqlite/buckets.sql"),
    include_str!("../../migrations/sqlite/counts.sql")
);

/// Buckets and counts in a file of SQLite.
///
/// They survive a restart of the process; a crash of the machine may lose the last moments.
/// Processes of one machine may share the file, which must not be on a network file system. The
/// clock is the wall clock of the machine.
///
/// A thread owns the connection. It decides up to 256 waiting calls in one transaction, and waits
/// up to 1 s for the write lock of another process. A clone is another handle to the same store.
/// The thread ends after the last handle is dropped and the waiting calls are answered. A call
/// whose future was dropped before its turn is not decided.
///
/// A row that is no bucket or count fails its call by a permanent error that names the key.
#[derive(Clone)]
pub struct SqliteStore {
    thread: mpsc::Sender<Message>,
    lanes: Lanes,
}

impl SqliteStore {
    /// Opens a file, and creates the file and the tables if they are missing. Blocks the thread
    /// meanwhile: for some 5 s if other processes have the file locked.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the file cannot be opened or is no database.
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteStore, StoreError> {
        SqliteStore::with_connection(Connection::open(path).map_err(Fault::from)?)
    }

    /// Opens a store in memory, which loses its buckets when it is dropped.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if memory or a thread is lacking.
    pub fn in_memory() -> Result<SqliteStore, StoreError> {
        SqliteStore::with_connection(Connection::open_in_memory().map_err(Fault::from)?)
    }

    /// Returns a store on a connection of the caller. Sets the journal to a write-ahead log,
    /// `synchronous` to `NORMAL` and the busy timeout to 1 s, and creates the tables if they are
    /// missing.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the file cannot be written or is no database.
    pub fn with_connection(connection: Connection) -> Result<SqliteStore, StoreError> {
        let begun = Instant::now();
        while let Err(error) = set_up(&connection).and_then(|()| connection.execute_batch(TABLES)) {
            let is_busy = error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
            if !is_busy || begun.elapsed() > OPENING {
                return Err(Fault::from(error).into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        let (sender, receiver) = mpsc::channel(QUEUE);
        thread::Builder::new()
            .name("tollgate-sqlite".into())
            .spawn(move || run(&connection, receiver))
            .map_err(|error| StoreError::new(StoreErrorKind::Refused, error))?;
        Ok(SqliteStore { thread: sender, lanes: Lanes::default() })
    }

    /// Creates the tables if they are missing. The constructors do so as well.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the file cannot be written.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        Ok(self.run(|connection| connection.execute_batch(TABLES).map_err(Fault::from)).await??)
    }

    /// Deletes the rows of buckets that have been full for at least `full_for`, and of counts whose
    /// windows have been over for as long, and returns their number. No decision changes: a key
    /// without a row has a full bucket, and a count of no token.
    ///
    /// A row is full by the quota of the call that wrote it. `full_for` should exceed the longest
    /// step back of the clock. Rows are read in pages of 1,000, and other calls run in between. The
    /// limiter never calls this.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the file cannot be read or written. The pages before the error are cleaned
    /// up.
    pub async fn clean_up(&self, full_for: Duration) -> Result<u64, StoreError> {
        let grace_us = i64::try_from(full_for.as_micros()).unwrap_or(i64::MAX);
        let mut deleted = 0;
        for table in [Table::Buckets, Table::Counts] {
            let mut after = Vec::new();
            loop {
                let page = self.run(move |connection| page(connection, table, &after, grace_us)).await??;
                deleted += page.deleted;
                match page.last {
                    Some(last) => after = last,
                    None => break,
                }
            }
        }
        Ok(deleted)
    }

    /// Runs a job on the thread.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.call(|reply| {
            Message::Run(Box::new(move |connection| {
                // The caller may have been dropped.
                let _ = reply.send(job(connection));
            }))
        })
        .await
    }

    async fn call<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let ended = "the thread of the store has ended";
        let sent = self.thread.send(message(reply)).await;
        sent.map_err(|_| StoreError::new(StoreErrorKind::Permanent, ended))?;
        answer.await.map_err(|_| StoreError::new(StoreErrorKind::Unknown, ended))
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

impl Store for SqliteStore {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        let answers = self.call(|reply| Message::Acquire(Acquire::new(ops, reply))).await??;
        for (op, answer) in ops.iter_mut().zip(answers) {
            op.answer = answer;
        }
        Ok(())
    }

    async fn acquire_all(&self, ops: &mut [Op<'_>]) -> Result<Option<usize>, StoreError> {
        let owned: Vec<OwnedOp> = ops.iter().map(OwnedOp::new).collect();
        let answers = self.run(move |connection| decide_all(connection, &owned)).await??;
        for (op, answer) in ops.iter_mut().zip(answers) {
            op.answer = answer;
        }
        Ok(settle(ops))
    }

    fn lanes(&self) -> Lanes {
        self.lanes.clone()
    }
}
