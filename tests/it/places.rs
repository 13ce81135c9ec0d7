// promise: inflight
//! The rule of places through the public API: each verb, on both stores and on one bucket.

use std::time::Duration;

use tollgate::{Clock, Limit, Places, Quota, RateLimiter, Reason, all_of};

fn both(limit: u32) -> [RateLimiter<u64, Places>; 2] {
    let builder = || RateLimiter::<u64, _>::builder(Places::new(limit));
    [builder().build(), builder().max_keys(64).inline().unwrap().build()]
}

#[test]
fn a_limit_has_its_bounds_and_its_text() {
    assert_eq!(Places::new(1 << 20).limit(), 1 << 20);
    for limit in [0, (1 << 20) + 1] {
        let error = Places::try_new(limit).unwrap_err().to_string();
        assert_eq!(error, format!("a limit of {limit} places is out of the bounds from 1 to 2^20"));
    }
    assert_eq!(Places::new(3).to_string(), "3 places");
}

#[test]
fn each_verb_takes_and_gives_places() {
    let (clock, mock) = Clock::mock();
    let builder = || RateLimiter::<u64, _>::builder(Places::new(5)).clock(clock.clone());
    for limiter in [builder().build(), builder().max_keys(64).inline().unwrap().build()] {
        assert_eq!(limiter.try_acquire_n(&1, 3).unwrap().remaining(), 2);
        let denied = limiter.try_acquire_n(&1, 3).unwrap_err();
        assert_eq!(
            (denied.reason(), denied.remaining(), denied.retry_after()),
            (Reason::Empty, 2, Some(Duration::ZERO))
        );
        let never = limiter.try_acquire_n(&1, 6).unwrap_err();
        assert_eq!((never.reason(), never.retry_after()), (Reason::TooMany, None));
        // A part of the limit is for others.
        assert!(limiter.key(&1).keep(40).try_acquire().is_err());
        assert!(limiter.key(&1).keep(20).try_acquire().is_ok());
        assert_eq!(limiter.key(&1).n(9).acquire_up_to().tokens(), 1);
        assert_eq!(limiter.key(&1).at(limiter.now()).try_acquire().unwrap_err().reason(), Reason::Empty);
        // A place is taken until it is given back, whatever the time.
        mock.advance(Duration::from_secs(100 * 365 * 24 * 3_600));
        assert!(limiter.try_acquire(&1).is_err());
        limiter.refund(&1, 2);
        assert_eq!((limiter.peek(&1).remaining(), limiter.pin().try_acquire(&1).is_ok()), (2, true));
        limiter.refund(&1, 99);
        assert_eq!(limiter.peek(&1).remaining(), 5);
    }
}

#[test]
fn a_hold_gives_its_places_back_and_may_be_owned() {
    for limiter in both(4) {
        let hold = limiter.key(&1).n(2).hold().unwrap();
        let owned = limiter.key(&1).n(2).hold_owned().unwrap();
        assert!(limiter.try_acquire(&1).is_err());
        assert_eq!(std::thread::spawn(move || owned.settle(0)).join().unwrap(), 0);
        assert_eq!(limiter.peek(&1).remaining(), 2);
        // More than the estimate, and none is owed.
        assert_eq!(hold.settle(4), 0);
        assert_eq!(limiter.peek(&1).remaining(), 0);
    }
}

#[test]
fn a_key_with_a_place_in_use_is_never_forgotten() {
    for limiter in both(2) {
        let holds: Vec<_> = (0..64).map_while(|key| limiter.key(&key).hold().ok()).collect();
        assert!(holds.len() > 40, "{}", holds.len());
        // Many removals, in each shard of receipts.
        for key in 1_000..9_000 {
            assert!(!limiter.remove(&(key % 40)), "{key}");
            if limiter.try_acquire(&key).is_ok() {
                limiter.refund(&key, 1);
                assert!(limiter.remove(&key));
            }
        }
        limiter.clear();
        assert_eq!((limiter.evict_idle(), limiter.len()), (0, holds.len()));
        holds.into_iter().for_each(|hold| assert_eq!(hold.settle(0), 0));
        limiter.clear();
        assert!(limiter.is_empty());
    }
}

#[test]
fn a_new_key_without_room_is_refused() {
    let limiter = RateLimiter::<u64, _>::builder(Places::new(1)).max_keys(1).build();
    let hold = limiter.key(&1).hold().unwrap();
    assert_eq!(limiter.try_acquire(&2).unwrap_err().reason(), Reason::Full);
    hold.settle(0);
    assert!(limiter.try_acquire(&2).is_ok());
    assert_eq!((limiter.stats().refused_full, limiter.stats().shared), (1, 0));
}

#[test]
fn another_limit_is_set_and_planned() {
    for limiter in both(1) {
        let gold = limiter.plan(Places::new(3)).unwrap();
        assert!(limiter.try_acquire(&1).is_ok() && limiter.try_acquire(&1).is_err());
        assert_eq!(limiter.key(&1).under(&gold).n(2).try_acquire().unwrap().remaining(), 0);
        limiter.set_rule(Places::new(4)).unwrap();
        assert_eq!((limiter.rule(), limiter.rule_under(&gold)), (Places::new(4), Places::new(3)));
        assert!(limiter.try_acquire(&1).is_ok());
        limiter.set_rule(Places::new(2)).unwrap();
        limiter.refund(&1, 2);
        assert!(limiter.try_acquire(&1).is_err());
        limiter.refund(&1, 1);
        assert!(limiter.try_acquire(&1).is_ok());
    }
}

#[test]
fn places_are_paused_and_go_on() {
    let is_blocked = |limiter: &RateLimiter<u64, Places>| {
        let denied = limiter.try_acquire(&1).unwrap_err();
        assert_eq!((denied.reason(), denied.retry_after(), denied.remaining()), (Reason::Blocked, None, 0));
        assert_eq!((limiter.rule(), limiter.peek(&1).retry_after()), (Places::BLOCKED, None));
    };
    for limiter in both(3) {
        let most = limiter.plan(Places::new(9)).unwrap();
        let hold = limiter.key(&1).n(2).hold().unwrap();
        limiter.set_rule(Places::BLOCKED).unwrap();
        is_blocked(&limiter);
        assert!(limiter.try_acquire_n(&1, 0).is_ok() && limiter.try_acquire(&2).is_err());
        assert!(!limiter.remove(&1) && !limiter.contains(&2));
        assert_eq!(limiter.key(&1).under(&most).peek().remaining(), 7);
        hold.settle(0);
        is_blocked(&limiter);
        limiter.set_rule(Places::new(2)).unwrap();
        assert!(limiter.try_acquire_n(&1, 2).is_ok() && limiter.try_acquire(&1).is_err());
        assert!(limiter.plan(Places::BLOCKED).is_err());
    }
    let limiter = RateLimiter::<u64, _>::new(Places::BLOCKED);
    is_blocked(&limiter);
    limiter.set_rule(Places::new(1)).unwrap();
    assert!(limiter.try_acquire(&1).is_ok() && limiter.try_acquire(&1).is_err());
    assert_eq!(Places::BLOCKED.to_string(), "no places");
}

#[test]
fn a_place_is_undone_with_the_others() {
    let (calls, [places, _]) = (RateLimiter::<u64>::new(Quota::per_hour(1)), both(2));
    assert!(all_of((places.key(&1), calls.key(&1))).try_acquire().is_ok());
    assert_eq!(all_of((places.key(&1), calls.key(&1))).try_acquire().unwrap_err().which(), 1);
    assert_eq!(places.peek(&1).remaining(), 1);
}

#[test]
fn one_bucket_and_the_shared_bucket_count_places() {
    let limit = Limit::builder(Places::new(2)).build();
    let hold = limit.ask().n(2).hold().unwrap();
    assert!(limit.try_acquire().is_err());
    hold.settle(0);
    assert_eq!(limit.try_acquire_n(2).unwrap().remaining(), 0);
    limit.refund(1);
    assert_eq!(limit.peek().remaining(), 1);
    let [limiter, _] = both(1);
    let hold = limiter.shared().hold_owned().unwrap();
    assert!(limiter.shared().try_acquire().is_err());
    hold.settle(0);
    assert!(limiter.shared().try_acquire().is_ok());
}
