//! The buckets and windows of a limit as homes, which keys leave by a reload.

use std::time::Duration;

use super::keys::Key;
use super::limiter::Limiter;
use tollgate_common::past::{Carried, CountTable, Use, longest_use};

impl CountTable for Limiter {
    type Key = Key;

    fn now(&self) -> u64 {
        match self {
            Limiter::Buckets(limiter, _) => limiter.now().as_nanos(),
            Limiter::Windows(limiter, _) => limiter.now().as_nanos(),
            Limiter::Shared(..) => 0,
        }
    }

    fn longest_use(&self) -> Duration {
        longest_use(self.rule())
    }

    fn is(&self, other: &Limiter) -> bool {
        match (self, other) {
            (Limiter::Buckets(one, _), Limiter::Buckets(other, _)) => one.id() == other.id(),
            (Limiter::Windows(one, _), Limiter::Windows(other, _)) => one.id() == other.id(),
            _ => false,
        }
    }

    fn counts(&self) -> Carried {
        if matches!(self, Limiter::Windows(..)) { Carried::Used } else { Carried::Both }
    }

    fn capacity(&self) -> u64 {
        self.rule().capacity()
    }

    fn holds(&self, key: &Key) -> bool {
        match self {
            Limiter::Buckets(limiter, _) => limiter.contains(key),
            Limiter::Windows(limiter, _) => limiter.contains(key),
            Limiter::Shared(..) => false,
        }
    }

    fn use_of(&self, key: &Key) -> Use {
        let left = self.left(key);
        Use { used: self.rule().capacity().saturating_sub(left), left, ..Use::default() }
    }

    fn take(&self, key: &Key, tokens: u64) {
        match self {
            Limiter::Buckets(limiter, _) => drop(limiter.key(key).n(tokens).acquire_up_to()),
            Limiter::Windows(limiter, _) => drop(limiter.key(key).n(tokens).acquire_up_to()),
            Limiter::Shared(..) => {}
        }
    }

    fn forget(&self, key: &Key) {
        match self {
            Limiter::Buckets(limiter, _) => drop(limiter.remove(key)),
            Limiter::Windows(limiter, _) => drop(limiter.remove(key)),
            Limiter::Shared(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::hasher::KeyHasher;
    use crate::limits::limiter::KeyPlace;
    use tollgate_common::past::{Left, Moves, Past};

    fn limiter(rule: &str) -> Limiter {
        let keys = KeyPlace { most: Some(100), hasher: KeyHasher::new() };
        Limiter::new("a", rule.parse().expect("a rule"), keys, None).expect("no store is asked")
    }

    fn key(last: u8) -> Key {
        Key::Address([192, 0, 2, last].into())
    }

    fn past(limiters: &[&Limiter]) -> Past<Limiter> {
        let past = Past::default();
        limiters.iter().for_each(|limiter| past.put(Left::of((*limiter).clone()), None));
        past
    }

    /// Returns the tokens that are left to a key that has used some before the change.
    fn left(before: &str, used: u64, after: &str) -> u64 {
        let (old, new) = (limiter(before), limiter(after));
        old.take(&key(1), used);
        let past = past(&[&old]);
        past.carry(&key(1), &new, &Moves::default());
        let left = new.left(&key(1));
        past.carry(&key(1), &new, &Moves::default());
        past.carry(&key(2), &new, &Moves::default());
        assert_eq!(new.left(&key(1)), left, "it is charged once");
        assert_eq!(new.left(&key(2)), new.rule().capacity(), "another key has used none");
        left
    }

    #[test]
    fn a_bucket_keeps_the_tokens_left_and_a_window_those_used() {
        for (before, used, after, wanted) in [
            ("1/h burst 40", 37, "1/h burst 1000000", 3),
            ("1/h burst 40", 40, "1/h burst 1000000", 0),
            ("1/h burst 1000000", 999_990, "1/h burst 5", 0),
            ("100/d fixed", 30, "1/h burst 40", 10),
            ("100/d fixed", 98, "1/h burst 40", 0),
            ("1/h burst 40", 37, "100/d fixed", 63),
            ("100/d fixed", 98, "1000/d sliding", 902),
            ("100/d fixed", 98, "10/d sliding", 0),
            // A key that has used nothing is not limited by an old burst.
            ("1/h burst 40", 0, "1/h burst 1000000", 1_000_000),
        ] {
            assert_eq!(left(before, used, after), wanted, "{used} of {before}, then {after}");
        }
    }

    /// A smaller limit has no room for all that was used: a later, larger one still knows it.
    #[test]
    fn a_use_above_a_smaller_limit_is_not_forgotten() {
        for between in ["5/d sliding", "1/h burst 40", "5/s"] {
            let [first, second, third] = ["100/d fixed", between, "100/d sliding"].map(limiter);
            first.take(&key(1), 90);
            past(&[&first]).carry(&key(1), &second, &Moves::default());
            let granted = second.left(&key(1));
            second.take(&key(1), granted);
            past(&[&first, &second]).carry(&key(1), &third, &Moves::default());
            assert!(granted + third.left(&key(1)) <= 10, "{between}: {granted}, {}", third.left(&key(1)));
        }
    }

    #[test]
    fn a_second_change_takes_over_what_the_first_has_not() {
        let [first, second, third] = ["100/d fixed", "10/h fixed", "50/d sliding"].map(limiter);
        first.take(&key(1), 4);
        past(&[&first, &second]).carry(&key(1), &third, &Moves::default());
        assert_eq!(third.left(&key(1)), 46);
    }

    #[test]
    fn buckets_that_are_full_again_are_forgotten() {
        for (rule, seconds) in [("10/s burst 100", 10), ("10/s burst 5", 2), ("100/m fixed", 120)] {
            assert_eq!(longest_use(rule.parse().expect("a rule")), Duration::from_secs(seconds), "{rule}");
        }
        // The bucket is full in a few nanoseconds.
        let old = limiter("1000000000/s burst 2");
        let past = past(&[]);
        past.put(Left::of(old), None);
        let new = limiter("1/h burst 5");
        while past.is_live() {
            past.carry(&key(1), &new, &Moves::default());
        }
        assert!(past.left().is_empty() && new.left(&key(1)) == 5);
    }
}
