//! What the examples have in common: where they listen, and when they stop.

use std::io::{self, Write};
use std::time::Duration;

use tokio::net::TcpListener;

/// Listens where the first argument says, or on port 8080 of this host (0 is a free one), and prints a line with the URL.
///
/// # Errors
///
/// That is no address, or it is taken.
pub async fn listen() -> io::Result<TcpListener> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&address).await?;
    // Whoever reads it may go away, where `println!` would panic.
    let _ = writeln!(io::stdout(), "listening on http://{}", listener.local_addr()?);
    Ok(listener)
}

/// How long requests under way may take to finish once a signal says stop.
const DRAIN: Duration = Duration::from_secs(10);

/// Resolves at Ctrl-C, or when a supervisor asks. It ends the process if that is not done by itself ten seconds later, as
/// when a client keeps a request open.
pub async fn stop() {
    #[cfg(unix)]
    let terminated = async {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => drop(terminate.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending();
    tokio::select! { _ = tokio::signal::ctrl_c() => (), () = terminated => () }
    tokio::spawn(async {
        tokio::time::sleep(DRAIN).await;
        std::process::exit(0);
    });
}
