//! Reloads while requests are decided.

use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::thread;

use tollgate_testing::Random;

use super::*;

fn limits(rule: &str) -> Limits {
    Limits::new(&settings(Some(rule), None), None, KeyHasher::new()).expect("no store is asked")
}

fn settings(rule: Option<&str>, keys: Option<usize>) -> Settings {
    let mut settings =
        Settings { limit: rule.map(|rule| rule.parse().expect("a rule")), ..Settings::default() };
    settings.bounds.keys_per_limit = keys;
    settings
}

fn replace(limits: &Limits, rule: Option<&str>, keys: Option<usize>) {
    limits.replace(&settings(rule, keys), None).expect("the settings hold");
}

fn key(last: usize) -> Key {
    Key::Address(std::net::Ipv4Addr::from(last as u32).into())
}

/// Takes a token of a key as a request does, by limits that it has seen some time ago. Returns
/// whether there was one, and whether that is void.
fn take(seen: &InForce, key: &Key) -> (bool, bool) {
    let routed = seen.everywhere_else.as_ref().expect("there is a limit");
    let limit = &routed.limits.limits[0];
    limit.carry(key);
    let is_granted = match &limit.limiter {
        Limiter::Buckets(limiter, _) => limiter.try_acquire(key).is_ok(),
        Limiter::Windows(limiter, _) => limiter.try_acquire(key).is_ok(),
        Limiter::Shared(..) => unreachable!("there is no store"),
    };
    (is_granted, routed.limits.are_replaced())
}

/// Returns whether a request is granted. It looks again as often as its limits are replaced.
fn is_granted(limits: &Limits, key: &Key) -> bool {
    loop {
        let seen = limits.in_force();
        if seen.everywhere_else.is_none() {
            return false;
        }
        if let (granted, false) = take(&seen, key) {
            return granted;
        }
    }
}

fn granted(limits: &Limits, key: &Key) -> usize {
    (0..50).filter(|_| is_granted(limits, key)).count()
}

/// The old buckets would grant a key that has left them, and one that they have never seen.
#[test]
fn a_decision_by_limits_that_are_replaced_is_void() {
    for after in ["5/d fixed", "1/d burst 5", "5/d sliding"] {
        let limits = limits("5/h fixed");
        assert_eq!((0..3).filter(|_| is_granted(&limits, &key(1))).count(), 3);
        let seen = limits.in_force();
        replace(&limits, Some(after), None);
        assert_eq!(granted(&limits, &key(1)), 2, "{after}");
        assert_eq!(granted(&limits, &key(2)), 5, "{after}");
        assert_eq!([take(&seen, &key(1)), take(&seen, &key(2))], [(true, true); 2], "{after}");
        assert_eq!([granted(&limits, &key(1)), granted(&limits, &key(2))], [0; 2], "{after}");
    }
}

#[test]
fn a_key_keeps_its_count_when_the_limit_is_changed_and_changed_back_or_gone_for_a_while() {
    let rules =
        [("5/h fixed", None), ("1/h burst 5", None), ("5/h sliding", None), ("5/h fixed", Some(1_000))];
    for (before, of_before) in rules {
        for (after, of_after) in rules {
            let limits = limits(before);
            replace(&limits, Some(before), of_before);
            assert!((0..3).all(|_| is_granted(&limits, &key(1))));
            for _ in 0..20 {
                replace(&limits, Some(after), of_after);
                replace(&limits, None, of_after);
                replace(&limits, None, of_before);
                replace(&limits, Some(before), of_before);
                replace(&limits, Some(before), of_before);
            }
            replace(&limits, Some(after), of_after);
            assert_eq!(granted(&limits, &key(1)), 2, "{before}, {after}");
            replace(&limits, Some(before), of_before);
            assert_eq!(granted(&limits, &key(1)), 0, "{before}, {after}");
        }
    }
}

/// Each limit grants at most 20, and no token comes back while the test runs.
#[test]
fn random_reloads_beside_threads_grant_no_key_more_than_a_model() {
    const OF_A_KEY: usize = 60;
    let asks = tollgate_testing::size(20_000, 100_000);
    let rules = ["1/d burst 20", "20/d fixed", "20/d sliding", "2/d burst 20", "20/365d fixed"];
    let (limits, mut random) = (limits(rules[0]), Random(5));
    let grants: Vec<AtomicU32> = (0..=asks / OF_A_KEY).map(|_| AtomicU32::new(0)).collect();
    let (asked, mut reloads) = (AtomicUsize::new(0), 0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let ask = asked.fetch_add(1, Relaxed);
                    if ask >= asks {
                        return;
                    }
                    // An early key comes back after many reloads.
                    let of = if ask.is_multiple_of(4) { ask / OF_A_KEY / 2 } else { ask / OF_A_KEY };
                    grants[of].fetch_add(is_granted(&limits, &key(of)).into(), Relaxed);
                }
            });
        }
        while asked.load(Relaxed) < asks {
            let rule = (random.below(8) > 0).then(|| random.pick(&rules));
            replace(&limits, rule, random.pick(&[None, None, Some(10_000)]));
            reloads += 1;
        }
    });
    println!("{asks} requests, {reloads} reloads");
    let over: Vec<u32> = grants.iter().map(|grants| grants.load(Relaxed)).filter(|n| *n > 20).collect();
    assert_eq!(over, Vec::<u32>::new(), "keys above 20");
    assert!(grants.iter().any(|grants| grants.load(Relaxed) >= 19));
}
