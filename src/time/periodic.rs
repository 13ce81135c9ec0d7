//! A thread that runs a task again and again, after a pause each.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The handle of a thread that waits for an interval, runs a task, and so on.
///
/// The thread ends when the task returns false or panics, or when the handle is dropped. The drop
/// waits for a run under way, unless the task itself drops the handle.
#[derive(Debug)]
pub(crate) struct PeriodicThread {
    /// Sender that is dropped first: the closed channel wakes the thread.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PeriodicThread {
    /// Runs `task` every `interval` until it returns false, or this handle is dropped.
    pub(crate) fn every(
        name: &str,
        interval: Duration,
        mut task: impl FnMut() -> bool + Send + 'static,
    ) -> io::Result<PeriodicThread> {
        let (alive, ended) = channel();
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) && task() {}
        })?;
        Ok(PeriodicThread { alive: Some(alive), thread: Some(thread) })
    }

    pub(crate) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

/// Wakes the thread and joins it. A task that is under way is finished first.
impl Drop for PeriodicThread {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            // A task may own the last handle to its own thread.
            if thread.thread().id() != thread::current().id() {
                // A panic of the task was reported by the thread itself.
                let _ = thread.join();
            }
        }
    }
}
