// promise: bounded
//! The requests in flight of each key: the law, on both stores.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use tollgate::{Places, RateLimiter};
use tollgate_adaptive::Enter;

use tollgate_testing::{Random, size};

type Keys = RateLimiter<u64, Places>;

#[derive(Clone, Copy)]
enum Store {
    Map,
    Table,
}

fn limiter(store: Store, limit: u32) -> Keys {
    let builder = RateLimiter::builder(Places::new(limit));
    match store {
        Store::Map => builder.build(),
        Store::Table => builder.max_keys(4_096).inline().unwrap().build(),
    }
}

fn limit(limiter: &Keys) -> u32 {
    limiter.rule().limit()
}

fn set_limit(limiter: &Keys, limit: u32) {
    limiter.set_rule(Places::new(limit)).unwrap();
}

/// A request is admitted exactly if the key has fewer than the limit in flight, in 100,000 random
/// steps beside exact counts.
#[test]
fn a_key_has_at_most_its_limit_in_flight_and_is_admitted_below_it() {
    const MOST: u32 = 9;
    let steps = size(10_000, 100_000);
    for store in [Store::Map, Store::Table] {
        let limiter = limiter(store, 3);
        let mut random = Random(7);
        let mut flights: Vec<(u64, _)> = Vec::new();
        let (mut admitted, mut refused, mut forgotten) = (0, 0, 0);
        for step in 0..steps {
            let (key, kind) = (random.below(8), random.below(100));
            let count = flights.iter().filter(|(of, _)| *of == key).count() as u32;
            assert_eq!(limiter.in_flight(&key), count, "{step}");
            match kind {
                0..52 => match limiter.try_enter(&key) {
                    Ok(flight) => {
                        assert!(count < limit(&limiter), "{step}: {count} of {}", limit(&limiter));
                        flights.push((key, flight));
                        admitted += 1;
                    }
                    Err(overloaded) => {
                        assert!(count >= limit(&limiter), "{step}: {count} of {}", limit(&limiter));
                        assert_eq!((overloaded.in_flight(), overloaded.is_full()), (count, false));
                        refused += 1;
                    }
                },
                52..90 if !flights.is_empty() => {
                    let which = random.below(flights.len() as u64) as usize;
                    drop(flights.swap_remove(which));
                }
                90..95 => set_limit(&limiter, 1 + random.below(MOST.into()) as u32),
                95..97 => flights.clear(),
                _ => forgotten += limiter.evict_idle(),
            }
        }
        assert!(
            admitted > steps / 10 && refused > steps / 50 && forgotten > steps / 1_000,
            "{admitted} {refused} {forgotten}"
        );
    }
}

/// No time has to pass.
#[test]
fn a_key_is_forgotten_once_it_has_no_request_in_flight_and_not_before() {
    for limit in [1, 2, 3, 1_000, 65_536, 1 << 20] {
        for store in [Store::Map, Store::Table] {
            let limiter = limiter(store, limit);
            let mut flights: Vec<_> = (0..100).map(|key| limiter.try_enter(&key).unwrap()).collect();
            assert_eq!((limiter.evict_idle(), limiter.len()), (0, 100), "limit {limit}");
            flights.truncate(40);
            assert_eq!((limiter.evict_idle(), limiter.len()), (60, 40), "limit {limit}");
            assert!((0..100).all(|key| limiter.in_flight(&key) == u32::from(key < 40)), "limit {limit}");
            flights.clear();
            assert_eq!((limiter.evict_idle(), limiter.len()), (40, 0), "limit {limit}");
        }
    }
}

#[test]
fn a_key_has_the_largest_limit_in_flight_and_no_more() {
    // A quick run does not reach the largest one.
    let most = size(1 << 15, 1 << 20);
    for store in [Store::Map, Store::Table] {
        let limiter = limiter(store, most);
        let mut flights: Vec<_> = (0..most).map(|_| limiter.try_enter(&1).unwrap()).collect();
        assert_eq!(limiter.try_enter(&1).unwrap_err().in_flight(), most);
        flights.truncate(3);
        assert_eq!(limiter.in_flight(&1), 3);
    }
}

/// A limit that falls below the requests in flight admits none until they are fewer.
#[test]
fn a_limit_below_the_requests_in_flight_keeps_them_and_their_count() {
    for store in [Store::Map, Store::Table] {
        let limiter = limiter(store, 8);
        let mut flights: Vec<_> = (0..8).map(|_| limiter.try_enter(&1).unwrap()).collect();
        set_limit(&limiter, 2);
        for count in (2..=8).rev() {
            flights.truncate(count as usize);
            let refused = limiter.try_enter(&1).unwrap_err();
            assert_eq!((refused.limit(), refused.in_flight(), limiter.in_flight(&1)), (2, count, count));
        }
        flights.truncate(1);
        assert!(limiter.try_enter(&1).is_ok());
        set_limit(&limiter, 1 << 20);
        assert_eq!((limit(&limiter), limiter.try_enter(&1).is_ok()), (1 << 20, true));
    }
}

#[test]
fn a_flood_of_keys_is_bounded_and_shuts_out_no_key_that_is_held() {
    let limiter = RateLimiter::<u64, _>::builder(Places::new(2)).max_keys(100).build();
    let held: Vec<_> = (0..50).map(|key| limiter.try_enter(&key).unwrap()).collect();
    for round in 1..50_u64 {
        let flights: Vec<_> = (0..1_000).map(|key| limiter.try_enter(&(round * 10_000 + key))).collect();
        let full = flights.iter().filter(|entered| entered.as_ref().is_err_and(|refused| refused.is_full()));
        // Fifty keys find room, and have it until their requests leave.
        assert_eq!((full.count(), limiter.len()), (950, 100), "round {round}");
        assert!((0..50).all(|key| limiter.try_enter(&key).is_ok()));
    }
    assert_eq!(held.len(), 50);
    assert!((0..50).all(|key| limiter.in_flight(&key) == 1));
}

/// A key whose requests have left makes room for a new one at once, however long the limiter was
/// full, and however many keys were refused then.
#[test]
fn a_new_key_has_room_as_soon_as_a_request_leaves() {
    let limiter = RateLimiter::<u64, _>::builder(Places::new(1)).max_keys(60).build();
    let mut held: Vec<_> = (0..60).map(|key| limiter.try_enter(&key).unwrap()).collect();
    for round in 1..100_u64 {
        for key in 0..round * 7 {
            assert!(limiter.try_enter(&(round * 10_000 + key)).unwrap_err().is_full());
        }
        drop(held.swap_remove(round as usize % 60));
        held.push(limiter.try_enter(&(round * 10_000)).expect("a key has left"));
    }
}

#[test]
fn a_flight_that_is_dropped_in_another_thread_leaves() {
    for store in [Store::Map, Store::Table] {
        let limiter = limiter(store, 2);
        let (flight, owned) = (limiter.try_enter(&1).unwrap(), limiter.try_enter_owned(&1).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(move || drop(flight));
        });
        assert_eq!(limiter.in_flight(&1), 1);
        std::thread::spawn(move || drop(owned)).join().unwrap();
        assert_eq!((limiter.in_flight(&1), limiter.evict_idle()), (0, 1));
    }
}

#[test]
fn the_place_of_a_flight_that_is_forgotten_is_never_free_again() {
    for store in [Store::Map, Store::Table] {
        let limiter = limiter(store, 2);
        std::mem::forget(limiter.try_enter(&1).unwrap());
        assert_eq!((limiter.evict_idle(), limiter.in_flight(&1)), (0, 1));
        let flight = limiter.try_enter(&1).unwrap();
        assert!(limiter.try_enter(&1).is_err());
        drop(flight);
        assert_eq!((limiter.evict_idle(), limiter.in_flight(&1)), (0, 1));
    }
}

#[test]
fn a_panic_gives_the_place_back() {
    for store in [Store::Map, Store::Table] {
        let limiter = limiter(store, 1);
        let work = || {
            let _flight = limiter.try_enter(&1).unwrap();
            assert!(limiter.try_enter(&1).is_err());
            panic!("the request fails");
        };
        assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
        let owned = limiter.try_enter_owned(&1).unwrap();
        let task = std::thread::spawn(move || {
            let _flight = owned;
            panic!("the task fails");
        });
        assert!(task.join().is_err());
        assert_eq!(limiter.in_flight(&1), 0);
    }
}

#[test]
fn four_threads_never_have_more_than_the_limit_of_a_key_in_flight() {
    const LIMIT: u32 = 3;
    for store in [Store::Map, Store::Table] {
        let limiter = limiter(store, LIMIT);
        let counts = [const { AtomicU32::new(0) }; 2];
        let admitted = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (limiter, counts, admitted) = (&limiter, &counts, &admitted);
                scope.spawn(move || {
                    let (mut random, mut own) = (Random(thread), Vec::new());
                    for _ in 0..20_000 {
                        let key = random.below(2);
                        if random.below(2) == 0 {
                            if let Ok(flight) = limiter.try_enter(&key) {
                                let count = 1 + counts[key as usize].fetch_add(1, Ordering::SeqCst);
                                assert!(count <= LIMIT, "{count} in flight");
                                admitted.fetch_add(1, Ordering::Relaxed);
                                own.push((key, flight));
                            }
                        } else if let Some((key, flight)) = own.pop() {
                            counts[key as usize].fetch_sub(1, Ordering::SeqCst);
                            drop(flight);
                        }
                    }
                    for (key, flight) in own {
                        counts[key as usize].fetch_sub(1, Ordering::SeqCst);
                        drop(flight);
                    }
                });
            }
        });
        assert!(admitted.into_inner() > 1_000);
        assert_eq!([0, 1].map(|key| limiter.in_flight(&key)), [0, 0]);
        let all: Vec<_> = (0..LIMIT).map(|_| limiter.try_enter(&0).expect("no place was lost")).collect();
        assert!(limiter.try_enter(&0).is_err());
        drop(all);
    }
}

/// A refusal says the requests of the key and its limit, or that a new key has no room.
#[test]
fn a_refusal_of_a_key_says_why() {
    let limiter: Keys = RateLimiter::builder(Places::new(2)).max_keys(1).build();
    assert!(limiter.is_empty());
    let flights = [limiter.try_enter(&1).unwrap(), limiter.try_enter(&1).unwrap()];
    assert_eq!((limiter.is_empty(), limiter.stats().keys, limiter.stats().refused_full), (false, 1, 0));
    let refused = [limiter.try_enter(&1).unwrap_err(), limiter.try_enter(&2).unwrap_err()];
    assert_eq!(refused.map(|refused| (refused.limit(), refused.in_flight())), [(2, 2), (2, 0)]);
    assert_eq!(refused.map(|refused| refused.is_full()), [false, true]);
    assert_eq!(
        refused.map(|refused| refused.to_string()),
        ["2 requests are in flight, and the limit is 2", "no room for a new key"]
    );
    assert_eq!(limiter.stats().refused_full, 1);
    limiter.set_rule(Places::BLOCKED).unwrap();
    assert_eq!(
        limiter.try_enter(&1).unwrap_err().to_string(),
        "2 requests are in flight, and the limit is 0"
    );
    drop(flights);
    let paused = limiter.try_enter(&1).unwrap_err();
    assert_eq!(
        (paused.is_full(), paused.to_string()),
        (false, "no request is admitted: the limit is 0".into())
    );
}

/// A clone has the same counts, and the same limit.
#[test]
fn a_clone_is_the_same_limiter() {
    for store in [Store::Map, Store::Table] {
        let limiter = limiter(store, 1);
        let clone = limiter.clone();
        let flight = limiter.try_enter(&7).unwrap();
        assert!(clone.try_enter(&7).is_err());
        set_limit(&clone, 2);
        assert!(limiter.try_enter(&7).is_ok());
        drop(flight);
        assert_eq!(clone.in_flight(&7), 0);
    }
}
