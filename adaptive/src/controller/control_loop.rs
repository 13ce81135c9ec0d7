//! A limit that adapts: its signals, its controller, and the run of the controller by a calling
//! thread.

use std::cell::Cell;
use std::sync::atomic::AtomicU64 as Count;
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use crate::controller::controllers::{AnyController, Bounds, Move, PLACE};
use crate::count::atomic_word::AtomicFlightWord;
use crate::fault::{Fault, injected};
use crate::invalid_limit::InvalidLimit;
use crate::signals::counters::{Answered, Baseline, Signals};
use crate::signals::samples::Samples;
use crate::sync::{AtomicU64, MODEL, Mutex, MutexGuard, Ordering};
use tollgate::Clock;

/// The refusals of a thread from one reading of the clock to the next: a reading costs as much as
/// ten refusals.
const LOOKS_EACH: u32 = 64;

/// The part of a limit by which it may rise at once without a new start of the samples, and the
/// part for all such rises together: latencies rise by less than their histogram can tell.
const SMALL_RISE: u64 = 64;
const SMALL_RISES: u64 = 16;

/// The parts of an [`Inflight`] that follows its answers.
///
/// No thread waits. Of the threads that enter or leave after `next`, the one whose compare-and-swap
/// on `next` succeeds runs the controller, unless another thread still does.
pub(crate) struct ControlLoop {
    pub(crate) clock: Clock,
    pub(crate) signals: Signals,
    /// The reading at which the controller is due, in nanoseconds.
    next: AtomicU64,
    control: Mutex<Control>,
    bounds: Bounds,
    interval: u64,
    /// The nanoseconds after which a request that its caller gives up counts as overloaded.
    target: u64,
    pub(crate) changes: Changes,
}

/// Counts of the changes of a limit, by their reason. Relaxed: they are statistics.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) rose: Count,
    pub(crate) fell: Count,
    pub(crate) in_vain: Count,
    pub(crate) stalled: Count,
}

struct Control {
    controller: AnyController,
    /// The limit in sixteenths.
    exact: u64,
    /// The limit at its last change that was no small rise, in sixteenths.
    changed: u64,
    since: Baseline,
}

/// The numbers of an [`ControlLoop`].
pub(crate) struct LoopOptions {
    pub(crate) clock: Clock,
    pub(crate) controller: AnyController,
    pub(crate) floor: u32,
    pub(crate) ceiling: u32,
    pub(crate) start: u32,
    pub(crate) interval: u64,
    pub(crate) target: u64,
}

impl ControlLoop {
    pub(crate) fn new(options: LoopOptions) -> ControlLoop {
        let LoopOptions { clock, controller, floor, ceiling, start, interval, target } = options;
        let now = clock.now().as_nanos();
        let signals = Signals::new(now);
        let since = signals.baseline(now);
        let places = |limit: u32| u64::from(limit) * PLACE;
        ControlLoop {
            clock,
            signals,
            next: AtomicU64::new(now.saturating_add(interval)),
            control: Mutex::new(Control { controller, exact: places(start), changed: places(start), since }),
            bounds: Bounds { floor: places(floor), ceiling: places(ceiling) },
            interval,
            target,
            changes: Changes::default(),
        }
    }

    /// Reads the clock, and runs the controller if it is due.
    #[inline]
    pub(crate) fn tick(&self, word: &AtomicFlightWord) -> u64 {
        let now = self.clock.now().as_nanos();
        if now >= self.next.load(Ordering::Relaxed) {
            self.run(word, now);
        }
        now
    }

    /// Notes a refused request. A thread reads the clock at one of [`LOOKS_EACH`] refusals only.
    /// While a limit is full and no request ends, only these readings run the controller.
    #[inline]
    pub(crate) fn note_refused(&self, word: &AtomicFlightWord) {
        thread_local! {
            static REFUSALS: Cell<u32> = const { Cell::new(0) };
        }
        self.signals.note_refused();
        let refusals = REFUSALS.get();
        REFUSALS.set(refusals.wrapping_add(1));
        // The threads of a model share one thread-local count.
        if MODEL || refusals.is_multiple_of(LOOKS_EACH) {
            self.look(word);
        }
    }

    /// Runs the controller if it is due, apart from the code of the other refusals.
    #[cold]
    fn look(&self, word: &AtomicFlightWord) {
        self.tick(word);
    }

    /// Notes the outcome of a request that was admitted at a reading. Returns its latency in
    /// nanoseconds.
    #[inline]
    pub(crate) fn note(&self, word: &AtomicFlightWord, start: u64, answer: Option<Answered>) -> u64 {
        let now = self.tick(word);
        self.record(now, start, answer)
    }

    /// Notes an outcome at a reading of the clock. Returns the latency in nanoseconds.
    #[inline]
    pub(crate) fn record(&self, now: u64, start: u64, answer: Option<Answered>) -> u64 {
        let latency = now.saturating_sub(start);
        let is_sample = self.signals.is_sample(start) || injected(Fault::OldSamples);
        match answer {
            Some(Answered::InTime) if is_sample => self.signals.latencies.note_nanos(latency),
            Some(Answered::Overloaded) if is_sample => add(&self.signals.overloaded),
            Some(Answered::Failed) => add(&self.signals.failed),
            None if is_sample && latency > self.target => add(&self.signals.overloaded),
            _ => {}
        }
        latency
    }

    #[cold]
    fn run(&self, word: &AtomicFlightWord, now: u64) {
        // A panic of the controller beside another one would end the process.
        if std::thread::panicking() {
            return;
        }
        let due = self.next.load(Ordering::Relaxed);
        if injected(Fault::TwoControllers) {
            self.decide(word, &mut self.control(), now);
            self.next.store(now.saturating_add(self.interval), Ordering::Relaxed);
            return;
        }
        let after = now.saturating_add(self.interval);
        let won = now >= due
            && self.next.compare_exchange(due, after, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let free = || match self.control.try_lock() {
            Ok(control) => Some(control),
            // A controller that panicked runs again.
            Err(TryLockError::Poisoned(control)) => Some(control.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if won && let Some(mut control) = free() {
            let waits = self.decide(word, &mut control, now);
            if waits {
                // The window goes on: the controller runs again soon.
                self.next.store(now.saturating_add(self.interval / 8), Ordering::Relaxed);
            }
        }
    }

    /// Runs the controller on the window. Returns whether the window goes on.
    fn decide(&self, word: &AtomicFlightWord, control: &mut Control, now: u64) -> bool {
        let Control { controller, exact, changed, since } = control;
        let samples = self.signals.seen(since, now);
        let before = *exact;
        let verdict = controller.next(&samples, before, self.bounds);
        let next = match verdict {
            Move::Wait => return true,
            Move::Stay => before,
            Move::To(wanted) => self.bounds.next(before, wanted),
            Move::Back(to) => to.clamp(self.bounds.floor, self.bounds.ceiling),
        };
        if next == before {
            *since = self.signals.begin(now, word.load().count());
            return false;
        }
        self.count(verdict, &samples, next > before);
        let is_small = next > before
            && next - before <= before / SMALL_RISE
            && next.saturating_sub(*changed) <= *changed / SMALL_RISES;
        self.put(word, control, next, is_small);
        false
    }

    /// Counts a change by its reason.
    fn count(&self, verdict: Move, samples: &Samples, rises: bool) {
        add_to(match (verdict, rises, samples.count()) {
            (Move::Back(_), _, _) => &self.changes.in_vain,
            (_, true, _) => &self.changes.rose,
            (_, false, 0) => &self.changes.stalled,
            (_, false, _) => &self.changes.fell,
        });
    }

    /// Puts a limit in force, and begins a window: of the requests that it admits, unless it is a
    /// small rise.
    fn put(&self, word: &AtomicFlightWord, control: &mut Control, exact: u64, is_small_rise: bool) {
        control.exact = exact;
        // At most the ceiling, a `u32`.
        word.put_limit((exact / PLACE) as u32);
        let now = self.clock.now().as_nanos();
        if !is_small_rise {
            control.changed = exact;
            self.signals.changed.store(now, Ordering::Relaxed);
        }
        control.since = self.signals.begin(now, word.load().count());
    }

    /// Puts a limit in force that was chosen by hand, from which the controller goes on.
    pub(crate) fn set(&self, word: &AtomicFlightWord, limit: u32) -> Result<(), InvalidLimit> {
        let Bounds { floor, ceiling } = self.bounds;
        InvalidLimit::check("a limit", limit, ((floor / PLACE).into(), (ceiling / PLACE).into()))?;
        self.set_clamped(word, limit);
        Ok(())
    }

    /// Like [`set`](ControlLoop::set), within the floor and the ceiling. Returns the limit.
    pub(crate) fn set_clamped(&self, word: &AtomicFlightWord, limit: u32) -> u32 {
        let limit = (u64::from(limit) * PLACE).clamp(self.bounds.floor, self.bounds.ceiling);
        let mut control = self.control();
        control.controller.forget();
        self.put(word, &mut control, limit, false);
        // At most the ceiling, a `u32`.
        (limit / PLACE) as u32
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the target in force.
    pub(crate) fn target(&self) -> Duration {
        let of = |control: &Control| match &control.controller {
            AnyController::Target(target) => target.target,
            AnyController::Custom { .. } => self.target,
        };
        Duration::from_nanos(of(&self.control()))
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn add_to(counter: &Count) {
    counter.fetch_add(1, Ordering::Relaxed);
}
