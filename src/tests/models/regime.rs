// promise: law
//! A quota that changes beside takers, on a clock that moves in steps of 20 ms.
//!
//! The fast quota earns 20,000 tokens in a step, and the slow one none. The bucket has room for all
//! of them, and each taker takes all tokens that are there. So the sum of the takes is the sum of
//! the tokens earned, and shows which ticks counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use super::checker::{Gate, thread};
use super::explore;
use super::world::{SECOND, World};
use crate::bucket::live_terms::LiveTerms;
use crate::keyed::idle;
use crate::rule::gate;
use crate::rule::layout::{Layout, LayoutOptions};
use crate::rule::rate::Quota;
use crate::time::clock::Clock;
use crate::word::terms::EVICTION_GRACE;
use crate::word::verb::Take;

pub(super) const BURST: u64 = 100_000;
const STEP: u64 = 20_000_000;
/// Tokens that each quota earns in a step.
pub(super) const FAST: u64 = 20_000;
const MEDIUM: u64 = 2_000;
const SLOW: u64 = 0;

pub(super) const fn fast() -> Quota {
    Quota::per_second(1_000_000).burst(BURST)
}

pub(super) const fn medium() -> Quota {
    Quota::per_second(100_000).burst(BURST)
}

pub(super) const fn slow() -> Quota {
    Quota::every(Duration::from_secs(10)).burst(BURST)
}

pub(super) fn regimes(first: Quota, secondary: Quota) -> LiveTerms {
    let room = LayoutOptions { headroom: Some(secondary.numbers()), max_debt: Some(0) };
    LiveTerms::new(first, Layout::of(first.numbers(), room).unwrap())
}

/// Returns a world under the fast quota, with an empty bucket: its first burst was taken.
fn world() -> Arc<World> {
    let world = World::of(regimes(fast(), slow()));
    drain(&world);
    world
}

pub(super) fn drain(world: &World) {
    world.note(world.run_on(&world.alone, world.now(), Take::UpTo(BURST)));
}

pub(super) fn step(world: &World) {
    world.mock.advance(Duration::from_nanos(STEP));
}

pub(super) fn step_and_drain(world: &World) {
    step(world);
    drain(world);
}

pub(super) fn set(world: &World, quota: Quota) {
    world.engine.source.set(quota, &world.engine.clock).unwrap();
}

fn slow_down(world: &World) {
    set(world, slow());
}

/// Publishes the slow quota, like a setter that is stopped before it activates the version.
fn publish_slow(world: &World) {
    world.engine.source.publish(0, slow().numbers(), gate::Gate::Counted, &world.engine.clock);
}

/// Activates the published version, like the setter when it goes on.
fn go_on(world: &World) {
    world.engine.source.activate_next(0, &world.engine.clock);
}

/// Returns the number of steps until the last change.
pub(super) fn start(world: &World) -> u64 {
    let start = world.engine.source.changed().expect("the quota was changed");
    assert_eq!(start % STEP, 0, "the start is undecided");
    start / STEP
}

/// Returns the tokens taken after the first burst.
pub(super) fn earned(world: &World) -> u64 {
    world.granted() - BURST
}

#[test]
fn a_taker_and_a_change_of_quota() {
    explore("a taker, fast to slow, a step", || {
        let world = world();
        world.run(&[slow_down, drain, step]);
        step_and_drain(&world);
        assert_eq!(earned(&world), start(&world) * FAST);
    });
}

/// The clock is kept in memory and is not `SeqCst`, as one of a user may be. shuttle has no weak
/// memory.
#[test]
#[cfg(loom)]
fn a_start_on_a_relaxed_clock_is_not_before_a_reading_of_the_old_quota() {
    use loom::sync::atomic::AtomicU64;

    crate::sync::seq_cst_by_fences(|| {
        explore("a taker on a relaxed clock, fast to slow, a step", || {
            let nanos = Arc::new(AtomicU64::new(0));
            let (clock, ticker) = (Arc::clone(&nanos), nanos);
            let clock = Clock::from_fn(move || Duration::from_nanos(clock.load(Relaxed)));
            let world = World::on(regimes(fast(), slow()), clock, Clock::mock().1);
            drain(&world);
            let moved = Arc::clone(&ticker);
            let step = thread::spawn(move || moved.store(STEP, Relaxed));
            world.run(&[slow_down, drain]);
            step.join().unwrap();
            ticker.store(2 * STEP, Relaxed);
            drain(&world);
            assert_eq!(earned(&world), start(&world) * FAST);
        });
    });
}

#[test]
#[cfg_attr(loom, ignore = "400,000 executions: in the full run")]
fn a_change_of_quota_between_two_readers() {
    explore("two takers, fast to slow", || {
        let world = world();
        world.run(&[slow_down, step_and_drain, drain]);
        step_and_drain(&world);
        assert_eq!(earned(&world), start(&world) * FAST);
    });
}

#[test]
fn what_a_faster_quota_earns_counts_from_the_change_on() {
    explore("a taker, slow to fast, a step", || {
        let world = World::of(regimes(slow(), fast()));
        drain(&world);
        world.run(&[|world| set(world, fast()), drain, step]);
        step_and_drain(&world);
        assert_eq!(earned(&world), (2 - start(&world)) * FAST);
    });
}

/// The setter has published a version, and has not read the clock yet. If a taker waited for it,
/// the model would find the deadlock.
#[test]
fn nobody_waits_for_a_setter_that_was_stopped() {
    explore("two takers, a setter stopped half-way", || {
        let world = world();
        publish_slow(&world);
        world.run(&[step_and_drain, drain]);
        let agreed = start(&world);
        step(&world);
        go_on(&world);
        assert_eq!(start(&world), agreed);
        step_and_drain(&world);
        assert_eq!(earned(&world), agreed * FAST);
    });
}

fn two_setters(name: &str, meanwhile: fn(&World)) {
    explore(name, move || {
        let world = world();
        world.run(&[slow_down, |world| set(world, medium()), meanwhile]);
        step_and_drain(&world);
        let slow_last = world.engine.source.quota() == slow();
        let (first, last) = if slow_last { (MEDIUM, SLOW) } else { (SLOW, MEDIUM) };
        let earned = earned(&world);
        match start(&world) {
            0 => assert_eq!(earned, 2 * last),
            // The first change was before the step, or after it.
            _ => assert!(earned == first + last || earned == FAST + last, "{earned}"),
        }
    });
}

#[test]
fn two_setters_change_one_after_the_other() {
    two_setters("two setters, a step", step);
}

#[test]
#[cfg_attr(loom, ignore = "400,000 executions: in the full run")]
fn a_taker_between_two_setters() {
    two_setters("two setters, a taker", step_and_drain);
}

/// A clock that stops two threads at their readings. A setter waits until a taker has come to help,
/// and that taker until two more changes are made.
#[derive(Default)]
struct Detour {
    readings: AtomicU64,
    world: OnceLock<Weak<World>>,
    taker: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Detour {
    /// Stops a thread by the number of its reading. Number 0 is the setter's, and the next ones are
    /// the taker's.
    fn pass(&self, helps: &Gate, goes_on: &Gate) {
        let world = || self.world.get().and_then(Weak::upgrade).expect("the world stands");
        match self.readings.fetch_add(1, Relaxed) {
            0 => {
                let world = world();
                *self.taker.lock().unwrap() = Some(thread::spawn(move || drain(&world)));
                helps.wait();
            }
            // The taker has not seen the change yet.
            1 => {}
            2 => {
                helps.open();
                goes_on.wait();
            }
            LAST_CHANGE => goes_on.open(),
            _ => {}
        }
    }

    fn join(&self) {
        let taker = self.taker.lock().unwrap().take();
        taker.expect("it was started").join().unwrap();
    }
}

/// A number of readings that the threads do not reach by themselves.
const LAST_CHANGE: u64 = 1_000;

/// A helper thread that was stopped decides nothing for a later version. The third change has the
/// slot of the first.
#[test]
fn a_helper_that_was_stopped_decides_for_no_later_regime() {
    explore("a taker stopped for two changes, a third", || {
        let (at, gates) = (Arc::new(Detour::default()), [Gate::new(), Gate::new()]);
        at.readings.store(LAST_CHANGE + 1, Relaxed);
        let (mock_clock, mock) = Clock::mock();
        let detour = Arc::clone(&at);
        let clock = Clock::from_fn(move || {
            let nanos = mock_clock.nanos();
            detour.pass(&gates[0], &gates[1]);
            Duration::from_nanos(nanos)
        });
        let world = World::on(regimes(fast(), slow()), clock, mock);
        at.world.set(Arc::downgrade(&world)).expect("it is set once");
        drain(&world);
        at.readings.store(0, Relaxed);
        set(&world, slow());
        set(&world, medium());
        step(&world);
        at.readings.store(LAST_CHANGE, Relaxed);
        set(&world, fast());
        assert_eq!(start(&world), 1);
        step_and_drain(&world);
        at.join();
        assert_eq!(earned(&world), MEDIUM + FAST);
    });
}

/// A first reader that was stopped stores no raw tick scale for a later version. The second change
/// has the slot of version 0.
#[test]
fn a_first_reader_that_was_stopped_counts_for_no_later_regime() {
    explore("a first reader, two changes", || {
        let world = World::of(regimes(fast(), slow()));
        world.run(&[
            |world| {
                world.engine.read();
            },
            |world| {
                set(world, slow());
                set(world, medium());
            },
        ]);
        assert!(world.engine.source.counts_as_it_ticks(&world.engine.clock));
    });
}

#[test]
fn a_bucket_is_not_evicted_within_the_margin_after_a_change() {
    explore("a taker, an evictor, fast to slow", || {
        let quotas = [Quota::every(Duration::from_secs(1)), Quota::every(Duration::from_secs(10))];
        let world = World::of(regimes(quotas[0].burst(1), quotas[1].burst(1)));
        world.take();
        // The bucket has been full for the eviction grace under either quota.
        world.mock.advance(Duration::from_secs(100));
        world.run(&[
            |world| {
                set(world, Quota::every(Duration::from_secs(10)).burst(1));
                world.mock.advance(Duration::from_secs(1));
            },
            |world| {
                let nanos = || world.engine.clock.nanos();
                let (bucket, before) = (world.find().expect("nobody else evicts"), nanos());
                if idle::seal_if_idle(&world.engine, bucket).is_ok() {
                    let changed = world.engine.source.changed();
                    let calm =
                        changed.is_none_or(|start| before <= start || nanos() >= start + EVICTION_GRACE);
                    assert!(calm, "sealed after {before}, changed at {changed:?}");
                    world.remove_sealed();
                }
            },
        ]);
        world.take();
        world.take();
        assert_eq!(world.granted(), 2);
        world.assert_law(10 * SECOND, 1);
    });
}

/// The second change has the slot of version 0, whose start is long ago. The eviction grace counts
/// from the latest change all the same.
#[test]
fn a_bucket_is_not_evicted_within_the_margin_after_two_changes() {
    explore("an evictor, the second change", || {
        const QUOTAS: [Quota; 3] = [
            Quota::every(Duration::from_secs(1)).burst(1),
            Quota::every(Duration::from_secs(10)).burst(1),
            Quota::every(Duration::from_secs(5)).burst(1),
        ];
        let world = World::of(regimes(QUOTAS[0], QUOTAS[1]));
        world.take();
        world.mock.advance(Duration::from_secs(100));
        set(&world, QUOTAS[1]);
        world.run(&[
            |world| set(world, QUOTAS[2]),
            |world| {
                let bucket = world.find().expect("nobody else evicts");
                assert!(idle::seal_if_idle(&world.engine, bucket).is_err());
            },
        ]);
    });
}

/// A plan earns from the last change on, whichever thread activated that change.
#[test]
fn a_plan_after_a_setter_that_was_stopped() {
    explore("a setter that was stopped, a taker, a plan", || {
        let world = World::of(regimes(fast(), slow()));
        step(&world);
        publish_slow(&world);
        let plan = |world: &World| world.engine.source.plan(0, slow(), &world.engine.clock).unwrap();
        let (taker, maker) = (Arc::clone(&world), Arc::clone(&world));
        let taker = thread::spawn(move || drain(&taker));
        let made = Arc::new(std::sync::Mutex::new(None));
        let keep = Arc::clone(&made);
        let maker = thread::spawn(move || *keep.lock().unwrap() = Some(plan(&maker)));
        taker.join().unwrap();
        maker.join().unwrap();
        assert_eq!(*made.lock().unwrap(), Some(plan(&world)));
    });
}
