// promise: state
//! State over a restart: a restored limiter beside one that went on, under the same calls.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use tollgate::{
    Clock, KeyBytes, MockClock, NotRestored, Places, Plan, Quota, RateLimiter, Rule, TokenBucket, Window,
    WindowCounter,
};

use crate::support::Random;

type Hasher = BuildHasherDefault<DefaultHasher>;
type Keys<R> = RateLimiter<u64, R, Hasher>;

/// A limiter with its plan.
struct Side<R: Rule> {
    limiter: Keys<R>,
    plan: Plan<R>,
}

/// A rule, one that it is changed to, and one of a plan.
type Rules<R> = [R; 3];

/// The verbs that only some rules have.
trait Verbs: Rule {
    fn reserve(limiter: &Keys<Self>, key: u64, n: u64, uses: bool) -> u64;
}

impl Verbs for Quota {
    fn reserve(limiter: &Keys<Quota>, key: u64, n: u64, uses: bool) -> u64 {
        match limiter.key(&key).n(n).reserve() {
            Ok(promised) if uses => promised.commit().tokens(),
            _ => 0,
        }
    }
}

impl Verbs for Window {
    fn reserve(limiter: &Keys<Window>, key: u64, n: u64, _: bool) -> u64 {
        limiter.key(&key).n(n).keep(25).try_acquire().map_or(0, |granted| granted.tokens())
    }
}

impl<R: Verbs> Side<R> {
    fn new(limiter: Keys<R>, plan: R) -> Side<R> {
        let plan = limiter.plan(plan).expect("there is room for the plan");
        Side { limiter, plan }
    }

    /// Makes a call, and returns the tokens that it was granted, and those that are left.
    fn call(&self, verb: u64, key: u64, n: u64) -> (u64, u64) {
        let ask = self.limiter.key(&key).n(n);
        let granted = match verb {
            0 => ask.under(&self.plan).acquire_up_to().tokens(),
            1 => ask.acquire_up_to().tokens(),
            2 => R::reserve(&self.limiter, key, n, key.is_multiple_of(2)),
            3 => ask.hold().map_or(0, |hold| n + key - hold.settle(n + key)),
            4 => {
                ask.refund();
                0
            }
            5 => self.limiter.shared().n(n).acquire_up_to().tokens(),
            6 => {
                self.limiter.remove(&key);
                0
            }
            7 => ask.under(&self.plan).try_acquire().map_or(0, |granted| granted.tokens()),
            _ => ask.try_acquire().map_or(0, |granted| granted.tokens()),
        };
        (granted, self.limiter.peek(&key).remaining())
    }
}

/// The events of a trial that allow a restored limiter to grant less.
#[derive(Debug, Default)]
struct Less {
    /// The limiter ran out of room: keys share buckets, and its hand stood elsewhere.
    full: bool,
    /// The clock was set back at the save.
    set_back: bool,
    /// The rule was changed: the ticks of plans count from another beginning.
    changed: bool,
}

fn advance(random: &mut Random, clock: &MockClock, span: u64, less: &mut Less) {
    let nanos = span >> random.below(12);
    if random.below(40) == 0 {
        less.set_back = true;
        clock.rewind(Duration::from_nanos(random.below(nanos + 1)));
    }
    clock.advance(Duration::from_nanos(random.below(nanos + 1)));
}

fn trial<R: Verbs>(random: &mut Random, [rule, later, plan]: Rules<R>, span: u64) {
    let (clock, mock) = Clock::mock();
    mock.advance(Duration::from_nanos(random.next() >> random.below(30).max(3)));
    let (mut less, keys) = (Less::default(), 6);
    let store = random.below(4);
    less.full = store == 1;
    let build = || {
        let builder = RateLimiter::builder(rule).clock(clock.clone()).hasher(Hasher::default());
        let builder = builder.plans([plan]).and_then(|builder| builder.headroom(later));
        let builder = builder.expect("there is room");
        let builder = match store {
            0 => builder.max_keys(32).inline().expect("a small table"),
            1 => builder.max_keys(3),
            _ => builder,
        };
        Side::new(builder.build(), plan)
    };
    let went_on = build();
    for _ in 0..random.below(24) {
        went_on.call(random.below(12), random.below(keys), random.below(4));
        advance(random, &mock, span, &mut less);
        if random.below(16) == 0 {
            less.changed = true;
            went_on.limiter.set_rule(later).expect("there is headroom");
        }
    }
    let bytes = went_on.limiter.save();
    if random.below(2) == 0 {
        mock.advance(Duration::from_nanos(random.below(span) << random.below(12)));
    }
    let restored = build();
    if less.changed {
        assert!(restored.limiter.restore(&bytes).is_err() || rule == later);
        restored.limiter.set_rule(later).expect("there is headroom");
    }
    restored.limiter.restore(&bytes).expect("it is the state of such a limiter");
    for key in 0..keys {
        let both = [&went_on, &restored].map(|side| side.limiter.peek(&key));
        assert!(
            both[1].remaining() <= both[0].remaining(),
            "{rule}, {less:?}, key {key}: {both:?}, {:?}",
            [&went_on, &restored].map(|side| side.limiter.contains(&key))
        );
        if !less.full && !less.set_back {
            assert_eq!(both[1].remaining(), both[0].remaining(), "{rule}");
        }
    }
    let mut granted = [0, 0];
    for _ in 0..if less.full { 0 } else { random.below(24) } {
        let (verb, key, n) = (random.below(12), random.below(keys), random.below(4));
        let (on, back) = (went_on.call(verb, key, n), restored.call(verb, key, n));
        granted = [granted[0] + on.0, granted[1] + back.0];
        assert!(granted[1] <= granted[0], "{rule}: {back:?} after {on:?}, {less:?} {verb} {key} {n} {store}");
        if on != back {
            assert!(
                less.set_back || less.changed,
                "{rule}: {back:?}, and {on:?} without the restart, {less:?}"
            );
            return;
        }
        // Cores differ by less than the eviction grace.
        mock.rewind(Duration::from_millis(random.below(20)));
        mock.advance(
            Duration::from_millis(20) + Duration::from_nanos(random.below(span) >> random.below(12)),
        );
    }
}

#[test]
fn a_restored_limiter_grants_what_one_that_went_on_does() {
    const SECOND: u64 = 1_000_000_000;
    let random = &mut Random(45);
    for round in 0..100_000_u64 {
        let (limit, seconds) = (4 + random.below(9), 1 + random.below(600));
        let nanos = seconds * SECOND;
        let period = Duration::from_nanos(nanos);
        let window = Window::per(limit, period);
        let windows = |window: Window| {
            [window, window.with_limit(limit - 2).unwrap(), window.with_limit(limit + 3).unwrap()]
        };
        match round % 8 {
            0 => trial(random, windows(window), 2 * nanos),
            1 => trial(random, windows(window.sliding()), nanos),
            2 => trial(random, windows(window.weighted()), nanos),
            3 => trial(random, windows(Window::per_day(limit).utc()), 86_400 * SECOND),
            4 => trial(random, windows(Window::per_month(limit).utc_offset(-210)), 40 * 86_400 * SECOND),
            5 => {
                let slow = Quota::per(limit, period).burst(3);
                trial(random, [slow, slow.burst(9), Quota::per(2 * limit, period).burst(5)], nanos);
            }
            6 => {
                let quota: Quota = Quota::at_most(limit, period).burst(2);
                trial(random, [quota, Quota::per(3 * limit, period).burst(4), quota.burst(3)], nanos / limit);
            }
            _ => {
                let fast =
                    Quota::per(limit * 1_000, Duration::from_micros(7 * seconds)).burst(limit * 10_000);
                let (later, plan) = (fast.burst(limit * 15_000), fast.burst(limit * 14_000));
                trial(random, [fast, later, plan], 70_000 * seconds);
            }
        }
    }
}

fn reason(result: Result<(), NotRestored>) -> String {
    result.expect_err("it is refused").to_string()
}

#[test]
fn a_state_that_is_not_of_the_limiter_changes_nothing() {
    let (clock, _mock) = Clock::mock();
    let build = |quota: Quota| RateLimiter::<String>::builder(quota).clock(clock.clone());
    let limiter = build(Quota::per_hour(5)).build();
    assert!(limiter.key("ada").n(3).try_acquire().is_ok());
    let bytes = limiter.save();

    let other = build(Quota::per_hour(5)).max_keys(8).build();
    for len in 0..bytes.len() {
        assert!(other.restore(&bytes[..len]).is_err(), "cut to {len} bytes");
    }
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(other.restore(&damaged).is_err(), "damaged at {at}");
    }
    assert!(other.is_empty());
    let mut next = bytes.clone();
    next[8] = 2;
    assert_eq!(reason(other.restore(&next)), "the state has version 2, and this program reads version 1");
    assert_eq!(
        reason(build(Quota::per_hour(6)).build().restore(&bytes)),
        "the state is of `5/h burst 5`, and the limiter has `6/h burst 6`"
    );
    let roomy = build(Quota::per_hour(5)).headroom(Quota::per_hour(9_000)).unwrap().build();
    assert!(reason(roomy.restore(&bytes)).starts_with("the state is of words with other room"));
    let table = build(Quota::per_hour(5)).max_keys(8).inline().unwrap().build();
    assert_eq!(
        reason(table.restore(&bytes)),
        "the state is of a map of keys, and the limiter is a table of keys"
    );
    assert!(table.try_acquire("ada").is_ok());
    let another = build(Quota::per_hour(5)).max_keys(8).inline().unwrap().build();
    assert!(reason(another.restore(&table.save())).contains("another hasher"));
    let full = build(Quota::per_hour(5)).max_keys(0).build();
    assert_eq!(reason(full.restore(&bytes)), "the state has 1 keys, and the limiter has room for 0");
    let numbers = RateLimiter::<u32>::builder(Quota::per_hour(5)).clock(clock.clone()).build();
    assert!(reason(numbers.restore(&bytes)).contains("a key or a word"));

    other.restore(&bytes).expect("it is the state of such a limiter");
    assert_eq!(other.peek("ada").remaining(), 2);
}

#[test]
fn takes_of_before_and_of_another_state_count_as_well() {
    let (clock, _mock) = Clock::mock();
    let build = || RateLimiter::<u64>::builder(Quota::per_hour(9)).clock(clock.clone()).max_keys(1).build();
    let limiter = build();
    assert!(limiter.key(&1).n(4).try_acquire().is_ok());
    assert!(limiter.key(&2).n(3).try_acquire().is_ok(), "it shares a bucket");
    assert!(limiter.shared().n(5).try_acquire().is_ok());
    let bytes = limiter.save();
    let restored = build();
    restored.restore(&bytes).unwrap();
    let left = |key| restored.peek(&key).remaining();
    // By another hasher each bucket that keys share may be that of the key.
    assert_eq!((left(1), left(2), left(3)), (5, 6, 6));
    assert_eq!(restored.shared().peek().remaining(), 4);
    assert_eq!(reason(restored.restore(&bytes)), "the state has 1 keys, and the limiter has room for 0");

    let twice = RateLimiter::<u64>::builder(Quota::per_hour(9)).clock(clock.clone()).build();
    assert!(twice.key(&1).n(2).try_acquire().is_ok());
    twice.restore(&bytes.clone()).unwrap();
    assert_eq!(twice.peek(&1).remaining(), 3);
    twice.restore(&bytes).unwrap();
    assert_eq!(twice.peek(&1).remaining(), 0);
}

/// A table takes the keys of a full one, of any size that has room for them, fresh or in use.
#[test]
fn a_table_takes_the_keys_of_another_one() {
    let (clock, _mock) = Clock::mock();
    let build = |keys: usize| -> Keys<Quota> {
        let builder = RateLimiter::builder(Quota::per_hour(90)).clock(clock.clone());
        builder.hasher(Hasher::default()).max_keys(keys).inline().expect("a small table").build()
    };
    let used = |key: u64| 1 + key % 7;
    let full = build(6_000);
    let held = |keys: &Keys<Quota>| (0..6_600).filter(|key| keys.contains(key)).count();
    for key in 0..6_600 {
        assert!(full.key(&key).n(used(key)).try_acquire().is_ok());
    }
    let keys = held(&full);
    assert!(keys > 6_400 && full.stats().shared > 0, "{keys} keys have a slot");
    let bytes = full.save();
    for (size, before) in [(6_000, 0), (6_000, 1), (20_000, 0), (20_000, 7_000), (6_007, 0)] {
        let restored = build(size);
        for key in 0..before {
            assert!(restored.key(&key).n(2).try_acquire().is_ok());
        }
        restored.restore(&bytes).expect("there is room");
        // Keys for which there is no room share buckets, whose tokens others lack then.
        let all_fit = size == 20_000 || (size, before) == (6_000, 0);
        for key in (0..6_600).filter(|key| full.contains(key)) {
            let left = full.peek(&key).remaining() - if key < before { 2 } else { 0 };
            let found = restored.peek(&key).remaining();
            assert!(found == left || !all_fit && found < left, "{size}: key {key} has {found}, not {left}");
        }
        assert!(before > 0 || size == 6_007 || held(&restored) == keys, "{size}");
        assert!(restored.stats().keys >= held(&restored));
    }
}

#[test]
fn a_bucket_keeps_its_leases_its_debt_and_its_calendar() {
    let (clock, mock) = Clock::mock();
    let spread = || {
        let builder = TokenBucket::builder(Quota::per_second(1_000).burst(10_000));
        builder.clock(clock.clone()).spread().build()
    };
    let hot = spread();
    assert_eq!((0..200).filter(|_| hot.try_acquire().is_ok()).count(), 200);
    let restored = spread();
    restored.restore(&hot.save()).unwrap();
    assert_eq!(restored.peek().remaining(), 9_800);

    let owes = || TokenBucket::builder(Quota::per_second(1).burst(2)).clock(clock.clone()).build();
    let bucket = owes();
    assert!(bucket.try_acquire_n(2).is_ok());
    let _ = bucket.ask().n(2).reserve().unwrap().commit();
    let bytes = bucket.save();
    mock.advance(Duration::from_millis(1_500));
    let restored = owes();
    restored.restore(&bytes).unwrap();
    let wait = restored.try_acquire().unwrap_err().retry_after();
    assert_eq!(wait, Some(Duration::from_millis(1_500)));
    // A wall clock that is behind the save earns nothing.
    mock.rewind(Duration::from_secs(60));
    let behind = owes();
    behind.restore(&bytes).unwrap();
    assert_eq!(behind.try_acquire().unwrap_err().retry_after(), Some(Duration::from_secs(3)));

    let daily = || WindowCounter::builder(Window::per_day(5).utc()).clock(clock.clone()).build();
    let window = daily();
    assert!(window.try_acquire_n(5).is_ok());
    let bytes = window.save();
    let restored = daily();
    restored.restore(&bytes).unwrap();
    assert!(restored.try_acquire().is_err());
    mock.advance(Duration::from_secs(86_400));
    let next_day = daily();
    next_day.restore(&bytes).unwrap();
    assert!(next_day.try_acquire_n(5).is_ok());
}

#[test]
fn places_in_use_end_with_their_process() {
    let limiter = RateLimiter::<u8, _>::new(Places::new(2));
    assert!(limiter.try_acquire(&1).is_ok());
    let restored = RateLimiter::<u8, _>::new(Places::new(2));
    restored.restore(&limiter.save()).unwrap();
    assert!(restored.is_empty());
}

#[test]
fn keys_have_a_form_in_bytes() {
    fn back<K: KeyBytes + PartialEq>(key: K) -> bool {
        let mut bytes = Vec::new();
        key.write(&mut bytes);
        K::read(&bytes) == Some(key)
    }
    assert!(back(7_u128) && back(-7_i16) && back("ada".to_owned()) && back(vec![1_u8, 2]));
    assert!(back(IpAddr::from([192, 0, 2, 7])) && back(IpAddr::from([7_u16; 8])) && back([1_u8; 3]));
    assert!(back(("ada".to_owned(), ("".to_owned(), 9_u32))));
    assert_eq!(<(String, u8)>::read(&[255; 9]), None);
    assert_eq!(String::read(&[255]), None);
}

#[test]
fn decisions_go_on_while_a_limiter_is_saved_and_restored() {
    let quota = Quota::per_day(1).burst(1_000);
    let build = || RateLimiter::<u64>::builder(quota).hasher(Hasher::default());
    let stores: [&dyn Fn() -> RateLimiter<u64, Quota, Hasher>; 2] =
        [&|| build().build(), &|| build().max_keys(4_000).inline().unwrap().build()];
    for store in stores {
        let limiter = store();
        let (stop, granted) = (AtomicBool::new(false), AtomicU64::new(0));
        let bytes = thread::scope(|scope| {
            let caller = scope.spawn(|| {
                let mut key = 0;
                while !stop.load(Relaxed) || key < 4_000 {
                    granted.fetch_add(limiter.try_acquire(&(key % 1_000)).is_ok().into(), Relaxed);
                    key += 1;
                }
            });
            let saves: Vec<_> = (0..20).map(|_| limiter.save()).collect();
            stop.store(true, Relaxed);
            caller.join().expect("the caller ends");
            saves
        });
        let granted_since = |bytes: &[u8]| {
            let restored = store();
            restored.restore(bytes).expect("each save is whole");
            (0..1_000).map(|key| 1_000 - restored.peek(&key).remaining()).sum::<u64>()
        };
        let taken: Vec<_> = bytes.iter().map(|bytes| granted_since(bytes)).collect();
        assert!(taken.is_sorted() && taken[19] <= granted.load(Relaxed), "{taken:?}");
        assert_eq!(granted_since(&limiter.save()), granted.load(Relaxed));
    }
}
