//! The common part of the examples: the listening socket, and the end of the process.

use std::io::{self, Write};
use std::time::Duration;

use tokio::net::TcpListener;

/// Listens at the address of the first argument, or on port 8080 of this host, and prints a line
/// with the URL. Port 0 is a free one.
///
/// # Errors
///
/// The argument is no address, or the address is taken.
pub async fn listen() -> io::Result<TcpListener> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&address).await?;
    // The reader of the pipe may have closed it, where `println!` would panic.
    let _ = writeln!(io::stdout(), "listening on http://{}", listener.local_addr()?);
    Ok(listener)
}

/// The time that requests under way may take to finish after a signal to stop.
const DRAIN: Duration = Duration::from_secs(10);

/// Catches Ctrl-C and the signal of a supervisor from the call on, and returns the future of the
/// first. Ten seconds later it ends the process, if a client still keeps a request open.
pub fn stop() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let stopped = {
        use tokio::signal::unix::{SignalKind, signal};
        // Not in the future: a signal before its first poll would end the process at once.
        let caught = |kind| {
            let signals = signal(kind);
            async {
                match signals {
                    Ok(mut signals) => drop(signals.recv().await),
                    Err(_) => std::future::pending().await,
                }
            }
        };
        let (interrupt, terminate) = (caught(SignalKind::interrupt()), caught(SignalKind::terminate()));
        async {
            tokio::select! { () = interrupt => (), () = terminate => () }
        }
    };
    #[cfg(not(unix))]
    let stopped = async { drop(tokio::signal::ctrl_c().await) };
    async {
        stopped.await;
        tokio::spawn(async {
            tokio::time::sleep(DRAIN).await;
            std::process::exit(0);
        });
    }
}

// The programs of pages run as tests here: this package has each crate that they need.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/recipes.md")]
mod recipes {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/cheatsheet.md")]
mod cheatsheet {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/faq.md")]
mod faq {}

#[cfg(doctest)]
#[doc = include_str!("../../../http/README.md")]
mod readme_of_http {}

#[cfg(doctest)]
#[doc = include_str!("../../../http/docs/from-tower-governor.md")]
mod from_tower_governor {}
