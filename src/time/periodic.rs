//! A thread that runs a task again and again, after a pause each.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The handle of a thread that waits for an interval, runs a task, and so on.
///
/// The thread ends when the task returns false or panics, or when the handle is dropped. The drop
/// waits for a run under way, unless the task itself drops the handle.
#[derive(Debug)]
pub(crate) struct PeriodicThread {
    /// Whether the handle is dropped.
    dropped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PeriodicThread {
    /// Runs `task` every `interval` until it returns false, or this handle is dropped.
    pub(crate) fn every(
        name: &str,
        interval: Duration,
        mut task: impl FnMut() -> bool + Send + 'static,
    ) -> io::Result<PeriodicThread> {
        let dropped = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&dropped);
        let thread = thread::Builder::new()
            .name(name.into())
            .spawn(move || while paused(interval, &ended) && task() {})?;
        Ok(PeriodicThread { dropped, thread: Some(thread) })
    }

    pub(crate) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

/// Parks the thread for an interval. Returns false, and earlier, if it is to end.
fn paused(interval: Duration, ended: &AtomicBool) -> bool {
    let begun = Instant::now();
    // A parked thread may wake before its time.
    loop {
        if ended.load(Ordering::Relaxed) {
            return false;
        }
        match interval.saturating_sub(begun.elapsed()) {
            Duration::ZERO => return true,
            left => thread::park_timeout(left),
        }
    }
}

/// Wakes the thread and joins it. A task that is under way is finished first.
impl Drop for PeriodicThread {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A task may own the last handle to its own thread.
            if thread.thread().id() != thread::current().id() {
                thread.thread().unpark();
                // A panic of the task was reported by the thread itself.
                let _ = thread.join();
            }
        }
    }
}
