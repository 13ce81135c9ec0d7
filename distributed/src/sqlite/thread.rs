//! The thread that owns the connection.

use rusqlite::Connection;
use tokio::sync::mpsc::Receiver;

use super::decide::{Acquire, decide};

/// The most calls of a transaction.
const BATCH: usize = 256;

/// A message to the thread.
pub(super) enum Message {
    Acquire(Acquire),
    /// Anything else: it runs between two transactions.
    Run(Box<dyn FnOnce(&Connection) + Send>),
}

/// Answers calls until the store is dropped and no call is left. Waiting calls share a transaction.
pub(super) fn run(connection: &Connection, mut messages: Receiver<Message>) {
    let mut taken = Vec::new();
    let mut batch = Vec::new();
    while messages.blocking_recv_many(&mut taken, BATCH) > 0 {
        for message in taken.drain(..) {
            match message {
                Message::Acquire(acquire) => batch.push(acquire),
                Message::Run(job) => {
                    decide(connection, &mut batch);
                    job(connection);
                }
            }
        }
        decide(connection, &mut batch);
    }
}
