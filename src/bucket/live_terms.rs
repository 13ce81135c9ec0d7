//! The terms in force, and how they change under those who read them.
//!
//! A regime is a quota with the clock of ticks that it is counted by. There are two slots, for the regime in force
//! and the next. A change writes the next slot and publishes it, without a start: the first reading of the
//! clock that is taken after the publication becomes the start. Whoever meets an unstarted regime, setter or
//! reader, starts it: agrees on the start by a compare-and-swap, works out from it the tick at which the new clock
//! takes over (so that ticks go on where they were), agrees on that by another, and lets it be read. Nobody waits for
//! a setter that was stopped half-way.
//!
//! What it keeps true: a reading is of one regime, and its clock was read while no later one was published. (Ticks of
//! a fast clock, counted after a slow one took over, would be earned by every bucket they are committed to.)
//!
//! # Orderings
//!
//! A reader loads `active_version`, then the clock (or that before), and the slot, then `published_version`; a setter stores to a slot only after
//! `published_version` has left it. Each slot's word is stored with `Release` and loaded with `Acquire`: who sees a later
//! regime's word sees, after it, that `published_version` has moved, and starts over.
//!
//! The last load and the publication are `SeqCst`, as is the mock clock: in the one order of these, either the reader
//! sees the publication, or its reading is no later than the start. This rests on the argument: loom takes `SeqCst`
//! accesses for `AcqRel`, so its models cannot tell. A coarse clock, or one of the user's, may be
//! kept with weaker orderings. There the fence before the start is read makes up for it, on
//! machines that read `SeqCst` in order after such a clock; model:
//! `a_start_on_a_relaxed_clock_is_not_before_a_reading_of_the_old_quota`, in which a `SeqCst` load
//! has a fence before it. A
//! hardware counter may be read late or early by the processor, by less than a microsecond, and counters of cores may
//! differ: who is ahead by so much may earn that time at the faster rate, once a change.
//!
//! The counts of the first regime are worked out by its first reader: the part is stored before the gear, and loaded after it, so who
//! sees the gear has the part.
//!
//! What is undecided is marked by a number of its regime, so that no helper that was stopped can decide for a
//! later one. Partner: the other helpers.
//! Checked by `a_taker_and_a_change_of_quota` and its kin, and by `an_attempt_by_the_clock_and_a_faster_quota` and its, in
//! `src/tests/models/`; docs/verification.md says which fail with which ordering relaxed.

use std::sync::PoisonError;

use crossbeam_utils::atomic::AtomicCell;

use crate::bucket::atomic::FreshReading;
use crate::fault::{Fault, injected};
use crate::quota::layout::{Layout, QuotaError, Widths};
use crate::quota::rate::Quota;
use crate::sync::{AtomicU64, Mutex, Ordering, const_fn, fence};
use crate::time::clock::Clock;
use crate::word::plan::{Plan, PlanStart};
use crate::word::state::State;
use crate::word::terms::{Reading, Terms};
use crate::word::tick::TickScale;

/// Set in what is undecided; the regime's number is beside it. A reading and a base are below.
const PENDING: u64 = 1 << 63;

/// Says that a branch is one to be kept.
#[cold]
fn rarely() {}

/// What stands for a value of this regime that is not agreed on yet.
fn pending(number: u64) -> u64 {
    PENDING | if injected(Fault::Unnumbered) { 0 } else { number }
}

/// How a quota differs from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    LowerBurst,
    Other,
}

#[derive(Debug)]
pub(crate) struct LiveTerms {
    widths: Widths,
    /// `2^stamp - 1`, half of it, and the floor, as the terms have them.
    mask: u64,
    half: u64,
    empty_level: u64,
    /// Number of the regime that is read.
    active_version: AtomicU64,
    /// Number of the latest. Regime `n` is in slot `n % 2`.
    published_version: AtomicU64,
    slots: [Version; 2],
    /// That was set last.
    quota: AtomicCell<Quota>,
    /// Held by a setter.
    setting: Mutex<()>,
    /// Terms that never change, for models of other parts.
    #[cfg(all(test, any(loom, shuttle)))]
    pub(crate) fixed: Option<Terms>,
}

/// What differs between regimes. What an attempt needs is on one line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Version {
    /// `multiplier_low` and `packed` by the counts of the limiter's clock; 0 until they are known.
    raw_multiplier_low: AtomicU64,
    raw_packed: AtomicU64,
    base: AtomicU64,
    capacity: AtomicU64,
    near: AtomicU64,
    multiplier_low: AtomicU64,
    packed: AtomicU64,
    backward_from: AtomicU64,
    start: AtomicU64,
}

impl Version {
    const_fn! {
        const fn new(terms: &Terms) -> Version {
            Version {
                raw_multiplier_low: AtomicU64::new(0),
                raw_packed: AtomicU64::new(0),
                base: AtomicU64::new(terms.base),
                capacity: AtomicU64::new(terms.capacity),
                near: AtomicU64::new(terms.max_skew()),
                multiplier_low: AtomicU64::new(terms.ticks.multiplier_low),
                packed: AtomicU64::new(terms.ticks.packed),
                backward_from: AtomicU64::new(terms.backward_from),
                start: AtomicU64::new(0),
            }
        }
    }

    #[inline]
    fn ticks(&self) -> TickScale {
        TickScale {
            multiplier_low: self.multiplier_low.load(Ordering::Acquire),
            packed: self.packed.load(Ordering::Acquire),
        }
    }

    /// In the gear 0, they are not known yet.
    #[inline(always)]
    fn counted(&self) -> TickScale {
        let packed = self.raw_packed.load(Ordering::Acquire);
        TickScale { multiplier_low: self.raw_multiplier_low.load(Ordering::Acquire), packed }
    }

    /// Works out the ticks of a clock's counts, the part before the gear. `put` stores it.
    fn count(&self, ticks: TickScale, clock: &Clock, put: impl Fn(&AtomicU64, u64)) {
        let (whole, multiplier_low) = clock.nanos_per_raw();
        let TickScale { multiplier_low, packed } = ticks.counted(whole, multiplier_low);
        put(&self.raw_multiplier_low, multiplier_low);
        put(&self.raw_packed, packed);
    }
}

impl LiveTerms {
    const_fn! {
        /// A quota that the frame holds.
        pub(crate) const fn new(quota: Quota, layout: Layout) -> LiveTerms {
            let terms = Terms::in_layout(quota.numbers(), layout);
            LiveTerms {
                widths: terms.widths,
                mask: terms.mask,
                half: terms.mask / 2,
                empty_level: terms.empty_level,
                active_version: AtomicU64::new(0),
                published_version: AtomicU64::new(0),
                slots: [Version::new(&terms), Version::new(&terms)],
                quota: AtomicCell::new(quota),
                setting: Mutex::new(()),
                #[cfg(all(test, any(loom, shuttle)))]
                fixed: None,
            }
        }
    }

    /// The quota that was set last.
    pub(crate) fn quota(&self) -> Quota {
        self.quota.load()
    }

    /// Puts another quota into force, if the frame can hold it.
    pub(crate) fn set(&self, quota: Quota, clock: &Clock) -> Result<Change, QuotaError> {
        let _setting = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.latest(clock);
        self.publish(number, quota, clock)?;
        let before = self.quota();
        self.quota.store(quota);
        self.activate_next(number, clock);
        let lower = quota.capacity() < before.capacity();
        Ok(if lower { Change::LowerBurst } else { Change::Other })
    }

    /// Publishes a quota, if the frame can hold it, as the regime after this one, which is the latest. The caller holds
    /// the mutex.
    pub(crate) fn publish(&self, number: u64, quota: Quota, clock: &Clock) -> Result<(), QuotaError> {
        let layout = self.layout();
        layout.check(quota.numbers())?;
        let terms = Terms::in_layout(quota.numbers(), layout).after_others();
        let next = number + 1;
        let slot = self.slot(next);
        slot.multiplier_low.store(terms.ticks.multiplier_low, Ordering::Release);
        slot.packed.store(terms.ticks.packed, Ordering::Release);
        // Swapped: of a store that races with that of the first reader, loom may take either for the later one.
        slot.count(terms.ticks, clock, |word, value| {
            word.swap(value, Ordering::AcqRel);
        });
        slot.capacity.store(terms.capacity, Ordering::Release);
        slot.near.store(terms.max_skew(), Ordering::Release);
        slot.backward_from.store(terms.backward_from, Ordering::Release);
        slot.base.store(pending(next), Ordering::Release);
        slot.start.store(pending(next), Ordering::Release);
        self.published_version.swap(next, Ordering::SeqCst);
        Ok(())
    }

    /// The regime that was published last, which is started. (Its setter has done so, unless the user's clock panicked.)
    /// Called by who holds the mutex, so none is published meanwhile.
    fn latest(&self, clock: &Clock) -> u64 {
        let number = self.active_version.load(Ordering::Acquire);
        if self.published_version.load(Ordering::SeqCst) == number {
            return number;
        }
        self.activate_next(number, clock);
        number + 1
    }

    /// A plan on top of the quota in force.
    pub(crate) fn plan(&self, limiter: u64, quota: Quota, clock: &Clock) -> Result<Plan, QuotaError> {
        let _setting = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.latest(clock);
        let terms = self.terms(number);
        let start = self.slot(number).start.load(Ordering::Acquire);
        let since = (number > 0).then(|| PlanStart { nanos: start, tick: terms.tick(start) });
        Plan::compile(limiter, quota, self.quota(), &terms, since)
    }

    /// That of the word, which no change of quota touches.
    fn layout(&self) -> Layout {
        Layout { widths: self.widths, debt: self.empty_level >> self.widths.fraction }
    }

    #[inline(always)]
    fn slot(&self, number: u64) -> &Version {
        // A branch, which is predicted, and no index, which would have to be loaded first: 2 ns.
        if number.is_multiple_of(2) {
            &self.slots[0]
        } else {
            rarely();
            &self.slots[1]
        }
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
            backward_from: slot.backward_from.load(Ordering::Acquire),
        }
    }

    /// Whether the counts of the latest regime are its own.
    #[cfg(all(test, any(loom, shuttle)))]
    pub(crate) fn counts_as_it_ticks(&self, clock: &Clock) -> bool {
        let slot = self.slot(self.published_version.load(Ordering::SeqCst));
        let (whole, multiplier_low) = clock.nanos_per_raw();
        slot.counted() == slot.ticks().counted(whole, multiplier_low)
    }

    /// Starts the regime after this one, if it is published and nobody else does.
    #[cold]
    pub(crate) fn activate_next(&self, number: u64, clock: &Clock) {
        let (old, next) = (self.slot(number), number + 1);
        let slot = self.slot(next);
        let agree = |word: &AtomicU64, value| {
            word.compare_exchange(pending(next), value, Ordering::AcqRel, Ordering::Acquire)
                .map_or_else(|decided| decided, |_| value)
        };
        // Read after the publication was seen, whatever memory the clock is kept in.
        if !injected(Fault::Unfenced) {
            fence(Ordering::SeqCst);
        }
        let start = agree(&slot.start, clock.nanos());
        // If somebody has gone further meanwhile, the slot may be a later regime's: then nothing of this is agreed on.
        let tick = old.base.load(Ordering::Acquire).wrapping_add(old.ticks().tick(start));
        let base = tick.wrapping_sub(slot.ticks().tick(start)) & !PENDING;
        agree(&slot.base, base);
        let _ = self.active_version.compare_exchange(number, next, Ordering::AcqRel, Ordering::Relaxed);
    }
}

impl LiveTerms {
    /// The terms and a reading of the clock that belong together, or a reading that was taken before.
    #[inline(always)]
    pub(crate) fn read(&self, clock: &Clock, before: Option<u64>) -> Reading {
        #[cfg(all(test, any(loom, shuttle)))]
        if let Some(terms) = self.fixed {
            return Reading::new(terms, before.unwrap_or_else(|| clock.nanos()));
        }
        loop {
            let number = self.active_version.load(Ordering::Acquire);
            // The clock first: what is loaded before it would have to be kept in memory over the call.
            let nanos = before.unwrap_or_else(|| clock.nanos());
            let refill = self.terms(number);
            if number == 0 && self.slots[0].raw_packed.load(Ordering::Acquire) == 0 {
                // Never in place of a later regime's: neither word of those is 0.
                let unless_known = |word: &AtomicU64, value| {
                    if injected(Fault::CountedAnyway) {
                        return word.store(value, Ordering::Release);
                    }
                    let _ = word.compare_exchange(0, value, Ordering::AcqRel, Ordering::Relaxed);
                };
                self.slots[0].count(refill.ticks, clock, unless_known);
            }
            if self.published_version.load(Ordering::SeqCst) == number || injected(Fault::NoRecheck) {
                return Reading::new(refill, nanos);
            }
            self.activate_next(number, clock);
        }
    }

    /// What was read, under the terms in force. It fits if they are not changing and the state admits it: if it is `counted`, as the
    /// clock counts and just now; else in nanoseconds, whenever that was.
    #[inline(always)]
    pub(crate) fn admitted(&self, state: State, count: u64, counted: bool) -> FreshReading {
        #[cfg(all(test, any(loom, shuttle)))]
        if let Some(terms) = self.fixed {
            // A mock clock counts nanoseconds.
            let reading = Reading::new(terms, count);
            let (near, fits) = (terms.max_skew(), state.accepts_fresh(&reading, terms.mask / 2));
            return FreshReading { reading, near, fits };
        }
        let number = self.active_version.load(Ordering::Acquire);
        let slot = self.slot(number);
        let ticks = if counted { slot.counted() } else { slot.ticks() };
        let base = slot.base.load(Ordering::Acquire);
        let capacity = slot.capacity.load(Ordering::Acquire);
        let near = if counted { slot.near.load(Ordering::Acquire) } else { u64::MAX };
        let known = !counted || ticks.packed != 0;
        let in_force = self.published_version.load(Ordering::SeqCst) == number || injected(Fault::NoRecheck);
        // What never changes comes last, and the layout by its fields: so each is loaded where it is needed, if it is. Loaded
        // before the rest they were kept in memory, and the layout as a whole was taken apart again: 9 instructions.
        let Widths { fraction, scale, stamp, fixed_debt } = self.widths;
        let widths = Widths { fraction, scale, stamp, fixed_debt };
        let (mask, empty_level) = (self.mask, self.empty_level);
        // Whatever is admitted is below the horizon.
        let refill = Terms { widths, ticks, base, mask, empty_level, capacity, backward_from: mask };
        let reading = Reading::new(refill, count);
        FreshReading { reading, near, fits: known && in_force && state.accepts_fresh(&reading, self.half) }
    }

    /// The reading at which the terms came into force, if they are not the first.
    pub(crate) fn changed(&self) -> Option<u64> {
        #[cfg(all(test, any(loom, shuttle)))]
        if self.fixed.is_some() {
            return None;
        }
        let number = self.active_version.load(Ordering::Acquire);
        let start = self.slot(number).start.load(Ordering::Acquire);
        // Another change is under way: that is as late as any.
        if number == 0 { None } else { Some(if start < PENDING { start } else { u64::MAX }) }
    }
}
