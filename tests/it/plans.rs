//! Keys under quotas of their own.

use tollgate::{Builder, Clock, Denied, Granted, Plan, Quota, RateLimiter, Reason, WhenFull, all_of};

use super::{InStore, Room, with_one};
use crate::support::{HOUR, Plain, SECOND, Time, Twin, nanos, ns};

const OWN: Quota = Quota::per_second(100);
const GOLD: Quota = Quota::per_second(1_000).burst(2_000);

const MS: u64 = 1_000_000;
/// A tick of the limiter below: a 64th of the time that a token takes under its own quota.
const TICK: u64 = SECOND / 100 / 64;

fn limiter() -> (RateLimiter<u64>, Time) {
    let (clock, time) = Time::new();
    let builder = RateLimiter::stored(OWN).headroom(Quota::per_second(2_000).burst(5_000)).unwrap();
    (builder.clock(clock).build(), time)
}

fn left(decision: Result<Granted, Denied>) -> u64 {
    decision.expect("it is granted").remaining()
}

#[test]
fn a_plan_has_a_burst_and_a_rate_of_its_own() {
    let (limiter, mut time) = limiter();
    let gold = limiter.plan(GOLD).unwrap();
    assert_eq!(gold.rule(), GOLD);
    for key in [1, 2] {
        let take = |n| match key {
            1 => limiter.key(&key).n(n).under(&gold).try_acquire(),
            _ => limiter.pin().key(&key).n(n).under(&gold).try_acquire(),
        };
        assert_eq!(left(take(0)), 2_000);
        assert_eq!(take(2_001).unwrap_err().reason(), Reason::TooMany);
        assert_eq!(take(u64::MAX).unwrap_err().retry_after(), None);
        assert_eq!(left(take(2_000)), 0);
        let wait = nanos(take(1).unwrap_err().retry_after().unwrap());
        assert!((MS..=MS + TICK).contains(&wait), "{wait} ns");
        time.advance(SECOND);
        assert_eq!(left(take(1_000)), 0);
        time.advance(10 * SECOND);
        assert_eq!(left(take(1)), 1_999);
    }
}

#[test]
fn a_kept_part_is_that_of_the_plans_burst() {
    let (limiter, _time) = limiter();
    let gold = limiter.plan(GOLD).unwrap();
    for key in [1, 2] {
        let take = |n| match key {
            1 => limiter.key(&key).n(n).under(&gold).keep(25).try_acquire(),
            _ => limiter.pin().key(&key).n(n).under(&gold).keep(25).try_acquire(),
        };
        assert_eq!(take(1_501).unwrap_err().reason(), Reason::TooMany);
        assert_eq!(left(take(1_500)), 500);
        assert_eq!(take(1).unwrap_err().remaining(), 500);
    }
}

#[test]
fn what_a_plan_says_is_exact() {
    for quota in [
        GOLD,
        Quota::per_hour(1).burst(10),
        Quota::per(7_919, ns(104_729_000_000)).burst(613),
        Quota::per_second(99).burst(100),
        Quota::per_second(2_000).burst(40),
        OWN,
    ] {
        let (limiter, mut time) = limiter();
        time.set(12_345_678_901);
        let plan = limiter.plan(quota).unwrap();
        assert_eq!(left(limiter.key(&1).n(quota.capacity()).under(&plan).try_acquire()), 0);
        let start = time.now();
        let mut came = 0;
        for n in (1..=quota.capacity()).cycle().take(40) {
            let wait =
                nanos(limiter.key(&1).n(n).under(&plan).try_acquire().unwrap_err().retry_after().unwrap());
            time.advance(wait - 1);
            let early = limiter.key(&1).n(n).under(&plan).try_acquire().unwrap_err();
            assert_eq!(early.retry_after(), Some(ns(1)), "{quota}: {n} in {wait} ns");
            time.advance(1);
            assert_eq!(left(limiter.key(&1).n(n).under(&plan).try_acquire()), 0, "{quota}: {n}");
            came += n;
            // No tick is lost, however often the key is asked for.
            let due = u128::from(came) * quota.period().as_nanos() / u128::from(quota.tokens());
            let late = i128::from(time.now() - start) - i128::try_from(due).unwrap();
            // A tick, and the time of the 64th of a token that a tick rounds to.
            let unit = nanos(quota.period()) / quota.tokens() / 64;
            assert!(late.abs() <= i128::from(TICK + unit), "{quota}: {came} tokens {late} ns late");
        }
    }
}

#[test]
fn a_key_keeps_its_tokens_as_it_moves_between_plans() {
    let (limiter, mut time) = limiter();
    let (gold, slow) = (limiter.plan(GOLD).unwrap(), limiter.plan(Quota::per_hour(1).burst(10)).unwrap());
    assert_eq!(left(limiter.key(&1).n(1_950).under(&gold).try_acquire()), 50);
    assert_eq!(limiter.peek(&1).remaining(), 50);
    assert_eq!(left(limiter.try_acquire(&1)), 49);
    assert_eq!(left(limiter.key(&1).under(&slow).try_acquire()), 9, "as far as they fit");
    assert_eq!(left(limiter.key(&1).n(9).under(&gold).try_acquire()), 0);
    // Tokens since the last use count at the plan of the call.
    time.advance(SECOND);
    assert_eq!(left(limiter.key(&1).n(0).under(&slow).try_acquire()), 0);
    assert_eq!(limiter.peek(&1).remaining(), 100);
    assert_eq!(left(limiter.key(&1).n(0).under(&gold).try_acquire()), 1_000);
    assert_eq!(limiter.len(), 1);
}

#[test]
fn a_plan_of_another_limiter_is_refused() {
    let ((mine, _), (other, _)) = (limiter(), limiter());
    let foreign = other.plan(GOLD).unwrap();
    for n in [0, 1, u64::MAX] {
        for denied in [
            mine.key(&1).n(n).under(&foreign).try_acquire(),
            mine.pin().key(&1).n(n).under(&foreign).try_acquire(),
        ] {
            let denied = denied.unwrap_err();
            assert_eq!((denied.reason(), denied.retry_after()), (Reason::ForeignPlan, None));
        }
    }
    let denied = all_of((mine.key(&2), mine.key(&1).under(&foreign))).try_acquire().unwrap_err();
    assert_eq!((denied.which(), denied.denied().reason()), (1, Reason::ForeignPlan));
    assert!(mine.is_empty());
    // A clone is the same limiter.
    assert!(other.clone().key(&1).under(&foreign).try_acquire().is_ok());
}

#[test]
fn a_plan_without_room_is_refused_by_its_bound() {
    let said =
        |own: Quota, plan: Quota| RateLimiter::<u64>::stored(own).build().plan(plan).unwrap_err().to_string();
    let text = said(OWN, Quota::per_second(1_000));
    assert!(text.starts_with("a burst of 1000 is over the bound of 155 tokens"), "{text}");
    let text = said(OWN, Quota::per_second(1_000_000_000).burst(10));
    assert!(text.contains("1/128 of a burst of 10 at 1000000000 tokens every 1000000000 ns"), "{text}");
    let text = said(Quota::per_second(1_000_000).burst(10), Quota::per(1, ns(1 << 61)).burst(1));
    assert!(text.contains("1 tokens every 2305843009213693952 ns") && text.contains("1/64"), "{text}");
}

/// A builder makes room for its plans, and the order of its options does not matter.
#[test]
fn a_builder_makes_room_for_its_plans_in_any_order() {
    type Step = fn(Builder<u64>) -> Builder<u64>;
    const QUICK: Quota = Quota::per_second(1_000);
    const LARGE: Quota = Quota::per_second(5).burst(50_000);
    let choose = |key: &u64| Some(*key as usize);
    let steps: [Step; 3] = [
        |builder| builder.plans([QUICK, LARGE]).unwrap(),
        |builder| builder.headroom(Quota::per_second(20_000)).unwrap(),
        |builder| builder.max_debt(7).unwrap(),
    ];
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let built = orders.map(|order| {
        let builder =
            order.iter().fold(RateLimiter::<u64>::stored(OWN), |builder, step| steps[*step](builder));
        let limiter = builder.clock(Clock::mock().0).plan_for(choose).build();
        let granted = [(0, QUICK), (1, LARGE)].map(|(key, plan)| {
            let granted = limiter.try_acquire_n(&key, plan.capacity()).expect("it is full");
            (granted.remaining(), granted.reset_after())
        });
        (granted, limiter.set_rule(Quota::per_second(1 << 30)).unwrap_err().to_string())
    });
    assert!(built.windows(2).all(|two| two[0] == two[1]), "{built:?}");
    // Without the other options.
    let limiter = RateLimiter::<u64>::stored(OWN).plans([QUICK, LARGE]).unwrap().plan_for(choose).build();
    assert_eq!([0, 1].map(|key| limiter.peek(&key).remaining()), [1_000, 50_000]);
    // No word holds both.
    let quick = RateLimiter::<u64>::stored(Quota::per_second(1_000_000).burst(10));
    assert!(quick.plans([Quota::per(1, ns(1 << 61)).burst(1)]).is_err());
}

fn by_tens() -> (RateLimiter<u64>, Time) {
    let (clock, time) = Time::new();
    let builder = RateLimiter::stored(Quota::per_second(10)).headroom(GOLD).unwrap().clock(clock);
    let plans = [GOLD, Quota::per_hour(1).burst(3)];
    let builder = builder.plans(plans).unwrap();
    let builder = builder.plan_for(|key: &u64| (*key >= 10).then(|| *key as usize / 10 - 1));
    (builder.build(), time)
}

/// Keys 0 to 9 are under the limiter's own quota, 10 to 19 under gold, 20 to 29 under slow. Other
/// keys name a plan that does not exist.
#[test]
fn a_key_is_under_the_plan_that_is_chosen_for_it() {
    let (limiter, _time) = by_tens();
    for (key, burst) in [(1, 10), (10, 2_000), (20, 3), (30, 10), (u64::MAX, 10)] {
        assert_eq!(
            (limiter.peek(&key).remaining(), limiter.pin().key(&key).peek().remaining()),
            (burst, burst)
        );
        assert_eq!(limiter.try_acquire_n(&key, burst + 1).unwrap_err().reason(), Reason::TooMany);
        assert_eq!(left(limiter.pin().try_acquire(&key)), burst - 1);
        limiter.refund(&key, 100);
        assert_eq!(limiter.key(&key).n(u64::MAX).acquire_up_to().tokens(), burst);
        limiter.refund(&key, 1);
        assert_eq!(left(limiter.key(&key).at(limiter.now()).try_acquire()), 0);
        let slots = [1, 1].map(|n| limiter.key(&key).n(n).reserve().unwrap());
        assert_eq!(slots[1].delay(), 2 * slots[0].delay());
        for slot in slots.into_iter().rev() {
            drop(slot);
        }
        assert_eq!(limiter.key(&key).n(0).hold().unwrap().settle(1), 0);
        let wait = nanos(limiter.try_acquire(&key).unwrap_err().retry_after().unwrap());
        let token = match burst {
            10 => SECOND / 10,
            2_000 => SECOND / 1_000,
            _ => HOUR,
        };
        assert!((2 * token..=2 * token + SECOND / 10 / 256).contains(&wait), "{key}: {wait} ns");
    }
}

#[test]
fn the_plan_of_a_call_goes_before_that_of_the_key() {
    let (limiter, _time) = by_tens();
    let slow = limiter.plan(Quota::per_hour(1).burst(3)).unwrap();
    assert_eq!(left(limiter.key(&10).under(&slow).try_acquire()), 2);
    assert_eq!(left(limiter.key(&30).under(&slow).try_acquire()), 2);
    let all = all_of([limiter.key(&11).under(&slow), limiter.key(&12)]);
    assert_eq!(all.try_acquire().unwrap().remaining(), 2);
    assert_eq!([11, 12].map(|key| limiter.peek(&key).remaining()), [2, 1_999]);
}

/// A drained key of a slow plan stays while that plan limits it, however full it is under the
/// limiter's own quota.
#[test]
fn a_key_of_a_slow_plan_stays_while_it_is_limited() {
    for by_hand in [true, false] {
        let (clock, mut time) = Time::new();
        let limiter = RateLimiter::<u64>::stored(Quota::per_second(10)).clock(clock);
        let limiter = limiter.when_full(WhenFull::Deny).with_places(1);
        let slow: Plan = limiter.plan(Quota::per_hour(1).burst(3)).unwrap();
        let evicts = |limiter: &RateLimiter<u64>| match by_hand {
            true => limiter.evict_idle() == with_one(),
            false => limiter.try_acquire(&2).is_ok(),
        };
        assert_eq!(left(limiter.key(&1).n(3).under(&slow).try_acquire()), 0);
        for hour in 1..3 {
            time.set(hour * HOUR);
            assert!(!evicts(&limiter));
            assert_eq!(left(limiter.key(&1).n(0).under(&slow).try_acquire()), hour);
        }
        time.set(3 * HOUR - 1);
        assert!(!evicts(&limiter) && limiter.key(&1).n(3).under(&slow).try_acquire().is_err());
        // A debt of a burst might have to be filled, too.
        time.set(14 * HOUR);
        assert!(evicts(&limiter));
        assert_eq!(limiter.len(), if by_hand { 0 } else { with_one() });
    }
}

#[test]
fn a_change_of_quota_scales_plans_and_those_made_later_are_exact() {
    let (limiter, mut time) = limiter();
    let old = limiter.plan(GOLD).unwrap();
    let drain = |key, plan: &Plan| assert_eq!(left(limiter.key(&key).n(2_000).under(plan).try_acquire()), 0);
    drain(1, &old);
    drain(3, &old);
    time.advance(SECOND);
    limiter.set_rule(Quota::per_second(50).burst(100)).unwrap();
    let new = limiter.plan(GOLD).unwrap();
    drain(2, &new);
    assert_eq!(left(limiter.key(&3).n(0).under(&new).try_acquire()), 0, "it counts from the change on");
    // The old plan is half as fast from the change on, and its burst stays.
    time.advance(SECOND);
    assert_eq!(left(limiter.key(&1).n(0).under(&old).try_acquire()), 1_500);
    assert_eq!(left(limiter.key(&2).n(0).under(&new).try_acquire()), 1_000);
    time.advance(SECOND);
    assert_eq!(left(limiter.key(&1).n(0).under(&old).try_acquire()), 2_000);
    assert_eq!(left(limiter.key(&2).n(0).under(&new).try_acquire()), 2_000);
    let denied = limiter.key(&1).n(2_001).under(&old).try_acquire().unwrap_err();
    assert_eq!((denied.reason(), old.rule()), (Reason::TooMany, GOLD));
}

/// Keys without room share only with keys of the same plan: a slow plan does not spend the tokens
/// of a fast one.
#[test]
fn plans_share_apart() {
    let (clock, mut time) = Time::new();
    let (own, fast) = (Quota::per_second(1).burst(10), Quota::per_second(1_000));
    let limiter = RateLimiter::<Twin, Quota, Plain>::stored(own).clock(clock);
    let limiter = limiter.headroom(fast).unwrap().plans([fast]).unwrap();
    let limiter = limiter.plan_for(|key: &Twin| (key.id == 1).then_some(0)).with_places(0);
    let (slow, fast) = (Twin { hash: 7, id: 0 }, Twin { hash: 7, id: 1 });
    let mut granted = [0, 0];
    for _ in 0..1_000 {
        granted[1] += limiter.key(&fast).acquire_up_to().tokens();
        granted[0] += limiter.key(&slow).n(10).acquire_up_to().tokens();
        time.advance(SECOND / 100);
    }
    assert_eq!(granted, [10 + 9, 1_000]);
    assert_eq!(limiter.stats().shared, 2_000);
}

/// A key that shared a bucket under a slow plan gets an entry by a refused take. The entry has the
/// tokens of the plan.
#[test]
fn a_refused_key_enters_with_the_tokens_of_its_plan() {
    let (clock, mut time) = Time::new();
    let limiter = RateLimiter::<u64>::stored(Quota::per_second(1_000).burst(100)).clock(clock).with_places(1);
    let slow = limiter.plan(Quota::per_second(1).burst(100)).unwrap();
    assert!(limiter.try_acquire(&1).is_ok());
    assert_eq!(left(limiter.key(&2).n(100).under(&slow).try_acquire()), 0);
    assert_eq!(limiter.stats().shared, 1);
    assert!(limiter.remove(&1));
    time.advance(10 * SECOND);
    assert_eq!(limiter.key(&2).n(50).under(&slow).try_acquire().unwrap_err().remaining(), 10);
    assert_eq!((limiter.len(), limiter.stats().shared), (with_one(), 1));
    assert_eq!(limiter.key(&2).n(11).under(&slow).try_acquire().unwrap_err().remaining(), 10);
    assert_eq!(left(limiter.key(&2).n(10).under(&slow).try_acquire()), 0);
}

/// Plans after the 64th have no buckets to share: their keys are denied when there is no room.
#[test]
fn a_plan_too_many_shares_with_nobody() {
    let limiter = RateLimiter::<u64>::stored(Quota::per_second(1_000)).clock(Clock::mock().0).with_places(0);
    let plans = (1..=65).map(|tokens| limiter.plan(Quota::per_second(tokens)).unwrap());
    let plans: Vec<_> = plans.collect();
    assert!(plans[..64].iter().all(|plan| limiter.key(&1).under(plan).try_acquire().is_ok()));
    assert_eq!(limiter.key(&1).under(&plans[64]).try_acquire().unwrap_err().reason(), Reason::Full);
    assert!(limiter.try_acquire_n(&1, 1_000).is_ok());
    assert_eq!(limiter.key(&1).under(&plans[64]).peek().remaining(), 65, "no key has taken any");
    // A plan with the same quota shares with the first.
    let again = limiter.plan(Quota::per_second(1)).unwrap();
    assert_eq!(again, plans[0]);
    assert!(limiter.key(&1).under(&again).try_acquire().is_err());
}

const MILLION: Quota = Quota::per_second(1_000_000).burst(1_000);

/// Returns a fast limiter whose key 1 has no token.
fn drained() -> (RateLimiter<u64>, Time) {
    let (clock, mut time) = Time::new();
    time.set(77 * SECOND);
    let builder = RateLimiter::<u64>::stored(MILLION);
    let builder = builder.headroom(Quota::per_second(1_000_000).burst(5_000)).unwrap();
    let limiter = builder.clock(clock).build();
    assert_eq!(left(limiter.try_acquire_n(&1, 1_000)), 0);
    (limiter, time)
}

/// Sets a slower quota, and returns a plan that is made after that change.
fn change(limiter: &RateLimiter<u64>) -> Plan {
    limiter.set_rule(Quota::per_second(10_000).burst(1_000)).unwrap();
    limiter.plan(Quota::per_second(100_000).burst(5_000)).unwrap()
}

/// Jitter earns nothing, not even a plan's share of the time before the plan.
#[test]
fn a_plan_earns_nothing_of_the_time_before_it_by_a_reading_that_is_behind() {
    for behind in [0, 1, 1_000, 3_000, 400_000] {
        let (limiter, mut time) = drained();
        time.advance(500_000);
        let plan = change(&limiter);
        time.set(time.now() - behind);
        let granted = limiter.key(&1).n(5_000).under(&plan).acquire_up_to().tokens();
        assert!(granted <= 500, "{granted} granted of 500, {behind} ns behind");
        // The wait ends when a token is there.
        let wait = limiter.key(&1).under(&plan).try_acquire().unwrap_err().retry_after().unwrap();
        time.advance(nanos(wait) - 1);
        assert!(limiter.key(&1).under(&plan).try_acquire().is_err(), "{behind} ns behind");
        time.advance(1);
        assert!(limiter.key(&1).under(&plan).try_acquire().is_ok(), "{behind} ns behind, {wait:?}");
    }
}

/// The same at a reading that a caller has kept.
#[test]
fn a_plan_earns_nothing_of_the_time_before_it_at_a_reading_from_before() {
    let (limiter, mut time) = drained();
    time.advance(100_000);
    let kept = limiter.now();
    time.advance(50 * MS);
    let plan = change(&limiter);
    let take = |n| limiter.key(&1).n(n).under(&plan).at(kept).try_acquire();
    let granted = (1..=5_000).rev().find(|n| take(*n).is_ok()).unwrap_or(0);
    assert!(granted <= 100, "{granted} granted where 100 were earned");
}

/// A reservation under one pace is followed by a take under another. The bucket may have its old
/// level, and has fewer tokens.
#[test]
fn a_reservation_gives_nothing_back_after_a_take_under_another_plan() {
    for (tokens, planned) in [(50, true), (50, false), (200, true), (200, false), (100, true)] {
        let (limiter, mut time) = limiter();
        let plan = limiter.plan(Quota::per_second(tokens).burst(100)).unwrap();
        let ask = |under: bool, n| match under {
            true => limiter.key(&1).n(n).under(&plan),
            false => limiter.key(&1).n(n),
        };
        let reserved = ask(planned, 60).reserve().unwrap();
        time.advance(200 * MS);
        let taken = ask(!planned, 10).try_acquire().unwrap().tokens();
        drop(reserved);
        let rest = [true, false].map(|under| ask(under, 1_000).acquire_up_to().tokens());
        let granted = taken + rest[0] + rest[1];
        assert!(granted <= 100, "{granted} at one instant of a burst of 100: {tokens}/s, {planned}");
    }
}

/// Without a take in between, all tokens come back, whatever the plan. The reservations are dropped
/// in the order of a stack.
#[test]
fn a_reservation_under_a_plan_gives_all_back_if_none_took() {
    let (limiter, mut time) = limiter();
    let gold = limiter.plan(GOLD).unwrap();
    let reserve = |n| limiter.key(&1).n(n).under(&gold).reserve().unwrap();
    let look = || limiter.key(&1).under(&gold).peek().remaining();
    let line = [2_000, 300, 200, 100].map(reserve);
    line.into_iter().rev().for_each(drop);
    assert_eq!(look(), 2_000);
    let one = reserve(2_000);
    time.advance(300 * MS);
    assert_eq!(look(), 300);
    drop(one);
    assert_eq!(look(), 2_000);
}

#[test]
fn the_quota_of_another_limiters_plan_is_told_as_it_is() {
    let ((limiter, _), (other, _)) = (limiter(), limiter());
    let plan = other.plan(GOLD).unwrap();
    limiter.set_rule(Quota::per_second(50)).unwrap();
    assert_eq!(limiter.rule_under(&plan), GOLD);
}

/// Ticks that are shorter than a nanosecond wrap while a process runs. A plan earns all the same.
#[test]
fn a_plan_earns_after_the_ticks_since_its_start_have_wrapped() {
    let (clock, mut time) = Time::new();
    let fast = |burst| Quota::per_second(1_000_000_000).burst(burst);
    let limiter = RateLimiter::<u64>::stored(fast(1_000)).clock(clock).build();
    // The plan begins with the second quota.
    limiter.set_rule(fast(999)).unwrap();
    let plan = limiter.plan(Quota::per_second(1_000_000).burst(10)).unwrap();
    // Three readings in each power of two, up to a century.
    let mut age = SECOND;
    while age < 100 * 365 * 24 * HOUR {
        assert!(limiter.key(&1).n(10).under(&plan).try_acquire().is_ok(), "{age} ns after the start");
        time.advance(age / 4);
        age += age / 4;
    }
}
