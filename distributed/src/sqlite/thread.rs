//! The thread that owns the connection.

use rusqlite::Connection;
use tokio::sync::mpsc::Receiver;

use super::decide::{Acquire, decide};

/// The most calls of a transaction.
const BATCH: usize = 256;

/// A message to the thread.
pub(super) enum Call {
    Acquire(Acquire),
    /// Anything else: it runs between two transactions.
    Run(Box<dyn FnOnce(&Connection) + Send>),
}

/// Answers calls until the store is dropped and no call is left. Waiting calls share a transaction.
pub(super) fn run(connection: &Connection, mut calls: Receiver<Call>) {
    let mut taken = Vec::new();
    let mut batch = Vec::new();
    while calls.blocking_recv_many(&mut taken, BATCH) > 0 {
        for call in taken.drain(..) {
            match call {
                Call::Acquire(acquire) => batch.push(acquire),
                Call::Run(job) => {
                    decide(connection, &mut batch);
                    job(connection);
                }
            }
        }
        decide(connection, &mut batch);
    }
}
