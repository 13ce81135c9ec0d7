// promise: law
//! The line of callers that wait, beside timers, callers that leave, reservations and plain takes.

mod keys;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::explore;
use super::run;
use super::world::{SECOND, World, assert_law};
use crate::bucket::atomic::Bucket;
use crate::bucket::lease::Mode;
use crate::bucket::line::caller_line::{CallerLine, Entered, InLine, LineTurn, Wakes, Wish};
use crate::bucket::line::word_bank::WordBank;
use crate::bucket::receipt::{Receipt, Settle};
use crate::keyed::idle;
use crate::keyed::lines::LineId;
use crate::keyed::removals::UnlessRemoved;
use crate::sync::{Mutex, MutexGuard};
use crate::word::state::{Origin, State};
use crate::word::verb::{Reserve, Take};

/// The time that earns one token, in nanoseconds.
const SLOT: u64 = 10 * SECOND;

/// Notes that its caller was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A caller in line, as its task knows it.
#[derive(Clone, Default)]
struct Caller {
    waits: Option<InLine>,
    /// The time at which its timer is over.
    timer: u64,
    woken: Arc<Woken>,
}

/// A bucket with a debt of 4 tokens, and its line.
struct LineWorld {
    world: Arc<World>,
    line: Mutex<CallerLine>,
    /// Callers by number: A is 0.
    callers: [Mutex<Caller>; 6],
    /// Times and tokens of the grants of callers, and of reservations.
    granted: Mutex<Vec<(u64, u64)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl LineWorld {
    /// Creates a world whose bucket has given its burst.
    fn empty(burst: u64) -> Arc<LineWorld> {
        let world = World::new(burst);
        assert!(world.run_on(&world.alone, world.now(), Take::Exactly(burst)).outcome.granted);
        let granted = Mutex::new(vec![(0, burst)]);
        let callers = std::array::from_fn(|_| Mutex::new(Caller::default()));
        Arc::new(LineWorld { world, line: Mutex::new(CallerLine::default()), callers, granted })
    }

    fn now(&self) -> u64 {
        self.world.engine.clock.nanos()
    }

    fn advance(&self, seconds: u64) {
        self.world.mock.advance(Duration::from_secs(seconds));
    }

    fn note(&self, at: u64, n: u64) {
        locked(&self.granted).push((at, n));
    }

    fn granted(&self) -> u64 {
        locked(&self.granted).iter().map(|(_, n)| n).sum()
    }

    fn touch<T>(&self, run: impl FnOnce(&mut CallerLine, &mut WordBank<'_, &Bucket>, &mut Wakes) -> T) -> T {
        let (engine, mut wakes) = (&self.world.engine, Wakes::default());
        let mut line = locked(&self.line);
        let mode = Some(Mode::Plain(&self.world.alone));
        let result = run(&mut line, &mut WordBank::new(engine, mode, None, Some(State::FULL)), &mut wakes);
        drop(line);
        wakes.wake();
        result
    }

    /// Joins the line for `n` tokens, as caller `index`.
    fn join(&self, index: usize, n: u64) {
        let mut caller = locked(&self.callers[index]);
        let waker = Waker::from(caller.woken.clone());
        let wish = Wish { n, max_wait: u64::MAX, max_waiting: usize::MAX, waker: &waker };
        match self.touch(|line, bank, wakes| line.join(bank, &wish, wakes)) {
            Ok(Entered::Waits(waits)) => {
                caller.timer = self.now() + waits.wait;
                caller.waits = Some(waits);
            }
            Ok(Entered::Granted(_)) => self.note(self.now(), n),
            other => panic!("{other:?}"),
        }
    }

    /// Looks at the turn of a caller that waits for `n` tokens. Returns whether it waits on.
    fn look(&self, index: usize, n: u64) -> bool {
        let mut caller = locked(&self.callers[index]);
        let Some(waits) = caller.waits else { return false };
        let (fired, waker) = (caller.timer <= self.now(), Waker::from(caller.woken.clone()));
        caller.woken.0.store(false, Ordering::Relaxed);
        let looked = self.touch(|line, bank, wakes| line.look(bank, &waits, fired, &waker, wakes).0);
        match looked {
            LineTurn::Served => {
                caller.waits = None;
                self.note(self.now(), n);
            }
            LineTurn::Sets { wait } => caller.timer = self.now() + wait,
            LineTurn::Waits => {}
            other => panic!("the bucket is never lost or blocked: {other:?}"),
        }
        caller.waits.is_some()
    }

    fn leave(&self, index: usize) {
        if let Some(waits) = locked(&self.callers[index]).waits.take() {
            self.touch(|line, bank, wakes| line.leave(bank, waits.id, wakes));
        }
    }

    /// Reserves `n` tokens, and returns whether they were reserved.
    fn reserve(&self, n: u64) -> bool {
        let wanted = Reserve { n, keep: 0, max_wait: u64::MAX };
        let done = self.touch(|line, bank, wakes| {
            let tail = line.serve(bank, wakes);
            bank.reserve(tail, wanted, None)
        });
        let Some(Ok(done)) = done else { return false };
        if done.outcome.granted {
            let receipt = Receipt::new(done.outcome, &done.reading, None);
            self.note(done.reading.nanos() + receipt.delay.as_nanos() as u64, n);
        }
        done.outcome.granted
    }

    fn refund(&self, n: u64) {
        self.world.engine.settle(&self.world.alone, None, Settle::Refund(n));
        self.touch(|line, bank, wakes| _ = line.serve(bank, wakes));
    }

    fn take(&self) -> bool {
        let granted =
            self.world.run_on(&self.world.alone, self.world.now(), Take::Exactly(1)).outcome.granted;
        if granted {
            self.note(self.now(), 1);
        }
        granted
    }

    /// Asserts that a caller was woken, or that its timer is over at its turn.
    fn wakes_by(&self, index: usize, turn: u64) {
        let caller = locked(&self.callers[index]).clone();
        let woken = caller.woken.0.load(Ordering::Relaxed);
        assert!(woken || caller.timer <= turn, "its turn is at {turn} ns, its timer at {}", caller.timer);
    }

    fn law(&self, burst: u64) {
        assert_law(&locked(&self.granted), SLOT, burst);
    }
}

/// The first caller leaves when its time comes. It is served, and its token lost, or the second
/// caller has its place.
#[test]
fn a_caller_leaves_as_its_turn_comes() {
    explore("a caller that leaves, its time comes, the next one looks", || {
        let world = LineWorld::empty(1);
        world.join(0, 1);
        world.join(1, 1);
        run(
            &world,
            &[
                |world| world.leave(0),
                |world| world.advance(10),
                |world| {
                    world.look(1, 1);
                },
            ],
        );
        let early = !world.look(1, 1);
        assert!(early || world.granted() == 1);
        // No plain take passes a caller that waits, and none is refused its token otherwise.
        assert!(!world.take(), "at 10 s there was one token");
        world.advance(10);
        world.look(1, 1);
        assert_eq!(world.take(), early, "at 20 s there is another one");
        world.law(1);
    });
}

/// The end of a line goes back to the word, or a reservation stands behind it: never both.
#[test]
fn the_rest_of_a_line_goes_back_once() {
    explore("a caller that leaves, a reservation", || {
        let world = LineWorld::empty(1);
        world.join(0, 1);
        run(&world, &[|world| world.leave(0), |world| assert!(world.reserve(1)), |world| world.advance(5)]);
        assert!(world.reserve(1));
        world.law(1);
        // The times are 10 and 20 s, or 20 and 30 s.
        assert!(world.granted() == 3);
    });
}

/// A caller has no place yet; a smaller reservation beside it would have room.
#[test]
fn no_reservation_overtakes_a_caller() {
    explore("a caller without a place, a reservation", || {
        let world = LineWorld::empty(3);
        world.join(0, 3);
        run(
            &world,
            &[
                |world| world.join(1, 2),
                |world| {
                    world.reserve(1);
                },
                |world| world.advance(1),
            ],
        );
        let told = {
            let caller = locked(&world.callers[1]);
            caller.waits.expect("it waits").told
        };
        // It was told at 0 s or at 1 s.
        world.advance(29);
        while world.look(0, 3) {
            world.advance(1);
        }
        while world.look(1, 2) {
            world.advance(1);
            assert!(world.now() <= told + SECOND, "told {told}, and it waits at {}", world.now());
        }
        world.law(3);
    });
}

/// Both callers are due. Each look serves both, and each is served once.
#[test]
fn two_timers_at_once_serve_each_caller_once() {
    explore("two timers at once", || {
        let world = LineWorld::empty(1);
        world.join(0, 1);
        world.join(1, 1);
        let first: fn(&LineWorld) = |world| {
            world.look(0, 1);
        };
        let second: fn(&LineWorld) = |world| {
            world.look(1, 1);
        };
        run(&world, &[first, second, |world| world.advance(20)]);
        first(&world);
        second(&world);
        assert_eq!(world.granted(), 3);
        assert!(!world.take());
        world.advance(10);
        assert!(world.take() && !world.take());
    });
}

/// When no thread holds the mutex, the head's timer is at its turn, or the head was woken.
#[test]
fn the_head_has_its_timer_or_is_woken() {
    explore("the head leaves, the next one looks, another joins", || {
        let world = LineWorld::empty(2);
        world.join(0, 2);
        world.join(1, 1);
        run(
            &world,
            &[
                |world| world.leave(0),
                |world| {
                    world.look(1, 1);
                },
                |world| world.join(2, 1),
            ],
        );
        world.wakes_by(1, SLOT);
    });
}

/// A token comes back: the head is served a slot earlier, and the caller behind it after it.
#[test]
fn tokens_that_come_back_move_callers_up() {
    explore("a token comes back, the head looks, another joins", || {
        let world = LineWorld::empty(2);
        world.join(0, 2);
        run(
            &world,
            &[
                |world| world.refund(1),
                |world| {
                    world.look(0, 2);
                },
                |world| world.join(1, 1),
            ],
        );
        world.wakes_by(0, SLOT);
        world.advance(10);
        assert!(!world.look(0, 2) && !world.take() && world.look(1, 1));
        world.advance(10);
        assert!(!world.look(1, 1) && !world.take());
    });
}

/// A caller does not take a rest before a reservation and a rest behind it: it would get two tokens
/// a slot after the two of the reservation.
#[test]
fn a_place_is_in_one_run() {
    explore("two callers that leave around a reservation, another joins", || {
        let world = LineWorld::empty(2);
        world.join(0, 1);
        assert!(world.reserve(2));
        world.join(1, 1);
        run(&world, &[|world| world.leave(0), |world| world.join(2, 2), |world| world.leave(1)]);
        // Each second, the caller is served if it is due.
        while world.look(2, 2) {
            world.advance(1);
        }
        assert_eq!(world.granted(), 2 + 2 + 2);
        world.law(2);
    });
}

/// A rest that no caller has a place in is too old for the next ones after some time: they would
/// get five tokens at once.
#[test]
fn an_old_rest_is_given_up() {
    explore("an old rest, a caller looks, another joins, a taker", || {
        let world = LineWorld::empty(3);
        world.join(0, 2);
        // The debt has no room for it beside the first one.
        world.join(1, 3);
        world.leave(0);
        world.advance(50);
        run(
            &world,
            &[
                |world| world.join(2, 2),
                |world| {
                    world.look(1, 3);
                },
                |world| {
                    world.take();
                },
            ],
        );
        world.look(1, 3);
        world.look(2, 2);
        world.law(3);
    });
}
