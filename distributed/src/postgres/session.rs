//! A connection that is ready for calls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

use super::batch::Arrays;
use super::fault;
use super::options::{OWN, PostgresOptions};
use super::statement::{ACQUIRE, CLEAN_UP, types};
use crate::sql::fault::Fault;
use crate::sql::sessions::Session;
use crate::store::error::StoreErrorKind;

/// The longest wait for an answer after the server's timeout.
const MARGIN: Duration = Duration::from_millis(500);

/// A connection: either the store's own, which has its settings and a prepared statement, or one
/// that may be given to another client after each transaction.
///
/// Invariant: nothing is set or prepared on a connection that may be given to another client,
/// because the server has not confirmed the start-up options of the store.
#[derive(Debug)]
pub(super) struct PostgresSession {
    client: Client,
    /// The prepared statement of a batch; `None` if the text is sent each time.
    acquire: Option<Statement>,
    /// The begin of each transaction, and the turn to send one; `None` on a connection of its own.
    begin: Option<Mutex<String>>,
    patience: Duration,
    /// Whether the connection must be replaced.
    given_up: AtomicBool,
    /// Whether another connection can replace it.
    replaceable: bool,
}

impl Session for PostgresSession {
    fn is_closed(&self) -> bool {
        self.given_up.load(Ordering::Relaxed) || self.client.is_closed()
    }
}

impl PostgresSession {
    /// Sets a connection up.
    pub(super) async fn set_up(client: Client, options: &PostgresOptions) -> Result<PostgresSession, Fault> {
        let shared = PostgresSession::shared(client, options, true);
        if options.pooler {
            return Ok(shared);
        }
        let acquire = prepare(&shared.client).await?;
        Ok(PostgresSession { acquire, begin: None, ..shared })
    }

    /// Returns a connection on which nothing is set, and which another one can replace or not.
    pub(super) fn shared(client: Client, options: &PostgresOptions, replaceable: bool) -> PostgresSession {
        let patience = options.statement_timeout.saturating_add(MARGIN);
        let (begin, given_up) = (Some(Mutex::new(options.begin())), AtomicBool::new(false));
        PostgresSession { client, acquire: None, begin, patience, given_up, replaceable }
    }

    /// Decides a batch. The text of a batch that the server undid is sent once.
    pub(super) async fn decide(&self, arrays: &Arrays) -> Result<Vec<Row>, Fault> {
        let parameters = arrays.parameters();
        self.within(async {
            if let Some(statement) = &self.acquire {
                let parameters: Vec<_> = parameters.iter().map(|(parameter, _)| *parameter).collect();
                match self.client.query(statement, &parameters).await {
                    Err(error) if fault::is_undone(&error) => self.note(&error),
                    result => return result,
                }
            }
            match self.send(ACQUIRE, &parameters).await {
                Err(error) if fault::is_undone(&error) => self.send(ACQUIRE, &parameters).await,
                result => result,
            }
        })
        .await
    }

    /// Deletes the full rows of the page after a key.
    pub(super) async fn clean_up(&self, after: &[u8], grace_us: i64) -> Result<Vec<Row>, Fault> {
        let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&after, Type::BYTEA), (&grace_us, Type::INT8)];
        self.within(self.send(CLEAN_UP, &parameters)).await
    }

    /// Takes a token of a bucket that is refilled at intervals.
    pub(super) async fn take_token(&self, id: &str) -> Result<Vec<Row>, Fault> {
        self.within(self.send("SELECT request_token($1)", &[(&id, Type::TEXT)])).await
    }

    /// Runs the statements of a migration as one transaction, then gives the connection up: the
    /// next one prepares the statement of a batch.
    pub(super) async fn run(&self, statements: &str) -> Result<(), Fault> {
        let turn = self.turn().await;
        self.client.batch_execute(statements).await.map_err(fault::of_statement)?;
        drop(turn);
        self.give_up();
        Ok(())
    }

    /// Sends the text of a statement, in a transaction with the settings of the store.
    async fn send(&self, text: &str, parameters: &[(&(dyn ToSql + Sync), Type)]) -> Result<Vec<Row>, Error> {
        let asked = self.client.query_typed(text, parameters);
        let Some(begin) = self.turn().await else { return asked.await };
        // One round trip: each message is sent at the first poll, in this order.
        let (begun, rows, ended) =
            tokio::join!(self.client.batch_execute(&begin), asked, self.client.batch_execute("COMMIT"));
        begun?;
        let rows = rows?;
        ended.map(|()| rows)
    }

    /// Waits until no other transaction is under way on a connection without settings.
    async fn turn(&self) -> Option<MutexGuard<'_, String>> {
        match &self.begin {
            Some(begin) => Some(begin.lock().await),
            None => None,
        }
    }

    /// Waits for an answer. Gives the connection up if the server hangs.
    async fn within(&self, answer: impl Future<Output = Result<Vec<Row>, Error>>) -> Result<Vec<Row>, Fault> {
        match timeout(self.patience, answer).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                self.note(&error);
                Err(fault::of_statement(error))
            }
            Err(_) => {
                self.give_up();
                Err(Fault::new(StoreErrorKind::Unknown, format!("no answer within {:?}", self.patience)))
            }
        }
    }

    /// Gives the connection up if an error says that it must be replaced.
    fn note(&self, error: &Error) {
        if fault::ends_session(error) {
            self.give_up();
        }
    }

    /// Gives the connection up: the next caller makes a new one.
    fn give_up(&self) {
        self.given_up.store(self.replaceable, Ordering::Relaxed);
    }
}

/// Prepares the statement of a batch, on a connection of the store's own; `None` before the
/// migration.
async fn prepare(client: &Client) -> Result<Option<Statement>, Fault> {
    let own = format!("SELECT current_setting('{OWN}', true) IS NOT DISTINCT FROM 'on'");
    let own = client.query_typed(&own, &[]).await.map_err(fault::of_connect)?;
    if !own.first().is_some_and(|row| row.try_get(0).unwrap_or(false)) {
        return Err(fault::shared("the server has not got the start-up options of the store"));
    }
    match client.prepare_typed(ACQUIRE, &types()).await {
        Ok(statement) => Ok(Some(statement)),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_FUNCTION) => Ok(None),
        Err(error) => Err(fault::of_connect(error)),
    }
}
