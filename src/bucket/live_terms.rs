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
//! A reader loads `started`, then the clock (or that before), and the slot, then `published`; a setter stores to a slot only after
//! `published` has left it. Each slot's word is stored with `Release` and loaded with `Acquire`: who sees a later
//! regime's word sees, after it, that `published` has moved, and starts over.
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

use crate::bucket::atomic::Once;
use crate::fault::{Control, broken};
use crate::quota::layout::{Flaw, Frame, Layout};
use crate::quota::rate::Quota;
use crate::sync::{AtomicU64, Mutex, Ordering, const_fn, fence};
use crate::time::clock::Clock;
use crate::word::plan::{Plan, Since};
use crate::word::state::State;
use crate::word::terms::{Reading, Terms};
use crate::word::tick::TickClock;

/// Set in what is undecided; the regime's number is beside it. A reading and a base are below.
const UNDECIDED: u64 = 1 << 63;

/// Says that a branch is one to be kept.
#[cold]
fn rarely() {}

/// What stands for a value of this regime that is not agreed on yet.
fn undecided(number: u64) -> u64 {
    UNDECIDED | if broken(Control::Unnumbered) { 0 } else { number }
}

/// The terms that readings are made with: those in force or, in a model, some that never change.
pub(crate) trait Source {
    /// The terms and a reading of the clock that belong together, or a reading that was taken before.
    fn read(&self, clock: &Clock, before: Option<u64>) -> Reading;
    /// What was read, under the terms in force. It fits if they are not changing and the state admits it: if it is `counted`, as the
    /// clock counts and just now; else in nanoseconds, whenever that was.
    fn admitted(&self, state: State, count: u64, counted: bool) -> Once;
    /// The reading at which the terms came into force, if they are not the first.
    fn changed(&self) -> Option<u64>;
}

/// How a quota differs from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    LowerBurst,
    Other,
}

#[derive(Debug)]
pub(crate) struct Regimes {
    layout: Layout,
    /// `2^stamp - 1`, half of it, and the floor, as the terms have them.
    mask: u64,
    half: u64,
    floor: u64,
    /// Number of the regime that is read.
    started: AtomicU64,
    /// Number of the latest. Regime `n` is in slot `n % 2`.
    published: AtomicU64,
    slots: [Slot; 2],
    /// That was set last.
    quota: AtomicCell<Quota>,
    /// Held by a setter.
    setting: Mutex<()>,
}

/// What differs between regimes. What an attempt needs is on one line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Slot {
    /// `part` and `gear` by the counts of the limiter's clock; 0 until they are known.
    counted_part: AtomicU64,
    counted_gear: AtomicU64,
    base: AtomicU64,
    capacity: AtomicU64,
    near: AtomicU64,
    part: AtomicU64,
    gear: AtomicU64,
    horizon: AtomicU64,
    start: AtomicU64,
}

impl Slot {
    const_fn! {
        const fn new(terms: &Terms) -> Slot {
            Slot {
                counted_part: AtomicU64::new(0),
                counted_gear: AtomicU64::new(0),
                base: AtomicU64::new(terms.base),
                capacity: AtomicU64::new(terms.capacity),
                near: AtomicU64::new(terms.near()),
                part: AtomicU64::new(terms.ticks.part),
                gear: AtomicU64::new(terms.ticks.gear),
                horizon: AtomicU64::new(terms.horizon),
                start: AtomicU64::new(0),
            }
        }
    }

    #[inline]
    fn ticks(&self) -> TickClock {
        TickClock { part: self.part.load(Ordering::Acquire), gear: self.gear.load(Ordering::Acquire) }
    }

    /// In the gear 0, they are not known yet.
    #[inline(always)]
    fn counted(&self) -> TickClock {
        let gear = self.counted_gear.load(Ordering::Acquire);
        TickClock { part: self.counted_part.load(Ordering::Acquire), gear }
    }

    /// Works out the ticks of a clock's counts, the part before the gear. `put` stores it.
    fn count(&self, ticks: TickClock, clock: &Clock, put: impl Fn(&AtomicU64, u64)) {
        let (whole, part) = clock.scale();
        let TickClock { part, gear } = ticks.counted(whole, part);
        put(&self.counted_part, part);
        put(&self.counted_gear, gear);
    }
}

impl Regimes {
    const_fn! {
        /// A quota that the frame holds.
        pub(crate) const fn new(quota: Quota, frame: Frame) -> Regimes {
            let terms = Terms::in_frame(quota.numbers(), frame);
            Regimes {
                layout: terms.layout,
                mask: terms.mask,
                half: terms.mask / 2,
                floor: terms.floor,
                started: AtomicU64::new(0),
                published: AtomicU64::new(0),
                slots: [Slot::new(&terms), Slot::new(&terms)],
                quota: AtomicCell::new(quota),
                setting: Mutex::new(()),
            }
        }
    }

    /// The quota that was set last.
    pub(crate) fn quota(&self) -> Quota {
        self.quota.load()
    }

    /// Puts another quota into force, if the frame can hold it.
    pub(crate) fn set(&self, quota: Quota, clock: &Clock) -> Result<Change, Flaw> {
        let _setting = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.latest(clock);
        self.publish(number, quota, clock)?;
        let before = self.quota();
        self.quota.store(quota);
        self.start_after(number, clock);
        let lower = quota.capacity() < before.capacity();
        Ok(if lower { Change::LowerBurst } else { Change::Other })
    }

    /// Publishes a quota, if the frame can hold it, as the regime after this one, which is the latest. The caller holds
    /// the mutex.
    pub(crate) fn publish(&self, number: u64, quota: Quota, clock: &Clock) -> Result<(), Flaw> {
        let frame = self.frame();
        frame.check(quota.numbers())?;
        let terms = Terms::in_frame(quota.numbers(), frame).after_others();
        let next = number + 1;
        let slot = self.slot(next);
        slot.part.store(terms.ticks.part, Ordering::Release);
        slot.gear.store(terms.ticks.gear, Ordering::Release);
        // Swapped: of a store that races with that of the first reader, loom may take either for the later one.
        slot.count(terms.ticks, clock, |word, value| {
            word.swap(value, Ordering::AcqRel);
        });
        slot.capacity.store(terms.capacity, Ordering::Release);
        slot.near.store(terms.near(), Ordering::Release);
        slot.horizon.store(terms.horizon, Ordering::Release);
        slot.base.store(undecided(next), Ordering::Release);
        slot.start.store(undecided(next), Ordering::Release);
        self.published.swap(next, Ordering::SeqCst);
        Ok(())
    }

    /// The regime that was published last, which is started. (Its setter has done so, unless the user's clock panicked.)
    /// Called by who holds the mutex, so none is published meanwhile.
    fn latest(&self, clock: &Clock) -> u64 {
        let number = self.started.load(Ordering::Acquire);
        if self.published.load(Ordering::SeqCst) == number {
            return number;
        }
        self.start_after(number, clock);
        number + 1
    }

    /// A plan on top of the quota in force.
    pub(crate) fn plan(&self, limiter: u64, quota: Quota, clock: &Clock) -> Result<Plan, Flaw> {
        let _setting = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.latest(clock);
        let terms = self.terms(number);
        let start = self.slot(number).start.load(Ordering::Acquire);
        let since = (number > 0).then(|| Since { nanos: start, tick: terms.tick(start) });
        Plan::compile(limiter, quota, self.quota(), &terms, since)
    }

    /// That of the word, which no change of quota touches.
    fn frame(&self) -> Frame {
        Frame { layout: self.layout, debt: self.floor >> self.layout.fraction }
    }

    #[inline(always)]
    fn slot(&self, number: u64) -> &Slot {
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
            layout: self.layout,
            ticks: slot.ticks(),
            base: slot.base.load(Ordering::Acquire),
            mask: self.mask,
            floor: self.floor,
            capacity: slot.capacity.load(Ordering::Acquire),
            horizon: slot.horizon.load(Ordering::Acquire),
        }
    }

    /// Whether the counts of the latest regime are its own.
    #[cfg(all(test, any(loom, shuttle)))]
    pub(crate) fn counts_as_it_ticks(&self, clock: &Clock) -> bool {
        let slot = self.slot(self.published.load(Ordering::SeqCst));
        let (whole, part) = clock.scale();
        slot.counted() == slot.ticks().counted(whole, part)
    }

    /// Starts the regime after this one, if it is published and nobody else does.
    #[cold]
    pub(crate) fn start_after(&self, number: u64, clock: &Clock) {
        let (old, next) = (self.slot(number), number + 1);
        let slot = self.slot(next);
        let agree = |word: &AtomicU64, value| {
            word.compare_exchange(undecided(next), value, Ordering::AcqRel, Ordering::Acquire)
                .map_or_else(|decided| decided, |_| value)
        };
        // Read after the publication was seen, whatever memory the clock is kept in.
        if !broken(Control::Unfenced) {
            fence(Ordering::SeqCst);
        }
        let start = agree(&slot.start, clock.nanos());
        // If somebody has gone further meanwhile, the slot may be a later regime's: then nothing of this is agreed on.
        let tick = old.base.load(Ordering::Acquire).wrapping_add(old.ticks().tick(start));
        let base = tick.wrapping_sub(slot.ticks().tick(start)) & !UNDECIDED;
        agree(&slot.base, base);
        let _ = self.started.compare_exchange(number, next, Ordering::AcqRel, Ordering::Relaxed);
    }
}

impl Source for Regimes {
    #[inline(always)]
    fn read(&self, clock: &Clock, before: Option<u64>) -> Reading {
        loop {
            let number = self.started.load(Ordering::Acquire);
            // The clock first: what is loaded before it would have to be kept in memory over the call.
            let nanos = before.unwrap_or_else(|| clock.nanos());
            let pace = self.terms(number);
            if number == 0 && self.slots[0].counted_gear.load(Ordering::Acquire) == 0 {
                // Never in place of a later regime's: neither word of those is 0.
                let unless_known = |word: &AtomicU64, value| {
                    if broken(Control::CountedAnyway) {
                        return word.store(value, Ordering::Release);
                    }
                    let _ = word.compare_exchange(0, value, Ordering::AcqRel, Ordering::Relaxed);
                };
                self.slots[0].count(pace.ticks, clock, unless_known);
            }
            if self.published.load(Ordering::SeqCst) == number || broken(Control::NoRecheck) {
                return Reading::new(pace, nanos);
            }
            self.start_after(number, clock);
        }
    }

    #[inline(always)]
    fn admitted(&self, state: State, count: u64, counted: bool) -> Once {
        let number = self.started.load(Ordering::Acquire);
        let slot = self.slot(number);
        let ticks = if counted { slot.counted() } else { slot.ticks() };
        let base = slot.base.load(Ordering::Acquire);
        let capacity = slot.capacity.load(Ordering::Acquire);
        let near = if counted { slot.near.load(Ordering::Acquire) } else { u64::MAX };
        let known = !counted || ticks.gear != 0;
        let in_force = self.published.load(Ordering::SeqCst) == number || broken(Control::NoRecheck);
        // What never changes comes last, and the layout by its fields: so each is loaded where it is needed, if it is. Loaded
        // before the rest they were kept in memory, and the layout as a whole was taken apart again: 9 instructions.
        let Layout { fraction, scale, stamp, fixed_debt } = self.layout;
        let layout = Layout { fraction, scale, stamp, fixed_debt };
        let (mask, floor) = (self.mask, self.floor);
        // Whatever is admitted is below the horizon.
        let pace = Terms { layout, ticks, base, mask, floor, capacity, horizon: mask };
        let reading = Reading::new(pace, count);
        Once { reading, near, fits: known && in_force && state.admits_once(&reading, self.half) }
    }

    fn changed(&self) -> Option<u64> {
        let number = self.started.load(Ordering::Acquire);
        let start = self.slot(number).start.load(Ordering::Acquire);
        // Another change is under way: that is as late as any.
        if number == 0 { None } else { Some(if start < UNDECIDED { start } else { u64::MAX }) }
    }
}
