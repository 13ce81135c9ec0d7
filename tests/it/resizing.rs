// promise: bounded, one-bucket
//! Keys that are removed and come back while the map grows: the bound on keys and the receipts find
//! their entries. And a map that has grown: a look-up asks one table.

use std::cell::Cell;
use std::hash::{Hash, Hasher};

use tollgate::{Quota, RateLimiter, WhenFull};

use crate::support::{HOUR, Plain, SECOND, Time, Twin, size};

type Limiter = RateLimiter<Twin, Quota, Plain>;

/// Numbers of keys with which papaya is in the middle of a resize, among others. A quick run has a
/// third of them.
fn sizes() -> impl Iterator<Item = u64> {
    (640..665).chain(1_315..1_330).step_by(size(3, 1))
}

/// Returns a key that has its hash in common with as many others as `alike` says.
fn key(id: u64, alike: u64) -> Twin {
    Twin { hash: id / alike, id }
}

/// Returns a limiter that is full of `keys` keys. While they came, the first half was removed and
/// came back for one token of each key. All tokens of the others are taken.
fn grown(keys: u64, alike: u64) -> (Limiter, Time) {
    let (clock, time) = Time::new();
    let limiter = RateLimiter::builder(Quota::per_hour(1).burst(5)).hasher(Plain::default());
    let limiter = limiter.clock(clock).max_keys(keys as usize).when_full(WhenFull::Deny).build();
    // A call looks at 64 tickets for a free one.
    let enters = |key: Twin, n| assert!((0..keys).any(|_| limiter.try_acquire_n(&key, n).is_ok()), "{key:?}");
    for id in 0..keys {
        enters(key(id, alike), 5);
        assert!(limiter.remove(&key(id / 2, alike)));
        enters(key(id / 2, alike), 1);
    }
    (limiter, time)
}

/// Each key that may be evicted makes room for one new key, and the others for none.
#[test]
fn a_key_that_came_back_while_the_map_grew_is_evicted() {
    for alike in [1, 2] {
        for keys in sizes() {
            let (limiter, mut time) = grown(keys, alike);
            assert_eq!(limiter.len() as u64, keys);
            time.advance(HOUR + 3 * SECOND);
            let calls = (keys..2 * keys + 100).map(|id| key(id, alike));
            let came = calls.filter(|key| limiter.try_acquire_n(key, 5).is_ok()).count();
            assert_eq!((limiter.len(), came as u64), (keys as usize, keys.div_ceil(2)), "of {keys}");
        }
    }
}

#[test]
fn a_receipt_reaches_a_key_that_came_back_while_the_map_grew() {
    for alike in [1, 2] {
        for keys in sizes() {
            let (limiter, _time) = grown(keys, alike);
            for key in (0..keys / 2).map(|id| key(id, alike)) {
                let left = || limiter.peek(&key).remaining();
                let hold = limiter.key(&key).n(3).hold().expect("4 tokens are left");
                assert_eq!((hold.settle(1), left()), (0, 3), "settled for less, of {keys}");
                let hold = limiter.key(&key).hold().expect("3 tokens are left");
                assert_eq!((hold.settle(2), left()), (0, 1), "settled for more, of {keys}");
                drop(limiter.key(&key).reserve().expect("a token is left"));
                assert_eq!(left(), 1, "a reservation was dropped, of {keys}");
            }
        }
    }
}

thread_local! {
    static COMPARED: Cell<u64> = const { Cell::new(0) };
}

/// A key that counts its comparisons.
#[derive(Clone, Eq)]
struct Counted(u64);

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Counted) -> bool {
        COMPARED.set(COMPARED.get() + 1);
        self.0 == other.0
    }
}

/// Looks keys up. Returns the comparisons, of which a key that was moved to another table takes two
/// until the move has ended.
fn compared(limiter: &RateLimiter<Counted>, keys: impl Iterator<Item = u64>) -> u64 {
    let before = COMPARED.get();
    keys.for_each(|key| assert!(limiter.try_acquire(&Counted(key)).is_ok()));
    COMPARED.get() - before
}

/// Other keys of the same seven bits of a hash are compared as well: one in some hundred look-ups.
fn asserts_one_table(keys: u64, looks: u64, compared: u64) {
    assert!((looks..looks + looks / 16 + 4).contains(&compared), "{keys} keys: {compared} of {looks}");
}

#[test]
fn a_look_up_asks_one_table_once_insertions_stop() {
    let limiter = RateLimiter::<Counted>::new(Quota::per_hour(1_000_000));
    let mut held = 0;
    let mut grow = |keys: u64| {
        compared(&limiter, held..keys);
        held = keys;
    };
    for hundred in 0..50 {
        let mut seen = 0;
        for keys in 100 * hundred + 1..100 * hundred + 101 {
            grow(keys);
            // Of the first ones, which are moved first, and of the others.
            seen += compared(&limiter, (0..40).map(|n| n * n * keys / 1_600));
        }
        asserts_one_table(100 * hundred + 100, 4_000, seen);
    }
    // Numbers at which a larger map is between two tables: the look-ups end that.
    for keys in (12_000..15_000).step_by(size(100, 5)) {
        grow(keys);
        compared(&limiter, 0..keys);
        asserts_one_table(keys, keys, compared(&limiter, 0..keys));
    }
    for keys in (14..=size(16, 20)).map(|power| 1 << power) {
        grow(keys);
        asserts_one_table(keys, keys, compared(&limiter, 0..keys));
    }
}
