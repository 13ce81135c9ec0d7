//! A connection that is ready for calls, and the task that owns it.
//!
//! Statements go on if their caller is dropped: else the next call would read their answer.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::fault;
use super::statements::Statements;
use crate::sql::fault::Fault;
use crate::sql::sessions::Session;
use crate::store::error::StoreErrorKind;

/// The most jobs that wait for a connection.
const QUEUE: usize = 256;

/// The longest time to close a connection.
const END: Duration = Duration::from_secs(1);

/// The settings of a session, and a check that `SYSDATE` moves within a statement.
const SET_UP: &str = "SET autocommit = 1, time_zone = '+00:00', innodb_lock_wait_timeout = 1,
        completion_type = 'NO_CHAIN', sql_select_limit = 18446744073709551615, timestamp = DEFAULT,
        sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SELECT SYSDATE(6) > NOW(6) FROM (SELECT SLEEP(0.002)) AS moment";

/// The rows of a job's statements, or their error.
type Rows = Result<Vec<Row>, Fault>;

#[derive(Debug)]
struct Job {
    statements: Statements,
    reply: oneshot::Sender<Rows>,
}

/// The channel to the task of a connection.
#[derive(Debug)]
pub(super) struct MySqlSession(mpsc::Sender<Job>);

impl Session for MySqlSession {
    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl MySqlSession {
    /// Sets a connection up, and starts its task.
    ///
    /// # Errors
    ///
    /// A permanent error if the server's `SYSDATE` stands still within a statement, or if the
    /// client counts found rows.
    pub(super) async fn set_up(mut connection: Conn, patience: Duration) -> Result<MySqlSession, Fault> {
        if connection.opts().client_found_rows() {
            return Err(permanent(
                "the connection has client_found_rows: an insertion cannot be told from an update",
            ));
        }
        let rows = run(&mut connection, &Statements::of(SET_UP))
            .await
            .map_err(|error| fault::of_connect(error.cause))?;
        match rows.first().and_then(|row| row.get_opt::<bool, _>(0)) {
            Some(Ok(true)) => {}
            _ => {
                return Err(permanent(
                    "the server runs with --sysdate-is-now: its clock is that of a statement's begin",
                ));
            }
        }
        let (sender, jobs) = mpsc::channel(QUEUE);
        tokio::spawn(serve(connection, jobs, patience));
        Ok(MySqlSession(sender))
    }

    /// Sends statements, and waits for their rows.
    pub(super) async fn ask(&self, statements: Statements) -> Rows {
        let (reply, answer) = oneshot::channel();
        if self.0.send(Job { statements, reply }).await.is_err() {
            return Err(refused());
        }
        let lost = || Err(Fault::new(StoreErrorKind::Unknown, "the task of the connection has ended"));
        answer.await.unwrap_or_else(|_| lost())
    }
}

/// An error of a statement.
struct StatementError {
    cause: mysql_async::Error,
    /// Whether the transaction was committed before the error.
    committed: bool,
}

/// Runs jobs until the store is dropped or the connection breaks. A job whose caller was dropped
/// before its turn is not sent.
async fn serve(mut connection: Conn, mut jobs: mpsc::Receiver<Job>, patience: Duration) {
    let mut sound = true;
    while sound {
        let Some(job) = jobs.recv().await else { break };
        if job.reply.is_closed() {
            continue;
        }
        let answer = match timeout(patience, decide(&mut connection, &job.statements)).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err((fault, usable))) => {
                sound = usable;
                Err(fault)
            }
            Err(_) => {
                sound = false;
                Err(Fault::new(StoreErrorKind::Unknown, format!("no answer within {patience:?}")))
            }
        };
        if !sound {
            jobs.close();
        }
        // The caller may have been dropped.
        let _ = job.reply.send(answer);
    }
    while let Ok(job) = jobs.try_recv() {
        let _ = job.reply.send(Err(refused()));
    }
    // After this, a pool counts the connection as closed, also if it takes too long.
    let _ = timeout(END, connection.disconnect()).await;
}

/// Runs statements. Those that lost a conflict are sent once more. The flag of an error tells
/// whether the connection may be used again.
async fn decide(connection: &mut Conn, statements: &Statements) -> Result<Vec<Row>, (Fault, bool)> {
    let mut sent = 1;
    loop {
        let StatementError { cause, committed } = match run(connection, statements).await {
            Ok(rows) => return Ok(rows),
            Err(error) => error,
        };
        let mut usable = !fault::ends_session(&cause);
        // Else the next transaction would commit the rest of this one.
        usable = usable && connection.query_drop("ROLLBACK").await.is_ok();
        if !(usable && !committed && sent == 1 && fault::is_conflict(&cause)) {
            let unknown = |cause| Fault::new(StoreErrorKind::Unknown, cause);
            let fault = if committed { unknown(cause) } else { fault::of_statement(cause) };
            return Err((fault, usable));
        }
        sent += 1;
    }
}

/// Sends statements, and returns the rows of all.
async fn run(connection: &mut Conn, statements: &Statements) -> Result<Vec<Row>, StatementError> {
    let first = |cause| StatementError { cause, committed: false };
    let mut result = connection.query_iter(statements.sql.as_str()).await.map_err(first)?;
    let (mut rows, mut done) = (Vec::new(), 0);
    loop {
        let last = result.is_empty();
        let error = |cause| StatementError { cause, committed: done > statements.commit };
        // The error of a statement comes after the rows of the one before it.
        rows.extend(result.collect::<Row>().await.map_err(error)?);
        if last {
            return Ok(rows);
        }
        done += 1;
    }
}

fn permanent(message: &str) -> Fault {
    Fault::new(StoreErrorKind::Permanent, message)
}

fn refused() -> Fault {
    Fault::new(StoreErrorKind::Refused, "the connection ended before the call was sent")
}
