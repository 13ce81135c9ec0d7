//! Signals of the process.

use std::io;

/// The signals to stop: Ctrl-C, or the request of a supervisor.
pub(crate) struct Stops {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(windows)]
    interrupt: tokio::signal::windows::CtrlC,
    #[cfg(windows)]
    terminate: tokio::signal::windows::CtrlClose,
}

impl Stops {
    /// Catches the signals, which from now on do not end the process by themselves.
    pub(crate) fn new() -> io::Result<Stops> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            Ok(Stops { interrupt, terminate })
        }
        #[cfg(windows)]
        {
            use tokio::signal::windows::{ctrl_c, ctrl_close};
            Ok(Stops { interrupt: ctrl_c()?, terminate: ctrl_close()? })
        }
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! { _ = self.interrupt.recv() => (), _ = self.terminate.recv() => () }
    }
}

/// The signal SIGHUP, on systems that have it.
pub(crate) struct Hangups(#[cfg(unix)] tokio::signal::unix::Signal);

impl Hangups {
    /// Catches the signal, which from now on does not end the process by itself.
    #[cfg(unix)]
    pub(crate) fn new() -> io::Result<Hangups> {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::hangup()).map(Hangups)
    }

    #[cfg(unix)]
    pub(crate) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }

    #[cfg(not(unix))]
    pub(crate) fn new() -> io::Result<Hangups> {
        Ok(Hangups())
    }

    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) {
        std::future::pending().await
    }
}
