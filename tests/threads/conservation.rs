// promise: law
//! No token is minted or lost while threads race, on clocks that differ, and while buckets come and
//! go.
//!
//! # How the skew enters
//!
//! `width` is the most by which two threads' clocks differ. Readings of a run of length `T` on the
//! shared time lie in a span of `T + width`. The law holds for that span:
//! `burst + rate * (T + width)`. A reading behind the last commit earns nothing.
//!
//! Eviction adds nothing as long as `width` is below the margin of 2 s. A thread that finds its key
//! evicted is behind the evictor by less time than the bucket had been full.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tollgate::{Quota, RateLimiter, TokenBucket, WhenFull};

use super::skewed::{Skewed, readings, set_skew, spread};
use super::{Size, Store, counters, together, warm};
use tollgate_testing::Random;

const THREADS: usize = 8;
const START: u64 = 1_000_000_000_000;

/// Nanoseconds between bare counters of different cores, and between those of a machine in the
/// field.
const WIDTHS: [u64; 2] = [2_600, 1_600_000_000];

/// Runs the scenario at both skews.
pub fn run(size: Size) {
    for (width, store) in WIDTHS.into_iter().flat_map(|width| Store::ALL.map(|store| (width, store))) {
        let (mut lost, least) = (0, size.choose(10, 1_000, 1_000));
        // On a busy machine the threads may run one after the other, and no race is lost.
        while lost < least {
            lost += known(store, width, size.choose(300, 40_000, 400_000));
        }
        leased(width, size.choose(2_000, 400_000, 4_000_000));
        let policies = [WhenFull::Deny, WhenFull::Share];
        let leaps = size.choose(20, 650, 3_250);
        let evicted: u64 = policies.map(|policy| evictions(store, width, policy, ROOM, leaps)).iter().sum();
        for (policy, room) in [(WhenFull::Share, AMPLE), (WhenFull::Share, 1), (WhenFull::Deny, 1)] {
            evictions(store, width, policy, room, leaps.div_ceil(5));
        }
        let least = size.choose(1_000, 100_000, 500_000);
        assert!(evicted >= least, "only {evicted} evictions, of {least}");
        println!("  {store:?}, skew {width} ns: {lost} races lost, {evicted} evicted in all");
    }
}

/// Races on known buckets: a single one, and some of keys. They start empty and are never full, so
/// each earned token was granted or is left. Returns the number of lost races.
fn known(store: Store, width: u64, decisions: u64) -> u64 {
    const KEYS: u64 = 3;
    // The skew is worth 2.6 tokens, or 1,600.
    let rate = if width < 1_000_000 { 1_000_000 } else { 1_000 };
    let quota = Quota::per_second(rate).burst(1 << 20);
    // Half of the requested tokens come.
    let step = 1_000_000_000 / rate / (KEYS + 1) / 2;
    let time = Skewed::at(START);
    set_skew(0);
    let bucket = TokenBucket::builder(quota).clock(time.clock()).initial_tokens(0).build();
    let limiter = RateLimiter::<u64>::builder(quota).clock(time.clock()).initial_tokens(0);
    let limiter = store.room(limiter, 100).build();
    for key in 0..KEYS {
        assert!(limiter.try_acquire(&key).is_err(), "a key starts empty");
    }
    let take = |target: u64| match target {
        KEYS => bucket.try_acquire().is_ok(),
        key => limiter.try_acquire(&key).is_ok(),
    };
    let before = readings();
    for target in 0..=KEYS {
        assert!(!take(target), "nothing came yet");
    }
    assert_eq!(readings() - before, KEYS + 1, "alone, a decision reads the clock once");

    let granted = counters(KEYS as usize + 1);
    let lost = together(THREADS, |index| {
        set_skew(spread(width, index, THREADS));
        let (before, mut random) = (readings(), Random(index as u64));
        for _ in 0..decisions {
            time.advance(step);
            let target = random.below(KEYS + 1);
            granted[target as usize].fetch_add(u64::from(take(target)), Relaxed);
        }
        readings() - before - decisions
    });

    // The look has the skew of the thread that is furthest ahead.
    set_skew(spread(width, THREADS - 1, THREADS));
    let span = u128::from(time.now() - START + width / 2);
    let came = u64::try_from(span * u128::from(rate) / 1_000_000_000).expect("a short run");
    assert!(came < quota.capacity(), "a full bucket earns nothing");
    for (target, granted) in granted.into_iter().enumerate() {
        let (granted, target) = (granted.into_inner(), target as u64);
        let left = if target == KEYS { bucket.peek() } else { limiter.peek(&target) }.remaining();
        println!(
            "  known, {store:?}, skew {width} ns, {target}: {granted} granted and {left} left of {came}"
        );
        assert!(granted > 0 && (granted + left).abs_diff(came) <= 1, "{granted} and {left} are not {came}");
    }
    set_skew(0);
    lost
}

/// Each thread takes from a spread bucket as fast as it can while time goes on. The bucket fills up
/// between bouts, but for its leases. So it is granted its burst each time and the earned tokens of
/// a bout, and never more.
fn leased(width: u64, decisions: u64) {
    const RATE: u64 = 1_000_000;
    const BURST: u64 = 20_000;
    // A bout is some thousands of takes, and the pause fills the bucket.
    const BOUT: u64 = 30_000;
    const FILL: u64 = BURST * 1_000_000_000 / RATE;
    let time = Skewed::at(START);
    set_skew(0);
    let bucket =
        TokenBucket::builder(Quota::per_second(RATE).burst(BURST)).clock(time.clock()).spread().build();
    let (decided, bouts) = (AtomicU64::new(1), AtomicU64::new(1));
    let granted = together(THREADS, |index| {
        set_skew(spread(width, index, THREADS));
        let mut granted = 0;
        for _ in 0..decisions {
            if decided.fetch_add(1, Relaxed).is_multiple_of(BOUT) {
                bouts.fetch_add(1, Relaxed);
                time.advance(FILL);
            }
            granted += u64::from(bucket.try_acquire().is_ok());
        }
        granted
    });
    set_skew(0);
    let (bouts, span) = (bouts.into_inner(), u128::from(time.now() - START + width));
    let most = BURST + u64::try_from(span * u128::from(RATE) / 1_000_000_000).expect("a short run") + 1;
    // Leases leave room for three quarters. Where the skew is longer than a bout, only the thread
    // that is furthest ahead sees time go on. Tokens that come while it waits for a processor may
    // not fit.
    let least = if width < FILL && bouts > 1 { (bouts - 1) * BURST / 2 } else { BURST / 2 };
    println!("  spread, skew {width} ns: {granted} granted of {most} in {bouts} bouts");
    assert!((least..=most).contains(&granted), "{granted} granted, not {least} to {most}");
}

const KEYS: u64 = 256;
const ROOM: usize = 192;
/// Room for every key.
const AMPLE: usize = 1_000;
const BURST: u64 = 5;
const TOKEN: u64 = 10_000_000_000;
/// Longer than the time to fill, the margin and the skew.
const LEAP: u64 = 60_000_000_000;
/// Decisions between two leaps: enough to empty nearly every bucket.
const BETWEEN: u64 = KEYS * 12;

/// Time leaps while the threads decide, so far that every bucket is full and may be evicted: by a
/// sweep, or by the ring's hand, as not all keys have room. Meanwhile each key comes back. Returns
/// the number of evictions.
///
/// The ideal bucket earns one burst in a leap. Within a leap it earns nothing, as the skew is worth
/// less than a token. A key may be granted that sum, which is below the law of the same span by the
/// margin lost in each leap.
fn evictions(store: Store, width: u64, policy: WhenFull, room: usize, leaps: u64) -> u64 {
    assert!(width < TOKEN && LEAP > BURST * TOKEN + 2_000_000_000 + width);
    let quota = Quota::every(std::time::Duration::from_nanos(TOKEN)).burst(BURST);
    let time = Skewed::at(START);
    let limiter = RateLimiter::<u64>::builder(quota).clock(time.clock()).when_full(policy);
    let limiter = store.room(limiter, room).build();
    warm(&limiter);
    let granted = counters(KEYS as usize);
    let in_one_leap = counters((KEYS * (leaps + 1)) as usize);
    let decisions = AtomicU64::new(1);
    let swept = together(THREADS, |index| {
        set_skew(spread(width, index, THREADS));
        let (mut random, mut swept) = (Random(index as u64), 0);
        loop {
            let before = time.now();
            let leap = (before - START) / LEAP;
            let count = decisions.fetch_add(1, Relaxed);
            if count.is_multiple_of(BETWEEN) {
                if leap >= leaps {
                    return swept;
                }
                time.advance(LEAP);
            }
            if count > BETWEEN * (leaps + 1) {
                return swept;
            }
            if random.below(400) == 0 {
                swept += limiter.evict_idle() as u64;
                continue;
            }
            let key = random.below(KEYS);
            if limiter.try_acquire(&key).is_ok() {
                granted[key as usize].fetch_add(1, Relaxed);
                if time.now() == before {
                    in_one_leap[(leap * KEYS + key) as usize].fetch_add(1, Relaxed);
                }
            }
        }
    });

    let span = u128::from(time.now() - START + width);
    let law = BURST + u64::try_from(span / u128::from(TOKEN)).expect("a short run") + 1;
    let most = BURST * ((time.now() - START) / LEAP + 1);
    assert!(most <= law);
    let granted: Vec<_> = granted.into_iter().map(AtomicU64::into_inner).collect();
    for (key, granted) in granted.iter().enumerate() {
        assert!(*granted <= most, "key {key}: {granted} granted, not {most}; the law says {law}");
    }
    for (place, granted) in in_one_leap.into_iter().enumerate() {
        let (granted, key, leap) = (granted.into_inner(), place as u64 % KEYS, place as u64 / KEYS);
        assert!(granted <= BURST, "key {key}: {granted} granted after leap {leap}, where it earned nothing");
    }
    let stats = limiter.stats();
    let by_hand = stats.evicted - swept;
    assert!(stats.keys <= store.places(room) && stats.evicted > 0, "{stats:?}");
    if room == ROOM {
        assert!(swept * 50 >= stats.evicted && by_hand * 50 >= stats.evicted, "{stats:?}, {swept} swept");
    }
    let all: u64 = granted.iter().sum();
    assert!(
        all * 10 > most * KEYS || policy == WhenFull::Deny || room == 1,
        "hardly anything was taken: {all}"
    );
    println!(
        "  evictions, {store:?}, skew {width} ns, {policy:?} in {room}: {leaps} leaps, {swept} swept and {by_hand} evicted by hand; \
         {all} granted of {}",
        most * KEYS
    );
    stats.evicted
}
