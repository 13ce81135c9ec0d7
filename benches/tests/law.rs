//! Every contender limits: what it grants on the real clock is what the law allows, neither more nor less.

use std::hash::RandomState;
use std::iter;
use std::thread;
use std::time::{Duration, Instant};

use tollgate::{Quota, RateLimiter, TokenBucket};
use tollgate_benches::contenders::{MutexBucket, Pinned, RwLockMap};
use tollgate_benches::{KeyedLimiter, Limiter};

const RATE: u64 = 1_000;
const BURST: u64 = 5_000;
const SPAN: Duration = Duration::from_millis(300);

#[test]
fn a_tollgate_bucket_keeps_the_law() {
    one_bucket_keeps_the_law::<TokenBucket>();
}

#[test]
fn a_mutex_bucket_keeps_the_law() {
    one_bucket_keeps_the_law::<MutexBucket>();
}

#[test]
fn tollgate_keys_keep_the_law() {
    each_key_keeps_the_law::<RateLimiter<u64>>();
}

#[test]
fn pinned_tollgate_keys_keep_the_law() {
    each_key_keeps_the_law::<Pinned<RandomState>>();
}

#[test]
fn rwlock_map_keys_keep_the_law() {
    each_key_keeps_the_law::<RwLockMap<RandomState>>();
}

fn one_bucket_keeps_the_law<L: Limiter>() {
    let bucket = L::new(quota());
    keeps_the_law(|| bucket.try_acquire());
}

/// Through the loop that is timed. The second key finds a full bucket only if it is not the first one's.
fn each_key_keeps_the_law<L: KeyedLimiter>() {
    let limiter = L::new(quota(), 2);
    for key in [1, 2] {
        keeps_the_law(|| limiter.count_granted(iter::once(key)) == 1);
    }
}

fn quota() -> Quota {
    Quota::per_second(RATE).burst(BURST)
}

/// Takes all there is, on 2 threads for [`SPAN`], and compares with `burst + rate * T`.
fn keeps_the_law(try_acquire: impl Fn() -> bool + Sync) {
    let take_all = || iter::repeat_with(&try_acquire).take_while(|&granted| granted).count();

    let start = Instant::now();
    let mut granted = take_all();
    let empty = Instant::now();
    granted += thread::scope(|scope| {
        let take_for_a_while = || {
            let mut granted = 0;
            while empty.elapsed() < SPAN {
                granted += take_all();
            }
            granted
        };
        let threads = [scope.spawn(take_for_a_while), scope.spawn(take_for_a_while)];
        threads.map(|thread| thread.join().expect("a decision does not panic")).iter().sum::<usize>()
    });
    let last = Instant::now();
    granted += take_all();
    let end = Instant::now();

    // 1 token for a tick and the two clocks' difference; at the lower end another for what is left, less than a token.
    // The bucket takes 5 s to fill, so no pause of both threads makes it lose tokens.
    let earned = |span: Duration| BURST as f64 + RATE as f64 * span.as_secs_f64();
    let (least, most) = (earned(last - empty) - 2.0, earned(end - start) + 1.0);
    assert!((least..=most).contains(&(granted as f64)), "granted {granted}, not {least:.1} to {most:.1}");
}
