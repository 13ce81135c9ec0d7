//! The windows of a limiter on the clock of its store, as this process estimates it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tollgate::{Denied, Granted, Reason, Window};

use super::shared::Shared;
use super::slot::Slot;
use super::slot::key_state::KeyState;
use crate::law::amount::{Amount, StoreAnswer};
use crate::law::count::Count;
use crate::law::count_spec::{CountSpec, Edges};
use crate::lease::lease_time::nanos;
use crate::lease::terms::Terms;
use crate::outage::fallback::{Fallback, FallbackCount};

impl<S> Shared<S> {
    /// Notes the clock of the store, by an answer that is there now. So the estimate is late by the
    /// way of the answer, and never early.
    pub(crate) fn note_time(&self, answer: StoreAnswer) {
        let local_us = self.now() / 1_000;
        self.store_ahead_us.store(answer.now_us.wrapping_sub(local_us), Relaxed);
    }

    /// Returns the time of the store, in microseconds since 1970. Before the first answer it is
    /// that of this process.
    pub(crate) fn store_time_us(&self) -> u64 {
        match self.store_ahead_us.load(Relaxed) {
            0 => self.clock.unix_time().as_micros() as u64,
            ahead => ahead.wrapping_add(self.now() / 1_000),
        }
    }

    /// Returns a window as the store counts it now.
    pub(crate) fn spec_of(&self, window: Window) -> Option<CountSpec> {
        CountSpec::new(window, Duration::from_micros(self.store_time_us())).ok()
    }

    /// Notes tokens of a key that were spent without the store.
    pub(crate) fn spend(&self, slot: &Slot, n: u64) {
        match slot.terms.window() {
            None => _ = slot.key.spent.fetch_add(n, Relaxed),
            Some(window) => slot.key.spend_in(n, self.present(slot, window), slot.terms.capacity),
        }
    }

    /// Returns the present window of a key: its end by the clock of the store, or 0 if only the
    /// store knows it, and the local time from which no token of it counts.
    ///
    /// Spent tokens of an earlier sub-window count in the present one: later, and never early.
    fn present(&self, slot: &Slot, window: Window) -> (u64, u64) {
        let now = self.now();
        let is_sliding = window.sub_window().is_some();
        if let Some(known) = slot.key.edge(now).filter(|_| !is_sliding) {
            return known;
        }
        let now_us = self.store_time_us();
        let step = |spec: &CountSpec| Count::step(None, spec, now_us, Amount::default()).ok();
        let spec = self.spec_of(window).filter(|_| !is_sliding);
        let spec = spec.filter(|spec| !matches!(spec.edges(), Edges::FirstUse { .. }));
        match spec.as_ref().and_then(step) {
            Some((_, answer)) => {
                let rest = answer.edge_us.saturating_sub(now_us).saturating_mul(1_000);
                (answer.edge_us, now.saturating_add(rest))
            }
            None => (0, now.saturating_add(nanos(window.period()))),
        }
    }

    /// Takes tokens of a share of a window, while the store does not answer.
    pub(crate) fn fall_back_in_window(
        &self,
        (key, terms): (&KeyState, &Terms),
        window: Window,
        n: u64,
        share: f64,
    ) -> Result<Granted, Denied> {
        let unavailable = Denied::from_parts(Reason::Unavailable, n, 0, None);
        let spec = self.spec_of(window).ok_or(unavailable)?;
        let spec = spec.with_limit(((terms.capacity as f64 * share) as u64).max(1));
        let now = self.now();
        let new = || {
            let edge_us = key.edge(now).map(|(edge_us, _)| edge_us);
            FallbackCount::new(&spec, key.share(terms, share, now), edge_us)
        };
        let mut fallback = key.fallback();
        if !matches!(*fallback, Some(Fallback::Count(_))) {
            *fallback = Some(Fallback::Count(new()));
        }
        match fallback.as_mut() {
            Some(Fallback::Count(count)) => count.take(n, &spec, self.store_time_us()),
            _ => Err(unavailable),
        }
    }
}
