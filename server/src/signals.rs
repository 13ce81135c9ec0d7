//! The signals that stop the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals to stop: Ctrl-C, or the request of a supervisor.
pub(crate) struct Stops {
    interrupt: Signal,
    terminate: Signal,
}

impl Stops {
    /// Catches the signals, which from now on do not end the process by themselves.
    pub(crate) fn new() -> io::Result<Stops> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Stops { interrupt, terminate })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! { _ = self.interrupt.recv() => (), _ = self.terminate.recv() => () }
    }
}
