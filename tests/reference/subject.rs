//! The subject that is driven beside its ideal.

#![allow(dead_code, reason = "not every user of the reference drives a bucket")]

use std::time::Duration;

use tollgate::{Denied, Granted, Moment, Quota};
use tollgate_testing::reference::Answer;

pub(crate) type Decision = Result<Granted, Denied>;

/// A bucket that is driven beside its ideal. Each call is under a plan, or under the own quota.
pub(crate) trait Subject {
    type Plan: Copy;
    /// Tokens that may be given back.
    type Taken;
    /// A reservation without patience is a take, and refused as one.
    const ZERO_PATIENCE_TAKES: bool = true;

    fn now(&self) -> Moment;
    fn quota(&self) -> Quota;
    fn look(&self, plan: Option<Self::Plan>) -> Answer;
    fn take(&self, n: u64, plan: Option<Self::Plan>) -> (Decision, Option<Self::Taken>);
    /// Takes at a reading, and returns the reading that counted, if it is visible.
    fn take_at(&self, now: Moment, n: u64, plan: Option<Self::Plan>) -> (Decision, Option<u64>);
    /// Takes the tokens that are there above a part of the burst, in percent.
    fn up_to(&self, n: u64, keep: u8, plan: Option<Self::Plan>) -> (Decision, Option<Self::Taken>);
    /// Takes if a part of the burst stays, in percent.
    fn above(&self, n: u64, percent: u8, plan: Option<Self::Plan>) -> (Decision, Option<Self::Taken>);
    /// Reserves tokens that are due when a part of the burst stays, in percent.
    fn reserve(
        &self,
        n: u64,
        keep: u8,
        patience: Option<u64>,
        plan: Option<Self::Plan>,
    ) -> Reserved<Self::Taken>;
    /// Returns whether the word was changed, if it is visible.
    fn refund(&self, n: u64, plan: Option<Self::Plan>) -> Option<bool>;
    fn give_back(&self, taken: Self::Taken) -> Returned;
    /// Returns false if the quota is refused.
    fn set_quota(&self, quota: Quota) -> bool;

    /// The fewest tokens of a hold: with fewer no answer tells whether there is an entry.
    fn least_hold(&self) -> u64 {
        0
    }

    fn hold(&self, n: u64, plan: Option<Self::Plan>) -> (Decision, Option<Self::Taken>) {
        self.take(n, plan)
    }

    /// Uses a reservation, or settles a hold and returns the uncharged part of `actual`. A subject
    /// without this verb settles nothing.
    fn settle(&self, _: Self::Taken, _actual: u64) -> Option<u64> {
        None
    }

    /// Returns the tokens that were taken of `n`. A subject without this verb takes none.
    fn charge(&self, _n: u64, _: Option<Self::Plan>) -> u64 {
        0
    }

    /// Returns whether it was void, for a later promise, and whether the word was changed. A
    /// subject without this verb changes nothing.
    fn undo(&self, _: Self::Taken) -> (bool, bool) {
        (true, false)
    }

    fn plan(&self, _: Quota) -> Option<Self::Plan> {
        None
    }

    /// Returns false if the key was not there.
    fn remove(&self) -> bool {
        false
    }
}

pub(crate) type Reserved<T> = Result<Made<T>, Denied>;

/// A reservation that was made.
pub(crate) struct Made<T> {
    /// The answer about the bucket.
    pub(crate) answer: Answer,
    pub(crate) delay: Duration,
    pub(crate) ready_at: Moment,
    pub(crate) kept: Option<T>,
}

/// The effect of giving back.
pub(crate) enum Returned {
    /// No effect: a hold stays as it was estimated.
    Stays,
    Unseen,
    Seen {
        last: bool,
        committed: bool,
    },
}
