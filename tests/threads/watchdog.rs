//! A timer that ends a hanging process, so that a hang is a failure.

use std::io::{self, Write};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Aborts the process with a message, unless it is dropped in time. The time should be generous: it
/// is no verdict on speed.
#[derive(Debug)]
pub struct Watchdog {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches `what` for `seconds` seconds.
    #[must_use]
    pub fn of(what: &str, seconds: u64) -> Watchdog {
        let over = Arc::new(AtomicBool::new(false));
        let until = Instant::now() + Duration::from_secs(seconds);
        let (watched, what) = (Arc::clone(&over), what.to_owned());
        let thread = thread::spawn(move || {
            while !watched.load(Relaxed) {
                let Some(left) = until.checked_duration_since(Instant::now()) else {
                    // `eprintln` would be captured until the end of the test.
                    let _ = writeln!(io::stderr(), "{what} hangs: it was not over after {seconds} s");
                    process::abort();
                };
                thread::park_timeout(left);
            }
        });
        Watchdog { over, thread: Some(thread) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().expect("it does not panic");
        }
    }
}
