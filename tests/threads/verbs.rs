//! Every call at once: for a sanitizer to look at.
//!
//! Quotas change, plans are made, keys are removed, and a janitor sweeps. The tokens keep the law
//! with the fastest quota and the largest burst. It allows a burst more for each time a key was
//! removed, and the refunds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tollgate::{Ask, Asked, Quota, RateLimiter, TokenBucket, WhenFull, all_of};

use super::skewed::{Skewed, set_skew, spread};
use super::{Size, Store, counters, together, warm};
use tollgate_testing::Random;

const THREADS: usize = 8;
const START: u64 = 1_000_000_000_000;
const WIDTH: u64 = 1_600_000_000;

const KEYS: u64 = 48;
const ROOM: usize = 32;
const SLOW: Quota = Quota::per_second(50).burst(10);
const FAST: Quota = Quota::per_second(100).burst(20);
const GOLD: Quota = Quota::per_second(200).burst(40);
const DEBT: u64 = 15;

/// The tokens that a bucket granted, and those that it may grant beside its quota.
#[derive(Default)]
struct Account {
    taken: AtomicU64,
    given_back: AtomicU64,
    forgotten: AtomicU64,
}

impl Account {
    /// Checks the account against the law. A change of quota may count a tick, which is less than a
    /// token.
    fn settle(self, what: &str, most: Quota, span: u64, changes: u64) {
        let [taken, given_back, forgotten] =
            [self.taken, self.given_back, self.forgotten].map(AtomicU64::into_inner);
        let came = most.tokens() * span / 1_000_000_000;
        let law = (most.capacity() + DEBT) * (1 + forgotten) + came + given_back + changes + 1;
        assert!(taken > 0 && taken <= law, "{what}: {taken} taken, not {law}");
    }
}

/// Runs the scenario without room for all keys, under each policy that counts its grants.
pub fn run(size: Size) {
    for store in Store::ALL {
        for policy in [WhenFull::Share, WhenFull::Deny] {
            at_once(store, policy, size.choose(300, 10_000, 200_000));
        }
    }
}

fn at_once(store: Store, policy: WhenFull, calls: u64) {
    let time = Skewed::at(START);
    set_skew(0);
    let bucket = TokenBucket::builder(FAST).max_debt(DEBT).expect("it fits").clock(time.clock()).build();
    let limiter = RateLimiter::<u64>::builder(FAST).headroom(GOLD).expect("it fits").clock(time.clock());
    let limiter = limiter.max_debt(DEBT).expect("it fits").when_full(policy);
    let limiter = store.room(limiter, ROOM).build();
    warm(&limiter);
    // For the same reason the shared buckets of a plan are made here. One thread below makes the
    // calls that lock: new quotas and plans.
    let gold = limiter.plan(GOLD).expect("there is headroom");
    assert!(limiter.key(&0).under(&gold).try_acquire().is_ok());
    let janitor = limiter.janitor(Duration::from_millis(1));
    let (own, changes) = (Account::default(), counters(1));
    let keyed: Vec<_> = (0..KEYS).map(|_| Account::default()).collect();

    together(THREADS, |index| {
        set_skew(spread(WIDTH, index, THREADS));
        let mut random = Random(index as u64);
        let mut gold = gold;
        for _ in 0..calls {
            time.advance(random.below(2_000_000));
            let key = random.below(KEYS);
            match random.below(100) {
                0..4 if index == 0 => {
                    let quota = if random.below(2) == 0 { SLOW } else { FAST };
                    changes[0].fetch_add(1, Relaxed);
                    bucket.set_rule(quota).expect("it is no larger");
                    limiter.set_rule(quota).expect("it is no larger");
                }
                4..8 if index == 0 => gold = limiter.plan(GOLD).expect("there is headroom"),
                2 => drop(limiter.evict_idle()),
                // A caller that is granted a token after the removal need not see this count.
                3 => {
                    keyed[key as usize].forgotten.fetch_add(1, Relaxed);
                    limiter.remove(&key);
                }
                0 if random.below(4) == 0 => {
                    for account in &keyed {
                        account.forgotten.fetch_add(1, Relaxed);
                    }
                    limiter.clear();
                }
                // Time enough for evictions.
                4 => time.advance(3_000_000_000),
                // The count is off by the threads that are about to change it.
                5 => assert!(limiter.len() <= 2 * ROOM && limiter.stats().keys <= 2 * ROOM),
                6..20 => {
                    let taken = limiter.key(&key).n(2).under(&gold).try_acquire();
                    let taken = taken.map_or(0, |granted| granted.tokens());
                    keyed[key as usize].taken.fetch_add(taken, Relaxed);
                }
                20..30 => {
                    if all_of((bucket.ask(), limiter.key(&key).n(2))).try_acquire().is_ok() {
                        own.taken.fetch_add(1, Relaxed);
                        keyed[key as usize].taken.fetch_add(2, Relaxed);
                    }
                }
                30..40 => {
                    let pinned = limiter.pin();
                    let taken = pinned.key(&key).n(3).acquire_up_to().tokens();
                    keyed[key as usize].taken.fetch_add(taken, Relaxed);
                    let _ = pinned.key(&key).peek();
                }
                40..60 => call(bucket.ask(), &own, &mut random),
                _ => call(limiter.key(&key), &keyed[key as usize], &mut random),
            }
        }
        0
    });
    assert!(janitor.is_running());
    drop(janitor);

    let (span, changes) = (time.now() - START + WIDTH, changes[0].load(Relaxed));
    let stats = limiter.stats();
    println!(
        "  {store:?}, {policy:?}: {} calls, {changes} changes of quota, {stats:?}",
        calls * THREADS as u64
    );
    own.settle("the bucket", FAST, span, changes);
    for (key, account) in keyed.into_iter().enumerate() {
        account.settle(&format!("key {key}"), GOLD, span, changes);
    }
    assert!(stats.keys <= store.places(ROOM) && stats.evicted > 0 && changes > 0, "{stats:?}");
}

/// Calls one verb.
fn call<'a>(ask: Ask<'a, impl Asked<'a, Rule = Quota>>, account: &Account, random: &mut Random) {
    let n = 1 + random.below(4);
    let ask = ask.n(n);
    let taken = match random.below(6) {
        0 => ask.try_acquire().map_or(0, |granted| granted.tokens()),
        1 => ask.acquire_up_to().tokens(),
        2 => ask.reserve().map_or(0, |reservation| reservation.commit().tokens()),
        // The tokens come back, or are lost.
        3 => ask.reserve().map_or(0, |reservation| {
            drop(reservation);
            0
        }),
        4 => ask.hold().map_or(0, |hold| {
            let actual = random.below(8);
            account.given_back.fetch_add(n.saturating_sub(actual), Relaxed);
            let rest = hold.settle(actual);
            actual.max(n) - rest
        }),
        _ => {
            account.given_back.fetch_add(1, Relaxed);
            ask.n(1).refund();
            0
        }
    };
    account.taken.fetch_add(taken, Relaxed);
}
