//! A barrier that lets threads go when all are running, each on a processor of its own.
//!
//! On a busy machine two threads may take turns on one processor, some ms each. From an ordinary
//! barrier each would make all its decisions in its own turn, never in the other's way, and look
//! fast.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The time within which a running thread answers. A turn takes 100 times as long.
const AT_ONCE: Duration = Duration::from_micros(10);

/// The longest wait for other threads, which may have panicked or lack a processor.
const PATIENCE: Duration = Duration::from_secs(30);

/// The value of [`calls`](StartLine::calls) at which the threads go.
const GO: usize = usize::MAX;

/// A line at which thread 0 calls and the others answer, until all have answered at once.
pub(crate) struct StartLine {
    others: usize,
    calls: AtomicUsize,
    answers: AtomicUsize,
}

impl StartLine {
    pub(crate) fn new(threads: usize) -> StartLine {
        StartLine { others: threads - 1, calls: AtomicUsize::new(0), answers: AtomicUsize::new(0) }
    }

    /// Returns in all threads at once.
    pub(crate) fn wait(&self, thread: usize) {
        if thread == 0 { self.call() } else { self.answer() }
    }

    fn call(&self) {
        let begun = Instant::now();
        for call in 1.. {
            let called = Instant::now();
            self.calls.store(call, Ordering::Release);
            while self.answers.load(Ordering::Acquire) < self.others * call {
                spin(begun);
            }
            if called.elapsed() < AT_ONCE {
                break;
            }
            // The first call may have waited for a late thread. After that, a thread lacks a
            // processor: a thread that wakes up is put on an idle one, if there is any.
            if call > 1 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        self.calls.store(GO, Ordering::Release);
    }

    fn answer(&self) {
        let begun = Instant::now();
        let mut answered = 0;
        loop {
            match self.calls.load(Ordering::Acquire) {
                GO => return,
                call if call > answered => {
                    self.answers.fetch_add(1, Ordering::AcqRel);
                    answered = call;
                }
                _ => spin(begun),
            }
        }
    }
}

fn spin(since: Instant) {
    assert!(since.elapsed() < PATIENCE, "the other threads panicked, or have no processor");
    spin_loop();
}
