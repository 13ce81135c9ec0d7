//! Laws of a fixed table alone. (`keyed.rs` has the laws of both stores.)

mod crossings;
mod entering;
mod hashes;
mod odds;
mod settled;

use std::hash::{BuildHasherDefault, DefaultHasher};

use tollgate::{Denied, Places, Quota, RateLimiter, Reason, Stats, WhenFull, Window};

use crate::support::{DAY, HOUR, Random, SECOND, Time, fill, nanos, ns, size, ticks};

const MARGIN: u64 = 2 * SECOND;
/// The places of a table of one set, the smallest.
const PLACES: u64 = 8;
const POLICIES: [WhenFull; 3] = [WhenFull::Share, WhenFull::Deny, WhenFull::Allow];

fn table(quota: Quota, keys: usize, policy: WhenFull) -> (RateLimiter<u64>, Time) {
    let (clock, time) = Time::new();
    (
        RateLimiter::builder(quota).clock(clock).max_keys(keys).inline().unwrap().when_full(policy).build(),
        time,
    )
}

/// Returns a table of one set that is full of the keys from 0 on, each without a token.
fn taken(quota: Quota, policy: WhenFull) -> (RateLimiter<u64>, Time) {
    let (limiter, time) = table(quota, 1, policy);
    (0..PLACES).for_each(|key| assert!(limiter.try_acquire_n(&key, quota.capacity()).is_ok()));
    (limiter, time)
}

/// Returns the wait of a key that finds no room.
fn no_room(denied: Denied) -> u64 {
    assert_eq!((denied.reason(), denied.remaining()), (Reason::Full, 0));
    nanos(denied.retry_after().expect("a place may be due some day"))
}

#[test]
fn a_table_has_eight_places_for_each_six_keys() {
    for (keys, most) in [(1, 8), (2, 8), (6, 8), (7, 16), (12, 16), (13, 24), (600, 800), (601, 808)] {
        let (limiter, _time) = table(Quota::per_hour(1), keys, WhenFull::Deny);
        let calls = size(10_000, 20_000);
        let granted = (0..calls).filter(|key| limiter.try_acquire(key).is_ok()).count();
        assert_eq!((granted, limiter.len()), (most, most), "for {keys} keys");
        assert_eq!(limiter.stats().refused_full, calls - most as u64);
    }
}

/// A size may come from a file of settings. No memory is allocated before the table is built.
#[test]
fn a_number_of_keys_that_no_memory_holds_is_an_error() {
    const MOST: usize = if usize::BITS > 32 { 1 << 28 } else { 1 << 24 };
    let builder = || RateLimiter::<u64>::builder(Quota::per_hour(1));
    let windows = || RateLimiter::<u64, _>::builder(Window::per_hour(1));
    let in_flight = || RateLimiter::<u64, _>::builder(Places::new(1));
    for keys in [MOST + 1, usize::MAX] {
        let told = format!("a number of keys to allocate of {keys} is out of bounds: 0 to {MOST}");
        let errors = [
            builder().max_keys(keys).inline().err(),
            builder().presize(keys).err(),
            windows().max_keys(keys).inline().err(),
            windows().presize(keys).err(),
            in_flight().max_keys(keys).inline().err(),
        ];
        for error in errors {
            assert_eq!(error.expect("no memory holds them").to_string(), told);
        }
    }
    for huge in [builder().max_keys(1 << 20).inline(), builder().presize(1 << 20)] {
        assert!(format!("{:?}", huge.unwrap()).contains("1048576"));
    }
    // A bound on keys allocates nothing.
    let limiter = builder().max_keys(usize::MAX).build();
    assert!(limiter.try_acquire(&1).is_ok());
}

/// The table has 5 MB, or half of one in a quick run.
#[test]
fn a_large_table_is_empty_fills_and_is_swept() {
    let (quota, keys) = (Quota::per_hour(2), size(25_000, 250_000));
    let (limiter, mut time) = table(quota, keys, WhenFull::Deny);
    assert_eq!((limiter.len(), limiter.evict_idle(), limiter.peek(&1).remaining()), (0, 0, 2));
    for round in 1..=2 {
        let mut places = 0;
        for key in 0..2 * keys as u64 {
            match limiter.try_acquire(&key) {
                Ok(granted) => assert_eq!(granted.remaining(), 1, "a new key has the burst"),
                Err(denied) => assert_eq!(denied.reason(), Reason::Full),
            }
            places = limiter.len();
        }
        // The last places are hit by chance.
        let all = keys.div_ceil(6) * 8;
        assert!((all - all / 50..=all).contains(&places), "round {round}: {places} of {all} places");
        time.advance(fill(quota) + MARGIN + ticks(quota, 2));
        assert_eq!((limiter.evict_idle(), limiter.len()), (places, 0), "round {round}");
    }
}

/// `max_keys` is the size of the table, before `inline` and after it; 0 is no room at all.
#[test]
fn a_table_takes_its_size_from_the_most_keys() {
    let builder = || RateLimiter::<u64>::builder(Quota::per_hour(1)).when_full(WhenFull::Deny);
    let held = |limiter: RateLimiter<u64>| (0..5_000).filter(|key| limiter.try_acquire(key).is_ok()).count();
    for (keys, most) in [(0, 0), (1, 8), (100, 136)] {
        assert_eq!(held(builder().max_keys(keys).inline().unwrap().build()), most, "for {keys} keys");
        assert_eq!(held(builder().inline().unwrap().max_keys(keys).build()), most, "for {keys} keys, later");
    }
    assert_eq!(held(builder().inline().unwrap().build()), 5_000);
}

/// A key keeps its one place between other keys, and `len` counts it once.
#[test]
fn a_key_has_one_place() {
    let (limiter, mut time) = table(Quota::per_hour(3), 600, WhenFull::Deny);
    let mut random = Random(1);
    let mut granted = vec![0; 400];
    for step in 0..20_000 {
        let key = random.below(400);
        let known = granted[key as usize] > 0;
        let before = limiter.len();
        granted[key as usize] += u64::from(limiter.try_acquire(&key).is_ok());
        assert_eq!(limiter.len(), before + usize::from(!known), "step {step}");
    }
    assert!(granted.iter().all(|granted| *granted == 3));
    let Stats { keys, evicted, refused_full, .. } = limiter.stats();
    assert_eq!((keys, evicted, refused_full), (400, 0, 0));
    time.set(HOUR + MARGIN - 1);
    assert_eq!(limiter.evict_idle(), 0);
    time.set(HOUR + MARGIN + ticks(Quota::per_hour(3), 2));
    assert_eq!((limiter.evict_idle(), limiter.len(), limiter.is_empty()), (400, 0, true));
    assert_eq!(limiter.evict_idle(), 0);
    assert_eq!(limiter.stats().evicted, 400);
}

/// The policy decides on a newcomer that finds both sets full of limited keys. It is counted.
#[test]
fn without_a_place_the_policy_decides_and_it_is_counted() {
    for policy in POLICIES {
        let (limiter, _time) = taken(Quota::per_hour(5), policy);
        let granted = (0..1_000).filter(|_| limiter.try_acquire(&100).is_ok()).count();
        let Stats { keys, evicted, shared, refused_full, allowed_full, .. } = limiter.stats();
        assert_eq!((keys, evicted), (8, 0), "{policy:?}");
        let expected = match policy {
            WhenFull::Share => (5, [1_000, 0, 0]),
            WhenFull::Deny => (0, [0, 1_000, 0]),
            _ => (1_000, [0, 0, 1_000]),
        };
        assert_eq!((granted, [shared, refused_full, allowed_full]), expected, "{policy:?}");
        assert_eq!(limiter.try_acquire_n(&100, 6).unwrap_err().reason(), Reason::TooMany);
        assert!((0..PLACES).all(|key| limiter.try_acquire(&key).unwrap_err().reason() == Reason::Empty));
        assert_eq!(limiter.len(), 8, "nobody made room");
    }
}

/// A newcomer looks at all its places. Its wait ends when the first of them is due, and no
/// nanosecond earlier.
#[test]
fn a_newcomer_gets_a_place_when_it_was_told() {
    for (seed, keys) in [(1, 1), (2, 7), (3, 100), (4, 600)] {
        let (limiter, mut time) = table(Quota::per_second(10).burst(30), keys, WhenFull::Deny);
        let mut random = Random(seed);
        let (mut told, places) = (0, keys.div_ceil(6) as u64 * PLACES);
        for newcomer in 0..10_000 {
            // The newcomers are about twice as many as the places can serve.
            time.advance(random.below(3 * SECOND / places));
            let n = 1 + random.below(30);
            if let Err(denied) = limiter.try_acquire_n(&newcomer, n) {
                let wait = no_room(denied);
                assert!(wait > 0, "{newcomer} of {keys}");
                told += 1;
                time.advance(wait - 1);
                let again = no_room(limiter.try_acquire_n(&newcomer, n).expect_err("a nanosecond early"));
                assert_eq!(again, 1, "{newcomer} of {keys}");
                time.advance(1);
                assert!(limiter.try_acquire_n(&newcomer, n).is_ok(), "{newcomer} of {keys} after {wait} ns");
            }
        }
        println!("{keys} keys: {told} of 10,000 were told to wait, {:?}", limiter.stats());
        assert!(told > 100);
        let Stats { keys: held, evicted, refused_full, .. } = limiter.stats();
        assert_eq!((held as u64 + evicted, refused_full), (10_000, 2 * told));
    }
}

/// The place stays empty for 2 s, by each way of removal, and then serves any key. The removed key
/// itself starts anew at once.
#[test]
fn the_place_of_a_key_that_was_removed_is_free_after_the_margin() {
    let quota = Quota::per_hour(5);
    let ways: [fn(&RateLimiter<u64>); 2] =
        [|limiter| assert!(limiter.remove(&3) && !limiter.remove(&3)), RateLimiter::clear];
    for (way, goes) in ways.into_iter().enumerate() {
        let (limiter, mut time) = taken(quota, WhenFull::Deny);
        time.set(DAY);
        // The keys are limited from here on.
        (0..PLACES).for_each(|key| assert!(limiter.try_acquire_n(&key, 5).is_ok()));
        goes(&limiter);
        let left = if way == 1 { 0 } else { 7 };
        assert_eq!((limiter.len(), limiter.peek(&3).remaining(), limiter.stats().evicted), (left, 5, 0));
        let wait = no_room(limiter.try_acquire(&3).expect_err("it was left just now"));
        assert!((MARGIN..=MARGIN + ticks(quota, 2)).contains(&wait), "{wait}");
        time.advance(wait - 1);
        assert_eq!(limiter.evict_idle(), 0, "an empty place is no key's");
        assert_eq!(no_room(limiter.try_acquire(&3).expect_err("it was left just now")), 1);
        time.advance(1);
        let evicted = limiter.evict_idle();
        assert_eq!((evicted, limiter.len()), (0, left));
        let newcomers = (20..40).filter(|key| limiter.try_acquire(key).is_ok()).count();
        assert_eq!((newcomers, limiter.len()), (8 - left, 8), "way {way}");
        assert_eq!(limiter.stats().evicted, 0);
    }
}

#[test]
fn a_place_of_a_removed_key_is_free_no_later_for_another_clear() {
    let quota = Quota::per_hour(5);
    let (limiter, mut time) = taken(quota, WhenFull::Deny);
    limiter.clear();
    let wait = no_room(limiter.try_acquire(&3).expect_err("all places were left just now"));
    time.advance(wait - 1);
    limiter.clear();
    assert_eq!(no_room(limiter.try_acquire(&3).expect_err("a nanosecond early")), 1);
    time.advance(1);
    assert!((0..PLACES).all(|key| limiter.try_acquire(&key).is_ok()));
}

/// A key that took a burst from a shared bucket does not get another in a place of its own. If it
/// was refused when it entered, it is evicted later.
#[test]
fn a_key_brings_its_debts_and_goes() {
    let quota = Quota::per_hour(1).burst(5);
    let (limiter, mut time) = table(quota, 1, WhenFull::Share);
    (0..PLACES).for_each(|key| assert!(limiter.try_acquire(&key).is_ok()));
    time.set(HOUR);
    assert!(limiter.try_acquire_n(&100, 5).is_ok());
    assert_eq!((limiter.stats().shared, limiter.len()), (1, 8));
    time.set(HOUR + 3 * SECOND);
    assert!(limiter.try_acquire(&100).is_err());
    assert_eq!((limiter.stats().shared, limiter.stats().evicted, limiter.len()), (1, 1, 8));
    assert_eq!((limiter.evict_idle(), limiter.len()), (7, 1));
    time.set(HOUR + fill(quota) + MARGIN - 1);
    assert_eq!(limiter.evict_idle(), 0);
    time.advance(1 + ticks(quota, 2));
    assert_eq!((limiter.evict_idle(), limiter.len()), (1, 0));
}

/// No key is evicted within 2 s after a change, however long it was full. An empty place can be had
/// at once.
#[test]
fn after_a_change_of_quota_empty_places_can_be_had() {
    let quota = Quota::per_second(5);
    let (limiter, mut time) = table(quota, 1, WhenFull::Deny);
    (0..5).for_each(|key| assert!(limiter.try_acquire(&key).is_ok()));
    time.set(DAY);
    limiter.set_rule(quota).unwrap();
    assert!((5..PLACES).all(|key| limiter.try_acquire(&key).is_ok()));
    assert_eq!((limiter.len(), limiter.stats().evicted), (8, 0));
    assert_eq!(no_room(limiter.try_acquire(&100).unwrap_err()), MARGIN);
    time.advance(MARGIN - 1);
    assert_eq!((limiter.evict_idle(), no_room(limiter.try_acquire(&100).unwrap_err())), (0, 1));
    time.advance(1);
    assert!(limiter.try_acquire(&100).is_ok());
    assert_eq!((limiter.len(), limiter.stats().evicted), (8, 1));
    // A swept place is as empty as one that was never used.
    time.set(2 * DAY);
    assert_eq!(limiter.evict_idle(), 8);
    limiter.set_rule(quota).unwrap();
    assert!((0..PLACES).all(|key| limiter.try_acquire(&key).is_ok()));
}

#[test]
fn a_new_key_of_a_table_starts_with_what_was_said() {
    for (initial, starts) in [(0, 0), (3, 3), (10, 10), (99, 10)] {
        let (clock, mut time) = Time::new();
        let quota = Quota::per_second(10);
        let limiter = RateLimiter::<u64>::builder(quota)
            .clock(clock)
            .max_keys(1)
            .inline()
            .unwrap()
            .initial_tokens(initial);
        let limiter = limiter.when_full(WhenFull::Deny).build();
        time.set(100 * SECOND);
        assert_eq!((limiter.peek(&1).remaining(), limiter.len()), (starts, 0));
        for key in 0..PLACES {
            assert_eq!(limiter.key(&key).n(99).acquire_up_to().tokens(), starts);
            let denied = limiter.try_acquire(&key).unwrap_err();
            assert_eq!(denied.retry_after(), Some(ns(SECOND / 10)));
        }
        assert_eq!(limiter.len(), 8);
        time.advance(60 * SECOND);
        // Keys are evicted only to make room: a new bucket would start with fewer tokens.
        assert_eq!((limiter.evict_idle(), limiter.peek(&1).remaining()), (0, 10));
        assert_eq!(limiter.key(&100).n(99).acquire_up_to().tokens(), starts);
        assert_eq!((limiter.len(), limiter.stats().evicted), (8, 1));
    }
}

/// Hashes that are the same in each run.
type Fixed = BuildHasherDefault<DefaultHasher>;

/// A newcomer looks in the line that it prefers first. There it takes an empty place before that of
/// an idle key.
#[test]
fn a_newcomer_takes_an_empty_place_before_that_of_an_idle_key() {
    let mut evicted = 0;
    for (idle, gone) in (0..PLACES).flat_map(|idle| (0..PLACES).map(move |gone| (idle, gone))) {
        let (clock, mut time) = Time::new();
        let builder = RateLimiter::<u64>::builder(Quota::per_second(1).burst(100))
            .hasher(Fixed::default())
            .clock(clock);
        let limiter = builder.max_keys(1).inline().unwrap().when_full(WhenFull::Deny).build();
        for key in 0..PLACES {
            let taken = if key == gone {
                1
            } else if key == idle {
                6
            } else {
                100
            };
            assert!(limiter.try_acquire_n(&key, taken).is_ok());
        }
        time.set(4 * SECOND);
        assert_eq!((limiter.evict_idle(), limiter.len()), (1, 7));
        time.set(9 * SECOND);
        assert!(limiter.try_acquire(&100).is_ok());
        let now = limiter.stats().evicted - 1;
        assert_eq!(limiter.len() as u64, 8 - now);
        if idle == gone {
            assert_eq!(now, 0);
        }
        evicted += now;
    }
    // The four keys of the preferred line, where the empty place is one of the four in the other.
    assert_eq!(evicted, 16);
}

/// A key goes to the emptier one of two sets. So hardly any set is full while others have room.
#[test]
fn nearly_all_keys_that_a_table_is_made_for_have_room() {
    let (clock, _time) = Time::new();
    let builder = RateLimiter::<u64>::builder(Quota::per_hour(1))
        .hasher(Fixed::default())
        .clock(clock)
        .max_keys(12_000)
        .inline()
        .unwrap();
    let limiter = builder.when_full(WhenFull::Deny).build();
    let refused = (0..12_000).filter(|key| limiter.try_acquire(key).is_err()).count();
    println!("{refused} of 12,000 found no room");
    assert!(refused <= 8, "{refused}");
}
