//! Late refunds go to the key they were taken from, and never to the key that has its place.

use tollgate::{Quota, WhenFull};

use super::{PLACES, table};
use crate::support::SECOND;

const TEN: Quota = Quota::per_second(10).burst(10);

#[test]
fn who_has_the_place_now_gets_nothing_of_what_is_given_back() {
    for actual in [0, 1, 5, 9] {
        let (limiter, mut time) = table(TEN, 1, WhenFull::Deny);
        let keys: Vec<_> = (0..PLACES).collect();
        let holds: Vec<_> = keys.iter().map(|key| limiter.key(key).n(5).hold().unwrap()).collect();
        let slots: Vec<_> = keys.iter().map(|key| limiter.key(key).n(3).reserve().unwrap()).collect();
        time.advance(60 * SECOND);
        let others = 100..100 + PLACES;
        for other in others.clone() {
            assert_eq!(limiter.try_acquire_n(&other, 8).map(|granted| granted.remaining()), Ok(2));
        }
        assert_eq!((limiter.len(), limiter.stats().evicted), (8, 8));
        drop(slots);
        for (key, hold) in keys.iter().zip(holds) {
            // The cost over the estimate is returned, and no key is charged.
            assert_eq!(hold.settle(actual), actual.saturating_sub(5), "{key}");
            limiter.refund(key, 5);
        }
        assert!(others.clone().all(|other| limiter.peek(&other).remaining() == 2));
        assert!(keys.iter().all(|key| limiter.peek(key).remaining() == 10));
        assert_eq!(limiter.len(), 8);
    }
}

#[test]
fn a_key_that_was_removed_gets_nothing_back_while_it_is_gone() {
    let (limiter, _time) = table(TEN, 100, WhenFull::Deny);
    for key in 0..50 {
        let (hold, slot) =
            (limiter.key(&key).n(5).hold().unwrap(), limiter.key(&key).n(2).reserve().unwrap());
        assert!(limiter.remove(&key));
        drop(slot);
        assert_eq!(hold.settle(7), 2, "nobody is charged");
        assert_eq!((limiter.peek(&key).remaining(), limiter.len()), (10, 0));
    }
}
