//! Threads that each drive their own connections: a runtime for each core.
//!
//! The thread of a client's connection also drives the upstream's connections that it opens, so
//! most requests wake no other thread. A connection of HTTP/2 that many clients share, and an idle
//! one of another thread, are driven by the thread that opened them.

use std::cell::Cell;
use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use tokio::runtime::{Builder, Handle};

thread_local! {
    /// The index of this thread among those that drive connections.
    static INDEX: Cell<usize> = const { Cell::new(0) };
}

/// Returns the number of threads that drive connections: that of the cores of this process.
pub(crate) fn count() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the index of this thread among them. Any other thread has that of the first.
pub(crate) fn index() -> usize {
    INDEX.get()
}

/// The threads that drive connections, by the handles of their runtimes.
pub(crate) struct Threads {
    all: Vec<Handle>,
    /// The number of connections so far, by which they take turns.
    next: AtomicUsize,
}

impl Threads {
    /// Starts the threads, which run until the process ends.
    pub(crate) fn start() -> io::Result<Threads> {
        let start = |index| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
                INDEX.set(index);
                runtime.block_on(pending::<()>());
            })?;
            Ok(handle)
        };
        Ok(Threads { all: (0..count()).map(start).collect::<io::Result<_>>()?, next: AtomicUsize::new(0) })
    }

    /// Gives a connection to the next thread.
    pub(crate) fn spawn(&self, connection: impl Future<Output = ()> + Send + 'static) {
        self.all[self.next.fetch_add(1, Relaxed) % self.all.len()].spawn(connection);
    }
}
