//! A connection that is ready for calls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

use super::batch::Arrays;
use super::fault;
use super::options::PostgresOptions;
use super::statement::{ACQUIRE, CLEAN_UP, types};
use crate::sql::fault::Fault;
use crate::sql::sessions::Session;
use crate::store::error::StoreErrorKind;

/// The longest wait for an answer after the server's timeout.
const MARGIN: Duration = Duration::from_millis(500);

/// A connection, and its prepared statement.
#[derive(Debug)]
pub(super) struct PostgresSession {
    client: Client,
    /// The prepared statement of a batch; `None` if the text is sent each time.
    acquire: Option<Statement>,
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
        let mut acquire = None;
        if !options.pooler {
            client.batch_execute(&options.settings()).await.map_err(fault::of_connect)?;
            acquire = prepare(&client).await?;
        }
        let patience = options.statement_timeout.saturating_add(MARGIN);
        Ok(PostgresSession { client, acquire, patience, given_up: AtomicBool::new(false), replaceable: true })
    }

    /// Decides a batch. A batch that lost a conflict is sent once more.
    pub(super) async fn decide(&self, arrays: &Arrays) -> Result<Vec<Row>, Fault> {
        self.within(async {
            match self.send(arrays).await {
                Err(error) if fault::is_conflict(&error) => self.send(arrays).await,
                result => result,
            }
        })
        .await
    }

    /// Deletes the full rows of the page after a key.
    pub(super) async fn clean_up(&self, after: &[u8], grace_us: i64) -> Result<Vec<Row>, Fault> {
        let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&after, Type::BYTEA), (&grace_us, Type::INT8)];
        self.within(self.client.query_typed(CLEAN_UP, &parameters)).await
    }

    /// Takes a token of a bucket that is refilled at intervals.
    pub(super) async fn take_token(&self, id: &str) -> Result<Vec<Row>, Fault> {
        self.within(self.client.query_typed("SELECT request_token($1)", &[(&id, Type::TEXT)])).await
    }

    /// Runs the statements of a migration as one transaction, then gives the connection up: the
    /// next one prepares the statement of a batch.
    pub(super) async fn run(&self, statements: &str) -> Result<(), Fault> {
        self.client.batch_execute(statements).await.map_err(fault::of_statement)?;
        self.give_up();
        Ok(())
    }

    async fn send(&self, arrays: &Arrays) -> Result<Vec<Row>, Error> {
        let parameters = arrays.parameters();
        match &self.acquire {
            Some(statement) => {
                let parameters: Vec<_> = parameters.into_iter().map(|(parameter, _)| parameter).collect();
                self.client.query(statement, &parameters).await
            }
            None => self.client.query_typed(&ACQUIRE, &parameters).await,
        }
    }

    /// Waits for an answer. Gives the connection up if the server hangs.
    async fn within(&self, answer: impl Future<Output = Result<Vec<Row>, Error>>) -> Result<Vec<Row>, Fault> {
        match timeout(self.patience, answer).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                if fault::ends_session(&error) {
                    self.give_up();
                }
                Err(fault::of_statement(error))
            }
            Err(_) => {
                self.give_up();
                Err(Fault::new(StoreErrorKind::Unknown, format!("no answer within {:?}", self.patience)))
            }
        }
    }

    /// Returns the connection as one without a replacement: it is used until it ends.
    pub(super) fn only(self) -> PostgresSession {
        PostgresSession { replaceable: false, ..self }
    }

    /// Gives the connection up: the next caller makes a new one.
    fn give_up(&self) {
        self.given_up.store(self.replaceable, Ordering::Relaxed);
    }
}

/// Prepares the statement of a batch; `None` before the migration.
async fn prepare(client: &Client) -> Result<Option<Statement>, Fault> {
    match client.prepare_typed(&ACQUIRE, &types()).await {
        Ok(statement) => Ok(Some(statement)),
        Err(error) if error.code() == Some(&tokio_postgres::error::SqlState::UNDEFINED_TABLE) => Ok(None),
        Err(error) => Err(fault::of_connect(error)),
    }
}
