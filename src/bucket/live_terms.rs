//! The terms in force, and how they change while other threads read them.
//!
//! A version is a quota compiled to terms, with the tick scale that it is counted by. Two slots
//! hold the version in force and the next one: version `n` is in slot `n % 2`.
//!
//! ```text
//!  published  active   slot n % 2             slot (n + 1) % 2
//!  n          n        version n, in force    free (version n - 1)
//!                                               | the setter writes the terms,
//!                                               | start and base are pending(n + 1)
//!  n + 1      n        version n              published: no reading is of it yet
//!                                               | compare-and-swap: start = clock reading
//!  n + 1      n        version n              start agreed, base pending
//!                                               | compare-and-swap: base = tick of n at
//!                                               | start, less tick of n + 1 at start
//!  n + 1      n        version n              start and base agreed
//!                                               | compare-and-swap: active_version
//!  n + 1      n + 1    free                   version n + 1, in force
//! ```
//!
//! The three compare-and-swaps are `activate_next`. Any thread that meets a published version which
//! is not active runs it, setter or reader, so no thread waits for a setter that was stopped
//! half-way. The start is a clock reading that is taken after the publication. The base makes the
//! ticks continue from the tick that the version before had reached.
//!
//! *Invariant:* a reading is of one version, and its clock was read while no later version was
//! published. Otherwise ticks of a fast version, counted after a slow one took over, would be
//! earned by each bucket that they are committed to.
//!
//! # Orderings
//!
//! A reader loads `active_version`, then the clock (or uses an earlier reading), then the slot,
//! then `published_version`. A setter stores to a slot only after `published_version` has left it.
//! *Release: each word of a slot pairs with its Acquire load, so that a reader that loads a later
//! version's word then sees that `published_version` has moved, and starts over.*
//!
//! The last load and the publication are `SeqCst`, as is the mock clock. In their single order,
//! either the reader sees the publication, or its reading is no later than the start. This rests on
//! the argument: loom treats `SeqCst` accesses as `AcqRel`, so its models cannot tell.
//!
//! A coarse clock, or a clock of the user, may be kept with weaker orderings. The fence before the
//! start is read makes up for that, on machines that run `SeqCst` loads in order after such a
//! clock. Model: `a_start_on_a_relaxed_clock_is_not_before_a_reading_of_the_old_quota`, in which a
//! `SeqCst` load has a fence before it.
//!
//! The processor may read a hardware counter early or late by less than a microsecond, and the
//! counters of cores may differ. A thread that is ahead by that time may earn it at the faster
//! rate, once per change.
//!
//! The first reader computes the raw tick scale of version 0. *Release: the store of `raw_packed`,
//! after that of `raw_multiplier_low`, pairs with the Acquire in `counted`, so that a reader that
//! sees `raw_packed` has the multiplier.*
//!
//! A pending value has the number of its version, so that a helper thread that was stopped cannot
//! decide for a later version. Partner: the other helper threads.
//!
//! Checked by `a_taker_and_a_change_of_quota` and its kin, and by
//! `an_attempt_by_the_clock_and_a_faster_quota` and its kin, in `src/tests/models/`;
//! docs/verification.md lists which of them fail with which ordering relaxed.

mod change;

use crossbeam_utils::atomic::AtomicCell;

use crate::bucket::atomic::{FreshReading, Order, rarely};
use crate::bucket::sweeps::Sweeps;
#[cfg(all(test, any(loom, shuttle)))]
use crate::bucket::sweeps::turn_end;
use crate::bucket::version::{NUMBER, PENDING, Version, gate_of, marked, pending};
use crate::fault::{Fault, injected};
use crate::rule::counts::{CountWidths, Counting};
use crate::rule::gate::Gate;
use crate::rule::layout::{Layout, RawQuota, Widths};
use crate::rule::rate::Quota;
use crate::sync::{AtomicU64, Mutex, Ordering, const_fn, fence};
use crate::time::clock::Clock;
use crate::word::state::{Reading, Refill, State};
use crate::word::terms::Terms;

/// The difference between a quota and the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    LowerBurst,
    Other,
}

#[derive(Debug)]
pub(crate) struct LiveTerms {
    widths: Widths,
    /// `2^stamp - 1` and the empty level, as in [`Terms`].
    mask: u64,
    empty_level: u64,
    /// The sweeps of words that count windows, and the end of a turn of buckets.
    pub(super) sweeps: Sweeps,
    /// Number of the version in force.
    pub(super) active_version: AtomicU64,
    /// Number of the version published last, and its gate. Version `n` is in slot `n % 2`.
    ///
    /// A version with a gate never equals `active_version`, so no attempt is admitted under it. The
    /// fast path has no test of its own.
    published_version: AtomicU64,
    slots: [Version; 2],
    /// Clock reading at which the version of a slot came into force; 0 for version 0.
    starts: [AtomicU64; 2],
    /// As in [`Terms`], of the version of a slot.
    backward_from: [AtomicU64; 2],
    /// Quota that was set last. The burst of a window is its limit.
    numbers: AtomicCell<RawQuota>,
    /// Mutex held by a setter.
    setting: Mutex<()>,
    /// Terms that never change, for models of other parts.
    #[cfg(all(test, any(loom, shuttle)))]
    pub(crate) fixed: Option<Terms>,
}

impl LiveTerms {
    const_fn! {
        /// Creates the terms of a quota that fits the layout.
        pub(crate) const fn new(quota: Quota, layout: Layout) -> LiveTerms {
            LiveTerms::of(quota.numbers_or_usual(), quota.gate(), layout)
        }
    }

    const_fn! {
        /// Creates the terms of a quota or a window that fits the layout.
        pub(crate) const fn of(numbers: RawQuota, gate: Gate, layout: Layout) -> LiveTerms {
            let terms = Terms::in_layout(numbers, layout);
            LiveTerms {
                widths: terms.widths,
                mask: terms.mask,
                empty_level: terms.empty_level,
                sweeps: Sweeps::new(terms.mask, terms.widths.counts.counting),
                active_version: AtomicU64::new(0),
                published_version: AtomicU64::new(marked(0, gate)),
                slots: [Version::new(&terms), Version::new(&terms)],
                starts: [AtomicU64::new(0), AtomicU64::new(0)],
                backward_from: [AtomicU64::new(terms.backward_from), AtomicU64::new(terms.backward_from)],
                numbers: AtomicCell::new(numbers),
                setting: Mutex::new(()),
                #[cfg(all(test, any(loom, shuttle)))]
                fixed: None,
            }
        }
    }

    /// Returns the quota that was set last.
    pub(crate) fn quota(&self) -> Quota {
        match self.gate() {
            Gate::Counted => self.counted_by(),
            Gate::Open => Quota::UNLIMITED,
            Gate::Shut => Quota::BLOCKED,
        }
    }

    /// Returns the quota of a rate that was set last: buckets earn by it.
    pub(crate) fn counted_by(&self) -> Quota {
        Quota::of_numbers(self.numbers.load())
    }

    /// Returns the numbers of the quota or the window that was set last.
    pub(crate) fn numbers(&self) -> RawQuota {
        self.numbers.load()
    }

    /// Returns the gate of the version that was published last.
    pub(crate) fn gate(&self) -> Gate {
        gate_of(self.published_version.load(Ordering::Acquire))
    }

    /// Returns the counts of a window.
    #[inline(always)]
    pub(crate) const fn counts(&self) -> CountWidths {
        // By its fields: copied as a whole they are taken apart again.
        let CountWidths { counting, count, before } = self.widths.counts;
        CountWidths { counting, count, before }
    }

    /// Returns the limit of a window that was set last.
    pub(crate) fn limit(&self) -> u64 {
        if self.gate() == Gate::Shut { 0 } else { self.numbers.load().burst }
    }

    /// Returns the layout of the word, which no change of quota touches.
    pub(crate) fn layout(&self) -> Layout {
        Layout { widths: self.widths, debt: self.empty_level >> self.widths.fraction }
    }

    #[inline(always)]
    fn slot(&self, number: u64) -> &Version {
        // A predicted branch, and not an index, which would have to be loaded first: saves 2 ns.
        if number.is_multiple_of(2) {
            &self.slots[0]
        } else {
            rarely();
            &self.slots[1]
        }
    }

    /// Returns the start of a version.
    fn start(&self, number: u64) -> &AtomicU64 {
        &self.starts[(number % 2) as usize]
    }

    fn backward_from(&self, number: u64) -> &AtomicU64 {
        &self.backward_from[(number % 2) as usize]
    }

    #[inline(always)]
    fn terms(&self, number: u64) -> Terms {
        let slot = self.slot(number);
        Terms {
            widths: self.widths,
            ticks: slot.ticks(),
            base: slot.base.load(Ordering::Acquire),
            mask: self.mask,
            empty_level: self.empty_level,
            capacity: slot.capacity.load(Ordering::Acquire),
            gate: Gate::Counted,
            backward_from: self.backward_from(number).load(Ordering::Acquire),
        }
    }

    /// Returns whether the raw tick scale of the latest version matches its tick scale.
    #[cfg(test)]
    #[cfg(any(loom, shuttle))]
    pub(crate) fn counts_as_it_ticks(&self, clock: &Clock) -> bool {
        let slot = self.slot(self.published_version.load(Ordering::SeqCst) & NUMBER);
        let (whole, multiplier_low) = clock.nanos_per_raw();
        slot.counted() == slot.ticks().counted(whole, multiplier_low)
    }

    /// Makes version `number + 1` active, if it is published and no other thread has done so.
    #[cold]
    pub(crate) fn activate_next(&self, number: u64, clock: &Clock) {
        let (old, next) = (self.slot(number), number + 1);
        let slot = self.slot(next);
        let agree = |word: &AtomicU64, value| {
            word.compare_exchange(pending(next), value, Ordering::AcqRel, Ordering::Acquire)
                .map_or_else(|decided| decided, |_| value)
        };
        // The clock is read after the publication was seen, whatever memory the clock is kept in.
        if !injected(Fault::Unfenced) {
            fence(Ordering::SeqCst);
        }
        let start = agree(self.start(next), clock.nanos());
        // If another thread has gone further, the slot may be of a later version. Then no swap
        // succeeds.
        let tick = old.base.load(Ordering::Acquire).wrapping_add(old.ticks().tick(start));
        let base = tick.wrapping_sub(slot.ticks().tick(start)) & !PENDING;
        let base = agree(&slot.base, base);
        let tick = base.wrapping_add(slot.ticks().tick(start));
        agree(&slot.turn, base.wrapping_sub(tick & !self.mask));
        let _ = self.active_version.compare_exchange(number, next, Ordering::AcqRel, Ordering::Relaxed);
    }
}

impl LiveTerms {
    /// Returns the terms and a clock reading that belong together.
    ///
    /// The clock is not read if `before` is given.
    #[inline(always)]
    pub(crate) fn read(&self, clock: &Clock, before: Option<u64>) -> Reading {
        #[cfg(all(test, any(loom, shuttle)))]
        if let Some(terms) = self.fixed {
            return Reading::new(terms, before.unwrap_or_else(|| clock.nanos()));
        }
        loop {
            let number = self.active_version.load(Ordering::Acquire);
            // The clock first: a value loaded before it would have to be kept in memory over the
            // call.
            let nanos = before.unwrap_or_else(|| clock.nanos());
            let refill = self.terms(number);
            let turn = self.slot(number).turn.load(Ordering::Acquire);
            let published = self.published_version.load(Ordering::SeqCst);
            if published & NUMBER == number || injected(Fault::NoRecheck) {
                let reading = Reading::new(Terms { gate: gate_of(published), ..refill }, nanos);
                let begins = match self.widths.counts.counting {
                    Counting::Bucket => self.is_over(&reading, turn),
                    Counting::Places => false,
                    _ => !self.sweeps.is_open(),
                };
                if begins {
                    self.open(number, turn, reading, clock, before.is_some());
                }
                return if self.widths.counts.counting == Counting::Months {
                    reading.by_months()
                } else {
                    reading
                };
            }
            self.activate_next(number, clock);
        }
    }

    /// Returns whether the turn that was found is over at a reading, so that no attempt decides.
    #[inline(always)]
    fn is_over(&self, reading: &Reading, turn: u64) -> bool {
        reading.tick.wrapping_sub(reading.refill.base).wrapping_add(turn) >= self.sweeps.span
    }

    /// Lets attempts decide: computes the raw tick scale of version 0, and begins another turn.
    ///
    /// An `earlier` reading never sets the turn back.
    #[cold]
    #[inline(never)]
    fn open(&self, number: u64, turn: u64, reading: Reading, clock: &Clock, earlier: bool) {
        let Terms { ticks, mask, backward_from, .. } = reading.refill;
        if !clock.is_calibrated() {
            return;
        }
        if number == 0 && self.slots[0].raw_packed.load(Ordering::Acquire) == 0 {
            // The swap never replaces a value of a later version: neither word of those is 0.
            let unless_known = |word: &AtomicU64, value| {
                if injected(Fault::CountedAnyway) {
                    return word.store(value, Ordering::Release);
                }
                let _ = word.compare_exchange(0, value, Ordering::AcqRel, Ordering::Relaxed);
            };
            self.slots[0].count(ticks, clock, unless_known);
        }
        if self.widths.counts.counting != Counting::Bucket {
            self.sweeps.open();
        } else if self.is_over(&reading, turn) {
            let back = if earlier { u64::MAX / 2 } else { mask + 1 - backward_from };
            self.slot(number).begin_turn(number, turn, &reading, back);
        }
    }

    /// Returns `count` as a reading under the terms in force, and whether it fits.
    ///
    /// A reading fits if the terms are not changing and the state admits it. `count` is a
    /// raw reading of `now`, taken before or after the word was loaded, or it is in nanoseconds,
    /// taken at any earlier time.
    ///
    /// The ticks of a bucket count from the beginning of the present turn of its stamp, so that a
    /// reading of another turn does not fit, however old it is. Those of a window count from 0, and
    /// fit until the next sweep. An earlier reading fits if it is at most the skew between two
    /// clocks after the stamp.
    #[inline(always)]
    pub(crate) fn admitted<P: Refill>(&self, state: State, count: u64, now: Option<Order>) -> FreshReading {
        self.admitted_from::<P, false>(state, count, now)
    }

    /// Does the same; if `DATED`, the reading has the tick from which its ticks count.
    #[inline(always)]
    pub(super) fn admitted_from<P: Refill, const DATED: bool>(
        &self,
        state: State,
        count: u64,
        now: Option<Order>,
    ) -> FreshReading {
        let counted = now.is_some();
        #[cfg(all(test, any(loom, shuttle)))]
        if let Some(terms) = self.fixed {
            // A mock clock counts nanoseconds.
            let (reading, half) = (Reading::new(terms, count), terms.mask / 2);
            let fits = state.accepts_fresh::<P>(&reading, turn_end(terms.mask), half);
            return FreshReading { reading, near: terms.max_skew(), begun: 0, fits, may_lag: counted };
        }
        let number = self.active_version.load(Ordering::Acquire);
        let slot = self.slot(number);
        // The tick scale after the word that says that it is known.
        let (base, until) = match P::COUNTS {
            true => (0, self.sweeps.until()),
            false => (slot.turn.load(Ordering::Acquire), 0),
        };
        let is_dated = P::PLANNED || DATED;
        let begun = if is_dated { slot.base.load(Ordering::Acquire).wrapping_sub(base) } else { 0 };
        let ticks = if counted { slot.counted() } else { slot.ticks() };
        let capacity = slot.capacity.load(Ordering::Acquire);
        // A new reading of after the load of the word does not need it.
        let near = if now == Some(Order::WordFirst) { u64::MAX } else { slot.near.load(Ordering::Acquire) };
        let in_force = self.published_version.load(Ordering::SeqCst) == number || injected(Fault::NoRecheck);
        // Constants come last, and the layout by its fields, so that each is loaded only where it
        // is needed. Loaded earlier they were kept in memory, and the whole layout was taken apart
        // again: 9 instructions.
        // The counts are told to an attempt on a window: a bucket loads none.
        let Widths { fraction, scale, stamp, fixed_debt, .. } = self.widths;
        let counts = CountWidths::BUCKET;
        let widths = Widths { fraction, scale, stamp, fixed_debt, counts };
        let (mask, empty_level) = (self.mask, self.empty_level);
        // Each admitted reading is below the horizon.
        let (backward_from, gate) = (mask, Gate::Counted);
        let refill = Terms { widths, ticks, base, mask, empty_level, capacity, backward_from, gate };
        let reading = Reading::new(refill, count);
        let span = self.sweeps.span;
        let end = if P::COUNTS { until } else { span };
        // An earlier reading is within half a turn of all words that were swept.
        let recent = !P::COUNTS || counted || end.wrapping_sub(reading.tick) <= span;
        if !counted {
            let fits = recent && state.accepts_earlier::<P>(&reading, end, near) && in_force;
            return FreshReading { reading, near, begun, fits, may_lag: false };
        }
        // In the order that costs least.
        let fits = match P::COUNTS {
            true => recent && state.accepts_fresh::<P>(&reading, end, span) && in_force,
            false => in_force && state.accepts_fresh::<P>(&reading, end, span),
        };
        FreshReading { reading, near, begun, fits, may_lag: counted && in_force && reading.tick < end }
    }

    /// Returns the clock reading at which the terms came into force, if they are not the first.
    pub(crate) fn changed(&self) -> Option<u64> {
        #[cfg(all(test, any(loom, shuttle)))]
        if self.fixed.is_some() {
            return None;
        }
        let number = self.active_version.load(Ordering::Acquire);
        let start = self.start(number).load(Ordering::Acquire);
        // Another change is under way: the latest possible time stands for it.
        if number == 0 { None } else { Some(if start < PENDING { start } else { u64::MAX }) }
    }
}
