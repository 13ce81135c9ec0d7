//! The state of a key whose rule is a window.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{MutexGuard, PoisonError};

use super::key_state::KeyState;
use super::key_window::KeyWindow;
use crate::law::amount::StoreAnswer;
use crate::lease::lease_time::nanos;
use crate::lease::terms::Terms;

impl KeyState {
    /// Notes the window of an answer to a call that was sent at `sent`.
    pub(crate) fn tell_window(&self, answer: StoreAnswer, until: u64, sent: u64) {
        self.shadow.tell_tokens(answer.credits as f64, sent);
        let mut window = self.window();
        if window.edge_us != answer.edge_us {
            *window = KeyWindow { edge_us: answer.edge_us, until, is_used_up: false, ..*window };
        }
        window.until = window.until.max(until);
        window.freed = answer.freed;
    }

    /// Refuses requests of more than the tokens that are left, until the window ends.
    ///
    /// Tokens of idle leases come back within `pause` nanoseconds. So one request asks the store
    /// again after that. If it is refused as well, none does until the window ends.
    pub(crate) fn block_window(&self, was_refused: bool, pause: u64, left: u64, now: u64) {
        let mut window = self.window();
        let is_over = was_refused && window.is_used_up;
        window.is_used_up = was_refused || left == 0;
        let until = if is_over { window.until } else { window.until.min(now.saturating_add(pause)) };
        self.block_until(left.saturating_add(1), until);
    }

    /// Returns the end of the window by both clocks, while it runs.
    pub(crate) fn edge(&self, now: u64) -> Option<(u64, u64)> {
        let window = self.window();
        (now < window.until).then_some((window.edge_us, window.until))
    }

    /// Returns the tokens that are left at least if no process took any since the last answer;
    /// `None` if the store never answered.
    pub(crate) fn window_level(&self, terms: &Terms, now: u64) -> Option<f64> {
        let (last, window) = (self.shadow.last(), self.window());
        let level = match window.until {
            until if now < until => last,
            until if now - until < self.forgets_after(terms) => last + window.freed as f64,
            _ => terms.capacity as f64,
        };
        (!last.is_nan()).then(|| level.min(terms.capacity as f64))
    }

    /// Returns the time at which no token of the last answer counts any more.
    pub(crate) fn window_forgotten_at(&self, terms: &Terms) -> u64 {
        let until = self.window().until;
        let is_used = self.shadow.last() < terms.capacity as f64;
        if is_used { until.saturating_add(self.forgets_after(terms)) } else { 0 }
    }

    /// Returns the time from the end of a window until its tokens do not count: the period of a
    /// sliding one, whose end is that of a sub-window.
    fn forgets_after(&self, terms: &Terms) -> u64 {
        let sliding = terms.window().filter(|window| window.sub_window().is_some());
        sliding.map_or(0, |window| nanos(window.period()))
    }

    /// Notes tokens that were spent without the store in a window; see [`KeyWindow`]. More than
    /// the limit have no effect.
    pub(crate) fn spend_in(&self, n: u64, (of_us, until): (u64, u64), limit: u64) {
        let mut window = self.window();
        // Those of an earlier window do not count any more.
        let before = if window.spent_of == of_us { self.spent.load(Relaxed) } else { 0 };
        (window.spent_of, window.spent_until) = (of_us, until);
        self.spent.store(before.saturating_add(n).min(limit), Relaxed);
    }

    /// Takes the spent tokens of a window that runs, with the window.
    pub(crate) fn take_spent(&self, now: u64) -> (u64, (u64, u64)) {
        let window = self.window();
        let spent = self.spent.swap(0, Relaxed);
        let counts = now < window.spent_until;
        (if counts { spent } else { 0 }, (window.spent_of, window.spent_until))
    }

    fn window(&self) -> MutexGuard<'_, KeyWindow> {
        self.of_window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
