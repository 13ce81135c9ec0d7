// promise: state
//! States of limiters without room: of full ones, and of those whose keys come and go. Each is
//! restored, and no key has more than a model says.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use tollgate::{Clock, Limit, Places, Plan, Quota, RateLimiter, Rule, WhenFull, Window};

use super::{Hasher, Keys};
use crate::support::{Random, size};

const ROOMS: [usize; 5] = [0, 1, 8, 64, 1_000];
const HOUR: u64 = 3_600_000_000_000;

/// The store of a limiter. A map gets another hasher in each process.
fn build<R: Rule>(rule: R, clock: &Clock, store: (bool, usize), process: u64) -> Keys<R> {
    with_plan(rule, None, clock, store, process)
}

fn with_plan<R: Rule>(
    rule: R,
    plan: Option<R>,
    clock: &Clock,
    (is_table, room): (bool, usize),
    process: u64,
) -> Keys<R> {
    let hasher = Hasher { process: if is_table { 0 } else { process } };
    let builder = RateLimiter::builder(rule).clock(clock.clone()).hasher(hasher).max_keys(room);
    let builder = builder.plans(plan).expect("there is room for the plan");
    // A table of 0 keys is a map.
    let builder =
        if is_table { builder.max_keys(room.max(1)).inline().expect("it is small") } else { builder };
    builder.build()
}

/// Uses keys of a limiter, and restores the state into limiters of each size, fresh and in use,
/// twice. The tokens left are never more than those of the counts, and exactly those where there is
/// room.
fn check<R: Rule>(rule: R, limit: u64, is_table: bool) {
    let (clock, mock) = Clock::mock();
    mock.advance(Duration::from_nanos(1_000_000 * HOUR));
    let (keys, used) = (20_u64, |key: u64| 1 + key % 3);
    for (number, room) in ROOMS.into_iter().enumerate() {
        let saved = build(rule, &clock, (is_table, room), 0);
        for key in 0..keys {
            let _ = saved.key(&key).n(used(key)).acquire_up_to();
        }
        let kept: Vec<u64> = (0..keys).map(|key| saved.peek(&key).remaining()).collect();
        let ends = rule.to_string().contains("places");
        let bytes = saved.save();
        for later in ROOMS {
            for before in [0, 1, 20] {
                let restored = build(rule, &clock, (is_table, later), number as u64);
                let took: Vec<u64> =
                    (0..before).map(|key| restored.key(&key).acquire_up_to().tokens()).collect();
                for times in 1..3 {
                    restored
                        .restore(&bytes)
                        .unwrap_or_else(|error| panic!("{rule}, {room} to {later}: {error}"));
                    for key in 0..keys {
                        let taken = times * (limit - kept[key as usize]);
                        let taken = if ends { 0 } else { taken } + took.get(key as usize).unwrap_or(&0);
                        let (left, found) = (limit.saturating_sub(taken), restored.peek(&key).remaining());
                        let told =
                            || format!("{rule}, {room} to {later} after {before}: key {key}, {times} times");
                        assert!(found <= left, "{}: {found} of {left}", told());
                        assert!(found == left || room.min(later) < 1_000, "{}: {found} of {left}", told());
                    }
                }
            }
        }
    }
}

#[test]
fn a_state_is_restored_whatever_the_room_is() {
    for is_table in [false, true] {
        check(Quota::per_day(9), 9, is_table);
        check(Window::per_day(9), 9, is_table);
        check(Window::per_day(9).utc(), 9, is_table);
        check(Window::per_day(9).sliding(), 9, is_table);
        check(Window::per_day(9).weighted(), 9, is_table);
        check(Window::per_month(9), 9, is_table);
        check(Places::new(9), 9, is_table);
    }
}

/// One request before the restore took the room of a key, and none of the others is forgotten.
#[test]
fn a_full_state_is_restored_after_the_first_request() {
    for is_table in [false, true] {
        for when_full in [WhenFull::Share, WhenFull::Deny] {
            let (clock, _mock) = Clock::mock();
            let start = || {
                let builder =
                    RateLimiter::<u64>::builder(Quota::per_hour(5)).clock(clock.clone()).max_keys(8);
                let builder = builder.when_full(when_full).hasher(Hasher::default());
                if is_table { builder.inline().expect("it is small").build() } else { builder.build() }
            };
            let (limiter, restarted) = (start(), start());
            let held = (0..8).filter(|key| limiter.try_acquire_n(key, 5).is_ok()).count();
            assert!(held >= 4, "{held} keys found room");
            assert!(restarted.try_acquire(&100).is_ok());
            restarted.restore(&limiter.save()).expect("keys without room share");
            assert!((0..8).all(|key| restarted.try_acquire(&key).is_err()), "{is_table}, {when_full:?}");
        }
    }
}

/// Twenty restarts, and one take between: as many takes are counted, by each store and rule. So are
/// those of a state that is restored into its own limiter.
#[test]
fn restarts_count_each_take_once() {
    fn restarts<R: Rule>(rule: R, store: (bool, usize)) {
        let (clock, mock) = Clock::mock();
        mock.advance(Duration::from_nanos(1_000_000 * HOUR));
        // The keys from 1 on are many: some share.
        let others = 40;
        let start = |process| build(rule, &clock, store, process);
        let mut limiter = start(0);
        (1..others).for_each(|key| _ = limiter.try_acquire(&key));
        let has_room = store.1 > 40;
        for process in 1..21 {
            assert!(limiter.try_acquire(&0).is_ok(), "{rule}");
            let bytes = limiter.save();
            limiter = start(process);
            limiter.restore(&bytes).expect("it is of such a limiter");
            let left = limiter.peek(&0).remaining();
            assert!(left <= 1_000 - process, "{rule}: {left} left after {process} takes");
            assert!(!has_room || left == 1_000 - process, "{rule}: {left} left after {process} takes");
            // Keys that share have the takes of some others, and not more with each restart.
            let least = (1..others).map(|key| limiter.peek(&key).remaining()).min().expect("there are keys");
            let most = if has_room { 1 } else { 40 };
            assert!(least >= 1_000 - most, "{rule}, {store:?}: {least} left after {process} restarts");
        }
        let bytes = limiter.save();
        for times in 2..4 {
            limiter.restore(&bytes).expect("it is its own");
            let left = limiter.peek(&0).remaining();
            assert!(
                left <= 1_000 - 20 * times && (!has_room || left == 1_000 - 20 * times),
                "{rule}: {left}"
            );
        }
        let one = || Limit::builder(rule).clock(clock.clone()).build();
        let mut bucket = one();
        for taken in 1..21 {
            assert!(bucket.try_acquire().is_ok());
            let bytes = bucket.save();
            bucket = one();
            bucket.restore(&bytes).expect("it is of such a bucket");
            assert_eq!(bucket.peek().remaining(), 1_000 - taken, "{rule}");
        }
    }
    for store in [(false, 8), (false, 100), (true, 8), (true, 100)] {
        restarts(Quota::per_day(1_000), store);
        restarts(Window::per_day(1_000), store);
        restarts(Window::per_day(1_000).utc(), store);
        restarts(Window::per_day(1_000).sliding(), store);
        restarts(Window::per_day(1_000).weighted(), store);
    }
}

/// The tokens of a key, at most: those of an exact bucket, in 2^-20 tokens, at a time.
#[derive(Clone, Copy)]
struct Most {
    left: u64,
    at: u64,
}

const PART: u64 = 1 << 20;

/// The most tokens of each key. A restored key lacks those that it lacked in either limiter.
#[derive(Clone, Default)]
struct Model(HashMap<u64, Most>);

impl Model {
    /// Returns the tokens of a key at a time: `burst` at most, and one more in `nanos`.
    fn left(&self, key: u64, at: u64, (burst, nanos): (u64, u64)) -> u64 {
        let Some(most) = self.0.get(&key) else { return burst * PART };
        let earned = u128::from(at - most.at) * u128::from(PART) / u128::from(nanos) + 1;
        (most.left + u64::try_from(earned).unwrap_or(u64::MAX / 2)).min(burst * PART)
    }

    fn lacks(&mut self, key: u64, at: u64, n: u64, rate: (u64, u64)) {
        let left = self.left(key, at, rate).saturating_sub(n);
        self.0.insert(key, Most { left, at });
    }
}

/// A walk of one limiter and its restarts: its rule, its store, and the rates of its keys.
struct Walk {
    clock: Clock,
    quota: Quota,
    plan: Quota,
    is_table: bool,
    process: u64,
}

impl Walk {
    fn start(&mut self, random: &mut Random) -> (Keys<Quota>, Plan) {
        self.process += 1;
        let room = [1, 3, 8, 40][random.below(4) as usize];
        let process = random.below(2) * self.process;
        let limiter = with_plan(self.quota, Some(self.plan), &self.clock, (self.is_table, room), process);
        let plan = limiter.plan(self.plan).expect("it fits");
        (limiter, plan)
    }

    /// Returns the burst and the nanoseconds of a token of a key: odd ones are under the plan.
    fn rate(&self, key: u64) -> (u64, u64) {
        let quota = if key % 2 == 1 { self.plan } else { self.quota };
        let nanos = u64::try_from(quota.period().as_nanos()).expect("it is short") / quota.tokens();
        (quota.capacity(), nanos)
    }
}

/// Limiters of any size under keys that come and go, saved and restored at any time: into a new
/// limiter, into one in use, and into themselves. No state is refused, and no key has more than the
/// model.
#[test]
fn no_restart_refuses_a_state_or_grants_more_than_a_model() {
    let mut random = Random(54);
    let mut shared = 0;
    // 100,000 of them were tried by hand.
    let restarts = size(500, 4_000);
    for walk in 0..restarts / 10 {
        let (clock, mock) = Clock::mock();
        let nanos = 1 << (10 + random.below(30));
        let burst = 2 + random.below(9);
        let quota = Quota::per(1, Duration::from_nanos(nanos)).burst(burst);
        let plan = Quota::per(1, Duration::from_nanos(nanos / 2 * (1 + random.below(9)))).burst(burst);
        let mut walk = Walk { clock, quota, plan, is_table: walk % 2 == 0, process: 0 };
        let mut now = 1_000_000 * HOUR;
        mock.advance(Duration::from_nanos(now));
        let ((mut limiter, mut plan), mut model) = (walk.start(&mut random), Model::default());
        for _ in 0..10 {
            let (bytes, saved) = (limiter.save(), model.clone());
            shared += u64::from(limiter.stats().shared > 0);
            let to_itself = random.below(4) == 0;
            if !to_itself {
                (limiter, plan) = walk.start(&mut random);
                model = Model::default();
            }
            for call in 0..random.below(40) {
                if call == 10 || to_itself && call == 0 {
                    restore(&limiter, &bytes, &mut model, (&saved, now), &walk);
                }
                let (key, n) = (random.below(16), 1 + random.below(3));
                let ask = limiter.key(&key).n(n);
                let ask = if key % 2 == 1 { ask.under(&plan) } else { ask };
                let (found, most) = (ask.peek().remaining(), model.left(key, now, walk.rate(key)));
                assert!(found * PART <= most + PART / 16, "key {key}: {found}, and the most is {most} parts");
                if random.below(9) == 0 {
                    limiter.remove(&key);
                    model.0.remove(&key);
                } else {
                    model.lacks(key, now, ask.acquire_up_to().tokens() * PART, walk.rate(key));
                }
                let passes = random.below(nanos) >> random.below(4);
                let passes = if random.below(20) == 0 { passes * 40 + 3_000_000_000 } else { passes };
                mock.advance(Duration::from_nanos(passes));
                now += passes;
            }
            restore(&limiter, &bytes, &mut model, (&saved, now), &walk);
        }
    }
    assert!(shared > restarts / 40, "{shared}");
}

fn restore(limiter: &Keys<Quota>, bytes: &[u8], model: &mut Model, (saved, now): (&Model, u64), walk: &Walk) {
    limiter.restore(bytes).expect("a state that was saved is restored");
    for key in saved.0.keys() {
        let rate = walk.rate(*key);
        model.lacks(*key, now, rate.0 * PART - saved.left(*key, now, rate), rate);
    }
}

/// Threads take and remove keys of full limiters while these are saved. Each state is restored,
/// into a new limiter and into the one in use.
#[test]
fn a_state_that_is_saved_while_keys_come_and_go_is_restored() {
    for is_table in [false, true] {
        let (clock, mock) = Clock::mock();
        let start = || build(Quota::per_second(1_000_000).burst(4), &clock, (is_table, 8), 0);
        let (limiter, stop) = (start(), AtomicBool::new(false));
        thread::scope(|scope| {
            for thread in 0..2_u64 {
                let (limiter, stop, mock) = (&limiter, &stop, mock.clone());
                scope.spawn(move || {
                    let random = &mut Random(thread);
                    while !stop.load(Relaxed) {
                        let key = random.below(64);
                        let _ = limiter.key(&key).n(4).acquire_up_to();
                        match random.below(8) {
                            0 => _ = limiter.remove(&key),
                            1 => mock.advance(Duration::from_secs(3)),
                            _ => {}
                        }
                    }
                });
            }
            let refused = (0..size(200, 2_000)).filter_map(|save| {
                let bytes = limiter.save();
                let into_its_own = save % 50 == 0;
                [start().restore(&bytes).err(), into_its_own.then(|| limiter.restore(&bytes).err()).flatten()]
                    .into_iter()
                    .flatten()
                    .next()
            });
            let refused: Vec<_> = refused.collect();
            stop.store(true, Relaxed);
            assert!(refused.is_empty(), "{} refused: {:?}", refused.len(), refused[0]);
        });
    }
}
