//! Signals of the process.

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

/// The signal SIGHUP.
pub(crate) struct Hangups(Signal);

impl Hangups {
    /// Catches the signal, which from now on does not end the process by itself.
    pub(crate) fn new() -> io::Result<Hangups> {
        signal(SignalKind::hangup()).map(Hangups)
    }

    pub(crate) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }
}
