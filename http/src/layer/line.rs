//! The line of requests that wait for their tokens.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most requests that wait, unless it is set.
const MAX_WAITING: usize = 1_024;
/// The part of them that one key may have, unless it is set, and its least.
const KEYS: usize = 8;
const LEAST_OF_A_KEY: usize = 16;

pub(crate) type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A function that makes timers.
pub(crate) type Sleep = Arc<dyn Fn(Duration) -> Timer + Send + Sync>;

/// The line of a [`DelayLayer`](super::delay::DelayLayer): the longest wait, and the most requests
/// that wait.
#[derive(Clone)]
pub(crate) struct WaitingLine {
    pub(crate) max_delay: Duration,
    pub(super) max_waiting: usize,
    pub(super) of_a_key: Option<usize>,
    pub(crate) sleep: Sleep,
}

/// The requests of a layer that wait: all, and those of each key by its hash.
#[derive(Default)]
pub(crate) struct Waiters {
    pub(crate) all: usize,
    by_key: HashMap<u64, usize>,
}

impl WaitingLine {
    pub(super) fn new(max_delay: Duration, sleep: Sleep) -> WaitingLine {
        WaitingLine { max_delay, max_waiting: MAX_WAITING, of_a_key: None, sleep }
    }

    /// Enters the line of a request with these hashes of keys, unless the line is full.
    pub(crate) fn enter(&self, waiters: &Arc<Mutex<Waiters>>, keys: Vec<u64>) -> Option<InLine> {
        let of_a_key = self.of_a_key.unwrap_or_else(|| (self.max_waiting / KEYS).max(LEAST_OF_A_KEY));
        let mut now = lock(waiters);
        let has_room = |key| now.by_key.get(key).copied().unwrap_or(0) < of_a_key;
        if now.all >= self.max_waiting || !keys.iter().all(has_room) {
            return None;
        }
        now.all += 1;
        keys.iter().for_each(|key| *now.by_key.entry(*key).or_default() += 1);
        Some(InLine { waiters: waiters.clone(), keys })
    }
}

pub(crate) fn lock(waiters: &Mutex<Waiters>) -> MutexGuard<'_, Waiters> {
    waiters.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One request of those that wait. A drop leaves the line.
pub(crate) struct InLine {
    waiters: Arc<Mutex<Waiters>>,
    keys: Vec<u64>,
}

impl Drop for InLine {
    fn drop(&mut self) {
        let mut now = lock(&self.waiters);
        now.all -= 1;
        for key in &self.keys {
            match now.by_key.get_mut(key) {
                Some(waiting) if *waiting > 1 => *waiting -= 1,
                _ => _ = now.by_key.remove(key),
            }
        }
    }
}
