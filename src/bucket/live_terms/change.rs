//! Changes of the terms in force, one at a time.

use std::sync::PoisonError;

use super::{Change, LiveTerms, pending};
use crate::bucket::version::{NUMBER, marked};
use crate::rule::gate::Gate;
use crate::rule::layout::{QuotaError, RawQuota};
use crate::rule::rate::Quota;
use crate::rule::window_layout::WindowError;
use crate::sync::Ordering;
use crate::time::clock::Clock;
use crate::word::plan::{PlanStart, PlanTerms};
use crate::word::terms::Terms;

impl LiveTerms {
    /// Puts another quota into force, if the layout can hold it.
    pub(crate) fn set(&self, quota: Quota, clock: &Clock) -> Result<Change, QuotaError> {
        let gate = quota.gate();
        if gate != Gate::Counted {
            self.replace(|before| before, gate, clock);
            return Ok(if gate == Gate::Shut { Change::LowerBurst } else { Change::Other });
        }
        self.layout().check(quota.numbers())?;
        let before = self.replace(|_| quota.numbers(), gate, clock);
        Ok(if quota.capacity() < before.burst { Change::LowerBurst } else { Change::Other })
    }

    /// Compiles a cap on top of the limit in force.
    pub(crate) fn cap(&self, limiter: u64, limit: u64) -> Result<PlanTerms, WindowError> {
        self.counts().check(limit)?;
        Ok(PlanTerms::cap(limiter, limit, self.numbers.load()))
    }

    /// Puts another limit of a window into force, if the counts can hold it.
    pub(crate) fn set_limit(&self, limit: u64, clock: &Clock) -> Result<(), WindowError> {
        self.counts().check(limit)?;
        self.put_limit(limit, clock);
        Ok(())
    }

    /// Puts another limit into force, which the counts can hold.
    pub(crate) fn put_limit(&self, limit: u64, clock: &Clock) {
        self.replace(|before| RawQuota { burst: limit, ..before }, Gate::Counted, clock);
    }

    /// Blocks a window, until another limit is set.
    pub(crate) fn block(&self, clock: &Clock) {
        self.replace(|before| before, Gate::Shut, clock);
    }

    /// Puts other numbers into force, which the layout can hold, and returns the ones before.
    fn replace(&self, numbers: impl FnOnce(RawQuota) -> RawQuota, gate: Gate, clock: &Clock) -> RawQuota {
        let _setting = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.latest(clock);
        let before = self.numbers.load();
        let numbers = numbers(before);
        self.publish(number, numbers, gate, clock);
        self.numbers.store(numbers);
        self.activate_next(number, clock);
        before
    }

    /// Publishes a quota, which the layout can hold, as version `number + 1`.
    ///
    /// `number` is the latest version, and the caller holds the mutex.
    pub(crate) fn publish(&self, number: u64, numbers: RawQuota, gate: Gate, clock: &Clock) {
        let terms = Terms::in_layout(numbers, self.layout()).after_others();
        let next = number + 1;
        let slot = self.slot(next);
        slot.multiplier_low.store(terms.ticks.multiplier_low, Ordering::Release);
        slot.packed.store(terms.ticks.packed, Ordering::Release);
        // Swapped, not stored: of a store that races with the first reader's, loom may take either
        // for the later one.
        slot.count(terms.ticks, clock, |word, value| {
            word.swap(value, Ordering::AcqRel);
        });
        slot.capacity.store(terms.capacity, Ordering::Release);
        slot.near.store(terms.max_skew(), Ordering::Release);
        self.backward_from(next).store(terms.backward_from, Ordering::Release);
        slot.base.store(pending(next), Ordering::Release);
        slot.turn.store(pending(next), Ordering::Release);
        self.start(next).store(pending(next), Ordering::Release);
        self.published_version.swap(marked(next, gate), Ordering::SeqCst);
    }

    /// Returns the number of the version published last, after making it active.
    ///
    /// Its setter has done that already, unless the user's clock panicked. The caller holds the
    /// mutex, so no version is published meanwhile.
    fn latest(&self, clock: &Clock) -> u64 {
        let number = self.active_version.load(Ordering::Acquire);
        if self.published_version.load(Ordering::SeqCst) & NUMBER == number {
            return number;
        }
        self.activate_next(number, clock);
        number + 1
    }

    /// Compiles a plan on top of the quota in force.
    pub(crate) fn plan(&self, limiter: u64, quota: Quota, clock: &Clock) -> Result<PlanTerms, QuotaError> {
        let _setting = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.latest(clock);
        let terms = self.terms(number);
        let start = self.start(number).load(Ordering::Acquire);
        let since = (number > 0).then(|| PlanStart { nanos: start, tick: terms.tick(start) });
        PlanTerms::compile(limiter, quota, self.counted_by(), &terms, since)
    }
}
