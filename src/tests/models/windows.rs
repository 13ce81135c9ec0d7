// promise: law, never-late
//! A word that counts windows, beside takers, stale readings and a clock that passes an edge.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::world::{SECOND, attempts, fixed_window};
use super::{explore, run};
use crate::bucket::atomic::{Bucket, Order};
use crate::bucket::engine::{At, Done, Engine, Now};
use crate::bucket::live_terms::LiveTerms;
use crate::bucket::receipt::{Receipt, Settle};
use crate::keyed::idle;
use crate::rule::gate::Gate;
use crate::rule::layout::Layout;
use crate::rule::window::Window;
use crate::rule::window_layout::{FIRST_USE_TICKS, WindowLayout};
use crate::sync::{AtomicU64, Ordering};
use crate::time::clock::{Clock, MockClock, Moment};
use crate::time::wall::WallShift;
use crate::word::decision::Granted;
use crate::word::state::{State, TakeOutcome};
use crate::word::verb::{Call, Take};

const PERIOD: u64 = 12 * SECOND;

/// One window, and the grants on it: the time and the tokens of each.
struct World {
    engine: Engine,
    mock: MockClock,
    word: Bucket,
    /// Ticks of a period.
    ticks: u64,
    grants: Mutex<Vec<(u64, u64)>>,
}

/// Returns a window of this many tokens each 12 s.
fn window(limit: u64) -> Window {
    Window::per(limit, Duration::from_nanos(PERIOD))
}

impl World {
    fn new(window: Window) -> Arc<World> {
        let (clock, mock) = Clock::mock();
        World::on(window, fixed_window(window), clock, mock)
    }

    fn on(window: Window, live: LiveTerms, clock: Clock, mock: MockClock) -> Arc<World> {
        let (engine, ticks) = (Engine::new(live, clock, None), window.layout().unwrap().numbers.tokens);
        Arc::new(World { engine, mock, word: Bucket::new(), ticks, grants: Mutex::default() })
    }

    fn pass(&self, seconds: u64) {
        self.mock.advance(Duration::from_secs(seconds));
    }

    /// Takes `n` tokens in the way of a limiter: an attempt, then the loop.
    fn take(&self, n: u64) -> bool {
        match attempts(&self.engine, Order::WordFirst, &self.word, n) {
            // A reading that is behind the stamp counts at the stamp.
            Some((outcome, reading)) => self.note(outcome.granted, reading.nanos() + self.behind(outcome), n),
            None => {
                let done = self.charge(n, None);
                self.note(done.outcome.granted, done.reading.nanos(), n)
            }
        }
    }

    /// Takes `n` tokens at an earlier reading.
    fn take_at(&self, now: Moment, n: u64) -> bool {
        let Done { outcome, reading, .. } = self.charge(n, Some(now));
        self.note(outcome.granted, reading.nanos() + self.behind(outcome), n)
    }

    fn charge(&self, n: u64, now: Option<Moment>) -> Done {
        let (engine, call) = (&self.engine, Call::from(Take::Exactly(n)));
        let done = match now {
            None => engine.charge(&self.word, Some(State::FULL), Now(engine), call),
            Some(now) => engine.charge(&self.word, Some(State::FULL), At(engine, now), call),
        };
        done.expect("it is never sealed")
    }

    /// Returns the time from a reading to the stamp that it is behind.
    fn behind(&self, outcome: TakeOutcome) -> u64 {
        // In a window from the first use, a lag counts to the end of the window.
        let length = if self.ticks == FIRST_USE_TICKS { FIRST_USE_TICKS + 1 } else { 0 };
        let ticks = outcome.lag.saturating_sub(length);
        ticks * PERIOD / self.ticks
    }

    fn note(&self, granted: bool, at: u64, n: u64) -> bool {
        if granted {
            self.grants.lock().unwrap_or_else(PoisonError::into_inner).push((at, n));
        }
        granted
    }

    /// Returns the time of the earliest grant.
    fn first_grant(&self) -> u64 {
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.iter().map(|(at, _)| *at).min().expect("a token was granted")
    }

    /// Returns the tokens granted in the `span` nanoseconds from the time `from` on.
    fn granted(&self, from: u64, span: u64) -> u64 {
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.iter().filter(|(at, _)| (from..from + span).contains(at)).map(|(_, n)| n).sum()
    }

    fn left(&self) -> u64 {
        let call = Call::from(Take::Exactly(0));
        let Done { outcome, reading, .. } = self.engine.look(&self.word, Now(&self.engine), call).1;
        let granted: Granted = call.granted(outcome, &reading);
        granted.remaining()
    }

    fn run(self: &Arc<World>, threads: &[fn(&World)]) {
        run(self, threads);
    }
}

#[test]
fn takers_over_an_edge() {
    explore("a fixed window, takers over an edge", || {
        let world = World::new(window(1).utc());
        world.pass(11);
        world.run(&[|world| _ = world.take(1), |world| _ = world.take(1), |world| world.pass(1)]);
        assert!(world.granted(0, PERIOD) <= 1 && world.granted(PERIOD, PERIOD) <= 1);
        assert_eq!(world.left(), 1 - world.granted(PERIOD, PERIOD));
    });
}

/// A reading in the window before counts in the window of the stamp.
#[test]
fn a_stale_reading_opens_no_window_again() {
    explore("a fixed window, a stale reading", || {
        let world = World::new(window(1).utc());
        world.pass(11);
        assert!(world.take(1));
        world.run(&[
            |world| {
                let now = world.engine.clock.now();
                world.take_at(now, 1);
            },
            |world| {
                world.pass(1);
                world.take(1);
            },
        ]);
        world.take(1);
        assert!(world.granted(0, PERIOD) <= 1 && world.granted(PERIOD, PERIOD) <= 1);
    });
}

#[test]
fn a_window_from_the_first_use_ends_a_period_after_it() {
    explore("a window from the first use", || {
        let world = World::new(window(2));
        world.pass(5);
        world.run(&[|world| _ = world.take(1), |world| _ = world.take(1), |world| world.pass(4)]);
        let first = world.first_grant();
        assert_eq!((world.left(), world.take(1)), (0, false));
        world.mock.advance(Duration::from_nanos(first + PERIOD - 1 - 9 * SECOND));
        assert!(!world.take(1), "the window is not over");
        world.mock.advance(Duration::from_nanos(2 * PERIOD / FIRST_USE_TICKS));
        assert!(world.take(2), "the window is over");
    });
}

/// No period has more than the limit, and each token comes back at most a sub-window late.
#[test]
fn a_sliding_window_over_the_edges_of_sub_windows() {
    explore("a sliding window", || {
        let window = window(2).granularity(Duration::from_secs(12)).unwrap();
        let sub = window.sub_window().unwrap();
        let world = World::new(window);
        // The last nanosecond of a sub-window.
        world.mock.advance(sub - Duration::from_nanos(1));
        world.run(&[
            |world| _ = world.take(1),
            |world| {
                world.pass(2);
                world.take(1);
            },
        ]);
        let first = world.first_grant();
        for until in [first + 11 * SECOND, first + PERIOD - 1, first + PERIOD + SECOND] {
            world.mock.advance(Duration::from_nanos(until - world.engine.clock.nanos()));
            world.take(1);
            assert!(world.granted((until + 1).saturating_sub(PERIOD), PERIOD) <= 2);
        }
        world.mock.advance(window.period() + sub);
        assert!(world.take(2), "all are forgotten after a period and a sub-window");
    });
}

/// An undone take leaves the tokens of other takes in their sub-windows.
#[test]
fn an_undo_takes_back_its_own_tokens() {
    explore("a sliding window, an undo", || {
        let world = World::new(window(2).granularity(Duration::from_secs(12)).unwrap());
        let done = world.charge(1, None);
        let receipt = Receipt::new(done.outcome, &done.reading, None);
        world.run(&[|world| world.pass(4), |world| _ = world.take(1)]);
        world.engine.settle(&world.word, None, Settle::Undo(&receipt));
        let last = world.first_grant();
        assert_eq!(world.left(), 1);
        // Still within a period of the grant that stays.
        world.mock.advance(Duration::from_nanos(last + PERIOD - 1 - world.engine.clock.nanos()));
        world.take(1);
        world.take(1);
        assert!(world.granted(last, PERIOD) <= 2);
    });
}

/// A taker that has the limit of before commits on no word of a taker that has the one of now.
#[test]
fn a_taker_and_a_lower_limit() {
    explore("a fixed window, a taker and a lower limit", || {
        let window = window(2).utc();
        let WindowLayout { numbers, widths } = window.layout().unwrap();
        let (clock, mock) = Clock::mock();
        let world =
            World::on(window, LiveTerms::of(numbers, Gate::Counted, Layout { widths, debt: 0 }), clock, mock);
        world.run(&[
            |world| {
                world.engine.source.set_limit(1, &world.engine.clock).unwrap();
                world.take(1);
            },
            |world| _ = world.take(1),
        ]);
        assert_eq!((world.granted(0, PERIOD), world.take(1)), (1, false));
        world.engine.source.set_limit(2, &world.engine.clock).unwrap();
        assert_eq!((world.take(1), world.take(1)), (true, false), "a higher limit has room at once");
    });
}

/// The wall clock is set to the next window while takers run. It is looked up at least each second,
/// not counted on.
#[test]
fn a_window_by_the_calendar_follows_the_wall_clock() {
    explore("a fixed window, a wall clock that is set", || {
        let (monotonic, mock) = Clock::mock();
        let set = Arc::new(AtomicU64::new(0));
        let (shift, wall) = (WallShift::new(), Arc::clone(&set));
        let clock = Clock::from_fn(move || {
            let now = monotonic.nanos();
            Duration::from_nanos(shift.unix_at(now, || now, || now + wall.load(Ordering::SeqCst)))
        });
        let world = World::on(window(1).utc(), fixed_window(window(1).utc()), clock, mock);
        world.take(1);
        set.store(PERIOD, Ordering::SeqCst);
        world.run(&[|world| world.pass(1), |world| _ = world.take(1), |world| _ = world.take(1)]);
        world.take(1);
        assert_eq!((world.granted(0, PERIOD), world.granted(PERIOD, PERIOD)), (1, 1));
    });
}

/// Returns a window of 2 tokens each 12 s, whose stamp wraps after this time.
fn short_lived() -> (Arc<World>, Duration) {
    let window = window(2).granularity(Duration::from_secs(12)).unwrap();
    let WindowLayout { numbers, widths } = window.layout().unwrap();
    let (clock, mock) = Clock::mock();
    let world =
        World::on(window, LiveTerms::of(numbers, Gate::Counted, Layout { widths, debt: 0 }), clock, mock);
    (world, Duration::from_nanos((PERIOD << widths.stamp) / numbers.tokens))
}

impl World {
    /// Takes a token as a limiter does that sweeps its words when that is due.
    fn take_swept(&self) {
        self.engine.sweep_if_due(|| {
            let before = self.engine.read();
            idle::restamp(&self.engine, &self.word);
            self.engine.swept(&before);
        });
        self.take(1);
    }
}

/// A window that was left alone for a turn of its stamp, or for half of it, reads as unused to
/// takers that come together. One of them sweeps, or each does.
#[test]
fn a_window_that_was_left_alone_for_a_turn_is_unused() {
    explore("a sliding window after a turn of its stamp", || {
        let (world, turn) = short_lived();
        world.take_swept();
        world.take_swept();
        // A tick before the stamp reads as the present one.
        world.mock.advance(turn - Duration::from_nanos(PERIOD / world.ticks));
        world.run(&[World::take_swept, World::take_swept]);
        let now = world.engine.clock.nanos();
        assert_eq!(world.granted(now - PERIOD, 2 * PERIOD), 2, "the tokens of a turn before");
        assert!(!world.take(1), "the limit holds");
    });
}

/// Takers go on beside a thread that sweeps, and after another half of a turn each word has a stamp
/// of this turn.
#[test]
fn takers_beside_a_sweep_keep_to_the_limit() {
    explore("a sliding window, takers beside a sweep", || {
        let (world, turn) = short_lived();
        world.take_swept();
        world.mock.advance(turn / 2 + turn / 16);
        world.run(&[World::take_swept, |world| _ = world.take(1)]);
        world.take(1);
        let now = world.engine.clock.nanos();
        assert_eq!(world.granted(now - PERIOD, 2 * PERIOD), 2);
        world.mock.advance(turn);
        world.take_swept();
        world.take_swept();
        let now = world.engine.clock.nanos();
        assert_eq!(world.granted(now - PERIOD, 2 * PERIOD), 2);
    });
}

/// A window that an undone take began goes on for a period after the first grant that stays.
#[test]
fn an_undone_take_leaves_no_start_behind() {
    explore("a window from the first use, an undone take", || {
        let world = World::new(window(2));
        world.pass(5);
        let undone: fn(&World) = |world| {
            let done = world.charge(1, None);
            if done.outcome.granted {
                let receipt = Receipt::new(done.outcome, &done.reading, None);
                world.pass(4);
                world.engine.settle(&world.word, None, Settle::Undo(&receipt));
            }
        };
        world.run(&[undone, |world| _ = world.take(1), |world| world.pass(2)]);
        world.take(1);
        let first = world.first_grant();
        world.mock.advance(Duration::from_nanos(first + PERIOD - 1 - world.engine.clock.nanos()));
        world.take(1);
        world.take(1);
        assert!(world.granted(first, PERIOD) <= 2, "the window is over too early");
        // An undo ends at 11 s: a later start is not possible.
        world.mock.advance(Duration::from_nanos(6 * SECOND + 2 * PERIOD / FIRST_USE_TICKS));
        assert!(world.take(2), "the window is over");
    });
}

/// A window that a hold began ends a period later, also if the hold is settled at 0 after others
/// took.
#[test]
fn a_hold_that_is_settled_at_nothing_leaves_the_start() {
    explore("a window from the first use, a hold settled at 0", || {
        let world = World::new(window(3));
        let done = world.charge(1, None);
        let receipt = Receipt::new(done.outcome, &done.reading, None);
        world.pass(5);
        assert!(world.take(1));
        let held = Arc::new((world, receipt));
        let settle: fn(&(Arc<World>, Receipt)) = |(world, receipt)| {
            world.engine.settle(&world.word, None, Settle::Excess(receipt, 1));
        };
        run(&held, &[settle, |(world, _)| _ = world.take(1), |(world, _)| world.pass(4)]);
        let (world, _) = &*held;
        world.mock.advance(Duration::from_nanos(PERIOD - 1 - world.engine.clock.nanos()));
        assert_eq!((world.left(), world.take(2)), (1, false), "the window is not over");
        world.mock.advance(Duration::from_nanos(2 * PERIOD / FIRST_USE_TICKS));
        assert!(world.take(3), "the window is over");
    });
}

/// The excess of a hold comes back to its own window, or to none.
#[test]
fn a_hold_of_an_earlier_window_gives_nothing_back() {
    explore("a fixed window, a hold over an edge", || {
        let world = World::new(window(1).utc());
        world.pass(11);
        let done = world.charge(1, None);
        let receipt = Receipt::new(done.outcome, &done.reading, None);
        let held = Arc::new((world, receipt));
        let settle: fn(&(Arc<World>, Receipt)) = |(world, receipt)| {
            world.engine.settle(&world.word, None, Settle::Excess(receipt, 1));
        };
        run(&held, &[settle, |(world, _)| _ = world.take(1), |(world, _)| world.pass(1)]);
        let (world, _) = &*held;
        world.take(1);
        world.take(1);
        assert!(world.granted(0, PERIOD) <= 1 && world.granted(PERIOD, PERIOD) <= 1);
    });
}

/// A window on the default clock, and a reading of a coarse clock that goes through the same shift.
struct Beside {
    world: Arc<World>,
    shift: Arc<WallShift>,
    coarse: u64,
}

/// The reading of a coarse clock is half a second old. A taker with a fresh one beside it is in no
/// window that has not begun.
#[test]
fn a_stale_reading_begins_no_window_by_the_calendar_early() {
    explore("a fixed window, a stale reading of a coarse clock", || {
        let (monotonic, mock) = Clock::mock();
        let half = SECOND / 2;
        mock.advance(Duration::from_nanos(PERIOD - half / 2));
        let (coarse, shift) = (monotonic.nanos() - half, Arc::new(WallShift::new()));
        let shared = Arc::clone(&shift);
        let clock = Clock::from_fn(move || {
            // The wall clock agrees with the monotonic one.
            let line = || monotonic.nanos();
            Duration::from_nanos(shared.unix_at(line(), line, line))
        });
        let world = World::on(window(1).utc(), fixed_window(window(1).utc()), clock, mock);
        let beside = Arc::new(Beside { world, shift, coarse });
        let take = |Beside { world, .. }: &Beside| _ = world.take(1);
        let shift = |Beside { world, shift, coarse }: &Beside| {
            let line = || world.engine.clock.nanos();
            assert!(shift.unix_at(*coarse, line, line) <= *coarse, "a stale reading is early");
        };
        run(&beside, &[shift, take, take]);
        assert_eq!(beside.world.granted(0, 2 * PERIOD), 1, "the next window has not begun");
    });
}

/// limitador's window: expiry and value are two words, so three threads that find the window over
/// may get a token each, of one.
#[test]
fn a_new_window_is_opened_once() {
    explore("a fixed window, three takers of a new one", || {
        let world = World::new(window(1).utc());
        assert!(world.take(1));
        world.pass(12);
        world.run(&[|world| _ = world.take(1), |world| _ = world.take(1), |world| _ = world.take(1)]);
        assert_eq!((world.granted(PERIOD, PERIOD), world.left()), (1, 0));
    });
}
