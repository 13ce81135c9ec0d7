//! A connection that is ready for calls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use super::fault;
use super::options::PostgresOptions;
use crate::sql::fault::Fault;
use crate::sql::sessions::Session;
use crate::store::error::StoreErrorKind;

/// The longest wait for an answer after the server's timeout.
const MARGIN: Duration = Duration::from_millis(500);

/// A connection.
///
/// Invariant: nothing is set or prepared on it, because each message is one transaction with its
/// own settings. So a pooler may give the connection to another client in between.
#[derive(Debug)]
pub(super) struct PostgresSession {
    client: Client,
    settings: String,
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
    /// Returns a connection, and whether another one can replace it: else it is used until it ends.
    pub(super) fn new(client: Client, options: &PostgresOptions, replaceable: bool) -> PostgresSession {
        let patience = options.statement_timeout.saturating_add(MARGIN);
        let (settings, given_up) = (options.settings(), AtomicBool::new(false));
        PostgresSession { client, settings, patience, given_up, replaceable }
    }

    /// Runs a statement, and returns its rows. One that lost a conflict is sent once more. Gives
    /// the connection up if the server hangs.
    pub(super) async fn ask(&self, statement: &str) -> Result<Vec<SimpleQueryRow>, Fault> {
        let text = format!("{}{statement}", self.settings);
        let answer = async {
            match self.client.simple_query(&text).await {
                Err(error) if fault::is_conflict(&error) => self.client.simple_query(&text).await,
                result => result,
            }
        };
        match timeout(self.patience, answer).await {
            Ok(Ok(messages)) => Ok(messages.into_iter().filter_map(row).collect()),
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

    /// Runs the statements of a migration as one transaction.
    pub(super) async fn run(&self, statements: &str) -> Result<(), Fault> {
        self.client.batch_execute(statements).await.map_err(fault::of_statement)
    }

    /// Gives the connection up: the next caller makes a new one.
    fn give_up(&self) {
        self.given_up.store(self.replaceable, Ordering::Relaxed);
    }
}

fn row(message: SimpleQueryMessage) -> Option<SimpleQueryRow> {
    match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    }
}
