// promise: law, never-late
//! Random sequences on a bucket alone, compared with the ideal bucket after every step. They need
//! no store, so they run once.

use proptest::prelude::*;
use tollgate::{Quota, TokenBucket};
use tollgate_testing::reference::Ideal;
use tollgate_testing::reference::strategies::{Step, moves, own, public_verbs, starts, steps, takes};

use crate::reference::drive::Driver;
use crate::reference::face::Face;
use crate::support::{Time, cases, nanos, quotas, unit_of};

pub(crate) fn walk(face: &Face, mut time: Time, quota: Quota, start: u64, steps: Vec<Step>) {
    time.set(start);
    let ideal = Ideal::new(quota.tokens(), nanos(quota.period()), quota.capacity());
    Driver::new(face, ideal, unit_of(quota), time).run(steps);
}

pub(crate) fn verbs() -> impl Strategy<Value = tollgate_testing::reference::steps::Verb> {
    prop_oneof![takes(), public_verbs()]
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn a_token_bucket_keeps_to_the_ideal(
        quota in quotas(),
        start in starts(),
        steps in steps(moves(), own(), verbs(), 120),
    ) {
        let (clock, time) = Time::new();
        walk(&Face::alone(TokenBucket::builder(quota).clock(clock).build()), time, quota, start, steps);
    }

    /// 31 takes are not enough for a lease.
    #[test]
    fn a_bucket_that_is_spread_keeps_to_the_ideal(
        quota in quotas(),
        start in starts(),
        steps in steps(moves(), own(), verbs(), 31),
    ) {
        let (clock, time) = Time::new();
        walk(&Face::alone(TokenBucket::builder(quota).clock(clock).spread().build()), time, quota, start, steps);
    }
}
