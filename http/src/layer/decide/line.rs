//! The line of requests that wait for their tokens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::layer::limit::limiter::Sleep;
use crate::request::client_ip::ClientIp;
use crate::request::key::{Head, KeyFrom, hash_of};

/// The most requests that wait, unless it is set.
const MAX_WAITING: usize = 1_024;
/// The part of them that one key may have, unless it is set, and its least.
const KEYS: usize = 8;
const LEAST_OF_A_KEY: usize = 16;
/// Sets the hash of an owner apart from that of the same key.
const OWNER: u64 = 0x9E37_79B9_7F4A_7C15;

/// A function that finds the hash of the owner of a request.
pub(crate) type OwnerOf = Arc<dyn Fn(Head<'_>) -> Option<u64> + Send + Sync>;

/// The line of a [`DelayLayer`](crate::DelayLayer): the longest wait, and the most requests
/// that wait.
#[derive(Clone)]
pub(crate) struct WaitingLine {
    pub(crate) max_delay: Duration,
    pub(crate) max_waiting: usize,
    pub(crate) of_a_key: Option<usize>,
    pub(crate) owner: OwnerOf,
    pub(crate) sleep: Sleep,
}

/// The requests of a layer that wait: all, and those of each key and each owner by its hash.
#[derive(Default)]
pub(crate) struct Waiters {
    pub(crate) all: usize,
    by_hash: HashMap<u64, usize>,
}

impl WaitingLine {
    pub(crate) fn new(max_delay: Duration, sleep: Sleep) -> WaitingLine {
        let owner = owner_of(ClientIp::peer());
        WaitingLine { max_delay, max_waiting: MAX_WAITING, of_a_key: None, owner, sleep }
    }

    /// Enters the line with a request with these hashes of keys, unless the line is full for it.
    ///
    /// An owner that holds fewer places than are free gets one more. So one owner holds half of the
    /// line at most, and a newcomer finds half of the rest.
    pub(crate) fn enter(
        &self,
        waiters: &Arc<Mutex<Waiters>>,
        head: Head<'_>,
        mut keys: Vec<u64>,
    ) -> Option<InLine> {
        let owner = (self.owner)(head);
        let of_a_key = self.of_a_key.unwrap_or_else(|| (self.max_waiting / KEYS).max(LEAST_OF_A_KEY));
        let mut now = lock(waiters);
        let free = self.max_waiting.saturating_sub(now.all);
        let held = |hash| now.by_hash.get(hash).copied().unwrap_or(0);
        let has_room = keys.iter().all(|key| held(key) < of_a_key) && owner.iter().all(|it| held(it) < free);
        if free == 0 || !has_room {
            return None;
        }
        keys.extend(owner);
        now.all += 1;
        keys.iter().for_each(|key| *now.by_hash.entry(*key).or_default() += 1);
        Some(InLine { waiters: waiters.clone(), keys })
    }
}

/// Returns the function that finds an owner by a key.
pub(crate) fn owner_of(key: impl KeyFrom + 'static) -> OwnerOf {
    Arc::new(move |head| Some(hash_of(&key.key_from(head)?) ^ OWNER))
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
            match now.by_hash.get_mut(key) {
                Some(waiting) if *waiting > 1 => *waiting -= 1,
                _ => _ = now.by_hash.remove(key),
            }
        }
    }
}
