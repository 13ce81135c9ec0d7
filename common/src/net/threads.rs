//! Threads that each drive their own connections: a runtime for each core.
//!
//! The thread of a client's connection also drives the upstream's connections that it opens, so
//! most requests wake no other thread. A connection of HTTP/2 that many clients share, and an idle
//! one of another thread, are driven by the thread that opened them.

use std::cell::Cell;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use tokio::runtime::{Builder, Handle};

thread_local! {
    /// The index of this thread among those that drive connections.
    static INDEX: Cell<usize> = const { Cell::new(0) };
}

/// Returns the number of threads that drive connections: that of the cores of this process.
pub fn count() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the index of this thread among them. Any other thread has that of the first.
pub fn index() -> usize {
    INDEX.get()
}

/// The threads that drive connections.
///
/// A new connection goes to the thread with the fewest that are open. Among equals they take turns.
/// So a client that keeps some of its connections does not choose the neighbours of the others.
pub struct Threads {
    all: Vec<Thread>,
    /// The number of connections so far, by which they take turns.
    next: AtomicUsize,
}

struct Thread {
    runtime: Handle,
    open: Arc<AtomicUsize>,
}

/// A place of a connection at its thread. A drop gives it back.
pub struct Seat(Arc<AtomicUsize>);

impl Threads {
    /// Starts the threads, which run until the process ends.
    pub fn start() -> io::Result<Threads> {
        let start = |index| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
                INDEX.set(index);
                runtime.block_on(pending::<()>());
            })?;
            Ok(Thread { runtime: handle, open: Arc::default() })
        };
        Ok(Threads { all: (0..count()).map(start).collect::<io::Result<_>>()?, next: AtomicUsize::new(0) })
    }

    /// Gives a connection to a thread. It has its seat until the value that it gets is dropped.
    pub fn spawn<F>(&self, connection: impl FnOnce(Seat) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let from = self.next.fetch_add(1, Relaxed) % self.all.len();
        let in_turn = self.all[from..].iter().chain(&self.all[..from]);
        // Relaxed: the accept loop alone takes seats. One that comes back meanwhile is seen later.
        let least = in_turn.min_by_key(|thread| thread.open.load(Relaxed));
        let Some(thread) = least else { return };
        thread.open.fetch_add(1, Relaxed);
        thread.runtime.spawn(connection(Seat(thread.open.clone())));
    }

    /// Waits until each thread has done the step of work that it is in. A client may have its whole
    /// answer while the step that wrote it still holds the request.
    pub async fn step(&self) {
        let steps = Vec::from_iter(self.all.iter().map(|thread| thread.runtime.spawn(async {})));
        for step in steps {
            // An empty step does not panic.
            let _ = step.await;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    use super::*;

    /// Returns the thread of a new connection, and its seat.
    fn open(threads: &Threads) -> (usize, Seat) {
        let (told, thread) = mpsc::channel();
        threads.spawn(|seat| async move { drop(told.send((index(), seat))) });
        thread.recv().expect("the thread runs")
    }

    /// Kept connections between short ones took one thread by their numbers.
    #[test]
    fn kept_connections_are_spread_whatever_comes_between_them() {
        let threads = Threads::start().expect("threads");
        let all = threads.all.len();
        for short in 0..3 {
            let mut kept = vec![0; all];
            let seats = Vec::from_iter((0..4 * all).map(|_| {
                let (thread, seat) = open(&threads);
                kept[thread] += 1;
                (0..short).for_each(|_| drop(open(&threads)));
                seat
            }));
            assert_eq!(kept, vec![4; all], "{short} short ones between them");
            drop(seats);
        }
    }

    /// The thread stands where the write of an answer has returned, and its request is still held.
    #[tokio::test]
    async fn a_request_whose_answer_is_written_is_over_after_the_step() {
        let (threads, request) = (Threads::start().expect("threads"), Arc::new(()));
        let (told, written) = mpsc::channel();
        let (goes_on, waits) = mpsc::channel::<()>();
        let held = request.clone();
        threads.spawn(|_| async move {
            let _ = told.send(());
            let _ = waits.recv();
            drop(held);
        });
        written.recv().expect("the thread runs");
        let mut step = pin!(threads.step());
        let is_over = step.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert_eq!((is_over, Arc::strong_count(&request)), (false, 2));
        drop(goes_on);
        step.await;
        assert_eq!(Arc::strong_count(&request), 1);
    }
}
