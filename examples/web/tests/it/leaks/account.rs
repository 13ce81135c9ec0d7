// promise: layer
//! The account outside of the layer.

use super::*;

/// The account outside of the layer.
#[derive(Default)]
pub(super) struct Account {
    pub(super) keys: [KeyAccount; KEYS],
    pub(super) refused: [u64; KEYS],
    pub(super) requests: u64,
    /// Milliseconds, in each of which a key earns a token.
    pub(super) now: i64,
    /// Cancelled requests that left a line, and those whose tokens were earned.
    pub(super) left: u64,
    pub(super) kept: u64,
    pub(super) waited: u64,
    pub(super) panics: u64,
}

/// The tokens that a key has taken, and its line.
///
/// A place in line is a stretch of `ESTIMATE` tokens, and is earned at its end. A caller that
/// leaves moves all behind it up by a place. The last place goes back to the bucket if no tokens
/// were taken behind it, and is kept for the next caller otherwise. Tokens that come back move all
/// places up.
#[derive(Default)]
pub(super) struct KeyAccount {
    pub(super) taken: i64,
    /// The ends of the places in order: first those of the callers, then those left over.
    pub(super) places: VecDeque<i64>,
    pub(super) callers: VecDeque<u64>,
    /// Whether tokens from the end of the last place on can go back.
    pub(super) returns: bool,
}

impl KeyAccount {
    /// Serves the callers whose tokens are earned, and gives back the tokens that are left over.
    pub(super) fn serve(&mut self, now: i64) {
        let mut until = self.taken;
        self.returns |= self.places.back().is_some_and(|last| *last > until);
        for place in self.places.iter_mut().rev() {
            *place = (*place).min(until);
            until = *place - ESTIMATE;
        }
        while !self.callers.is_empty() && self.places[0] <= now {
            self.callers.pop_front();
            self.places.pop_front();
        }
        while self.places.len() > self.callers.len()
            && self.returns
            && self.places.back() == Some(&self.taken)
        {
            self.places.pop_back();
            self.taken -= ESTIMATE;
            self.returns = self.places.back() == Some(&self.taken);
        }
        if self.callers.is_empty() {
            self.places.clear();
        }
    }

    pub(super) fn join(&mut self, caller: u64) {
        if self.places.len() == self.callers.len() {
            self.taken += ESTIMATE;
            self.places.push_back(self.taken);
            self.returns = true;
        }
        self.callers.push_back(caller);
    }

    /// Takes a caller out of the line. Returns whether it was there.
    pub(super) fn leave(&mut self, caller: u64, now: i64) -> bool {
        self.serve(now);
        let before = self.callers.len();
        self.callers.retain(|other| *other != caller);
        let left = self.callers.len() < before;
        self.serve(now);
        left
    }
}

#[derive(Default)]
pub(super) struct World {
    pub(super) account: Mutex<Account>,
    /// Requests, timers and bodies that are not dropped.
    pub(super) alive: AtomicI64,
}

impl World {
    pub(super) fn take(&self, key: usize, tokens: i64) {
        let account = &mut *self.account.lock().unwrap();
        account.keys[key].taken += tokens;
        if tokens < 0 {
            account.keys[key].serve(account.now);
        }
    }
}

/// The mark of a thing that is alive.
pub(super) struct Alive(pub(super) Arc<World>);

impl Alive {
    pub(super) fn new(world: &Arc<World>) -> Alive {
        world.alive.fetch_add(1, Relaxed);
        Alive(world.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Relaxed);
    }
}
