// promise: never-late
//! Tokens of the future: slots of time in order of arrival, bounded debt, and deadlines.

use tollgate::{Quota, Reason};

use super::face::{Face, Set, on_each, on_each_of};
use crate::support::{Random, SECOND, nanos, ns};

const MS: u64 = 1_000_000;

/// A quota of a token in 100 ms.
const TEN: Quota = Quota::per_second(10).burst(5);

fn in_debt(quota: Quota, debt: u64) -> Set {
    Set { max_debt: Some(debt), ..Set::of(quota) }
}

#[test]
fn slots_follow_each_other_in_order_of_arrival() {
    on_each(in_debt(TEN, 10_000), |face, mut time| {
        let mut random = Random(1);
        let start = face.now();
        let mut due = 0;
        for order in 0..1_000 {
            let n = 1 + random.below(5);
            let slot = face.reserve(n).unwrap();
            // The first five tokens were there.
            due += n * 100 * MS;
            let ready = due.saturating_sub(500 * MS).max(time.now());
            assert_eq!(nanos(slot.ready_at().since(start)), ready, "the {order}th");
            assert_eq!(nanos(slot.delay()), ready - time.now());
            let granted = slot.commit();
            assert_eq!(
                (granted.tokens(), granted.remaining()),
                (n, (5 * 100 * MS + time.now()).saturating_sub(due) / (100 * MS))
            );
            // Time passes more slowly than tokens are promised, so the bucket stays in debt.
            time.advance(random.below(100 * MS));
        }
    });
}

#[test]
fn more_than_the_burst_is_refused_for_ever_whatever_the_debt() {
    for debt in [0, 5, 1_000] {
        on_each(in_debt(TEN, debt), |face, _| {
            for n in [6, 7, 1 << 40, u64::MAX] {
                for refused in [face.reserve(n), face.reserve_within(n, 0), face.reserve_within(n, u64::MAX)]
                {
                    let denied = refused.unwrap_err();
                    let said = (denied.reason(), denied.retry_after(), denied.remaining());
                    assert_eq!(said, (Reason::TooMany, None, 5), "{n}");
                }
            }
            assert_eq!((face.peek().remaining(), face.peek().reset_after()), (5, ns(0)));
        });
    }
}

const QUOTAS: [Quota; 5] = [
    TEN,
    Quota::per_second(7).burst(10),
    Quota::per_second(333_333).burst(50),
    Quota::per_hour(1),
    Quota::per_second(1_000_000).burst(1_000),
];

/// `debt` tokens are promised and no more. The next is promised when a token has come, not a
/// nanosecond before.
#[test]
fn the_debt_is_bounded_exactly() {
    for quota in QUOTAS {
        for debt in [0, 1, quota.capacity() - 1, quota.capacity(), 10 * quota.capacity() + 3] {
            for n in [1, quota.capacity()] {
                on_each(in_debt(quota, debt), |face, mut time| {
                    let mut left = quota.capacity() + debt;
                    while left > 0 {
                        let n = left.min(quota.capacity());
                        let _ = face.reserve(n).expect("there is room").commit();
                        left -= n;
                    }
                    let denied = face.reserve(n).unwrap_err();
                    let wait = nanos(denied.retry_after().unwrap());
                    assert_eq!((denied.reason(), denied.remaining()), (Reason::Debt, 0), "{quota}, {debt}");
                    let earliest = (nanos(quota.period()) * n).div_ceil(quota.tokens());
                    assert_eq!(wait, earliest, "{quota}, {debt}: {n}");
                    time.advance(wait - 1);
                    assert_eq!(face.reserve(n).unwrap_err().retry_after(), Some(ns(1)), "{quota}, {debt}");
                    time.advance(1);
                    assert_eq!(face.reserve(n).unwrap().commit().tokens(), n, "{quota}, {debt}");
                    assert_eq!(face.reserve(1).unwrap_err().reason(), Reason::Debt);
                });
            }
        }
    }
}

#[test]
fn without_debt_only_what_is_there_is_reserved() {
    on_each(in_debt(TEN, 0), |face, mut time| {
        assert_eq!(face.reserve(3).unwrap().commit().remaining(), 2);
        let denied = face.reserve(3).unwrap_err();
        assert_eq!((denied.reason(), denied.remaining()), (Reason::Debt, 2));
        assert_eq!(denied.retry_after(), Some(ns(100 * MS)));
        time.advance(100 * MS);
        let slot = face.reserve(3).unwrap();
        assert_eq!((slot.delay(), slot.commit().remaining()), (ns(0), 0));
    });
}

#[test]
fn the_bound_is_one_burst_unless_said_otherwise() {
    let promises = |face: &dyn Face| {
        (0..1_000).take_while(|_| face.reserve(1).map(|slot| slot.commit()).is_ok()).count()
    };
    on_each_of(TEN, |face, _| {
        assert_eq!(promises(face), 10);
        // The debt stays as it is. Under a smaller burst no more is promised, and under a larger
        // one only the built debt.
        face.set_rule(Quota::per_second(10).burst(3)).unwrap();
        assert_eq!(promises(face), 0);
    });
    on_each_of(TEN, |face, _| {
        face.set_rule(Quota::per_second(10).burst(3)).unwrap();
        assert_eq!(promises(face), 6);
    });
    let headroom = Some(Quota::per_second(10).burst(20));
    on_each(Set { headroom, ..Set::of(TEN) }, |face, _| {
        assert_eq!(face.up_to(5).tokens(), 5);
        face.set_rule(Quota::per_second(10).burst(20)).unwrap();
        let debt = promises(face);
        assert!((5..=20).contains(&debt), "{debt}");
    });
    // A bound that is set stays, whatever the burst becomes.
    on_each(in_debt(TEN, 7), |face, _| {
        face.set_rule(Quota::per_second(10).burst(3)).unwrap();
        assert_eq!(promises(face), 3 + 7);
    });
}

/// A wait as long as the patience is granted, and one a nanosecond longer is not. `retry_after`
/// says when that wait is short enough.
#[test]
fn a_deadline_is_exact() {
    for quota in QUOTAS {
        on_each(in_debt(quota, 3 * quota.capacity()), |face, mut time| {
            time.set(SECOND + 1);
            let _ = face.reserve(quota.capacity()).unwrap().commit();
            let n = quota.capacity().div_ceil(2);
            let delay = nanos(face.reserve(n).unwrap().delay());
            assert!(delay > 0);
            for patience in [0, 1, delay / 2, delay - 1] {
                let before = face.peek();
                let denied = face.reserve_within(n, patience).unwrap_err();
                // A caller that does not wait is refused as by a take.
                let reason = if patience == 0 { Reason::Empty } else { Reason::Deadline };
                assert_eq!(denied.reason(), reason);
                assert_eq!(denied.retry_after(), Some(ns(delay - patience)), "{quota}: {patience}");
                assert_eq!(face.peek(), before, "a refusal takes nothing");
            }
            for patience in [delay, delay + 1, u64::MAX - 1, u64::MAX] {
                assert_eq!(nanos(face.reserve_within(n, patience).unwrap().delay()), delay, "{quota}");
            }
            let (patience, wait) = (delay / 3, delay - delay / 3);
            time.advance(wait - 1);
            assert_eq!(face.reserve_within(n, patience).unwrap_err().retry_after(), Some(ns(1)), "{quota}");
            time.advance(1);
            assert_eq!(nanos(face.reserve_within(n, patience).unwrap().delay()), patience, "{quota}");
        });
    }
}

/// The reason that lasts longer decides.
#[test]
fn a_deadline_beyond_the_debt_waits_for_both() {
    on_each(in_debt(TEN, 2), |face, mut time| {
        let _ = face.reserve(5).unwrap().commit();
        let _ = face.reserve(2).unwrap().commit();
        // Three tokens are due in 500 ms, and the debt has room for them in 300 ms.
        for (patience, reason, wait) in [
            (0, Reason::Empty, 500),
            (100, Reason::Debt, 400),
            (250, Reason::Debt, 300),
            (900, Reason::Debt, 300),
        ] {
            let denied = face.reserve_within(3, patience * MS).unwrap_err();
            assert_eq!(
                (denied.reason(), denied.retry_after()),
                (reason, Some(ns(wait * MS))),
                "{patience} ms"
            );
        }
        time.advance(400 * MS - 1);
        let denied = face.reserve_within(3, 100 * MS).unwrap_err();
        assert_eq!((denied.reason(), denied.retry_after()), (Reason::Deadline, Some(ns(1))));
        time.advance(1);
        assert!(face.reserve_within(3, 100 * MS).is_ok());
    });
}

#[test]
fn plain_takes_never_go_into_debt() {
    on_each(in_debt(TEN, 1_000), |face, mut time| {
        assert!(face.try_n(5).is_ok());
        for _ in 0..10 {
            let _ = face.reserve(5).unwrap().commit();
            assert_eq!((face.up_to(5).tokens(), face.peek().remaining()), (0, 0));
        }
        let denied = face.try_n(2).unwrap_err();
        let wait = 5_200 * MS;
        assert_eq!((denied.reason(), denied.remaining()), (Reason::Empty, 0));
        assert_eq!(denied.retry_after(), Some(ns(wait)));
        time.advance(wait - 1);
        assert_eq!(face.try_n(2).unwrap_err().remaining(), 1);
        time.advance(1);
        assert_eq!(face.try_n(2).unwrap().remaining(), 0);
    });
}
