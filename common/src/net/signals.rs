//! The signals to stop.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use crate::output::say;

/// Catches a signal. From then on it does not end the process by itself.
pub fn caught(kind: SignalKind) -> Result<Signal, String> {
    signal(kind).map_err(|error| format!("cannot listen for signals: {error}"))
}

/// The signals to stop: Ctrl-C, or the request of a supervisor.
pub struct Stops {
    interrupt: Signal,
    terminate: Signal,
}

impl Stops {
    pub fn caught() -> Result<Stops, String> {
        Ok(Stops { interrupt: caught(SignalKind::interrupt())?, terminate: caught(SignalKind::terminate())? })
    }

    /// Returns at the next signal.
    pub async fn next(&mut self) {
        tokio::select! { _ = self.interrupt.recv() => (), _ = self.terminate.recv() => () }
    }

    /// Serves until the first stop signal, and drains. A second signal ends that at once, and the
    /// result is `None` then.
    ///
    /// `begin` returns the time from the signal to the `stop`.
    pub async fn end<T>(
        mut self,
        serving: impl Future<Output = T>,
        begin: impl FnOnce() -> Duration,
        stop: impl FnOnce(),
    ) -> Option<T> {
        let signals = async {
            self.next().await;
            let lame_duck = begin();
            if lame_duck > Duration::ZERO {
                say(format_args!("accepting for another {}", humantime::format_duration(lame_duck)));
            }
            tokio::select! {
                () = sleep(lame_duck) => (),
                () = self.next() => return,
            }
            stop();
            self.next().await;
        };
        tokio::select! {
            outcome = serving => Some(outcome),
            () = signals => None,
        }
    }
}
