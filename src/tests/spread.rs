// promise: law
//! A spread bucket, used by threads that take turns: each call names the cell that it uses.
//!
//! The bucket is compared with two plain buckets that are charged with the same tokens. The one
//! with the same burst never has fewer tokens left. The one with three quarters of that burst never
//! has more.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::cases;
use crate::bucket::atomic::Bucket;
use crate::bucket::engine::{Done, Engine, Now};
use crate::bucket::lease::{Generation, Lease, LeaseCells, Spread};
use crate::bucket::live_terms::{Change, LiveTerms};
use crate::bucket::receipt::{Receipt, Settle};
use crate::limiter::token_bucket::TokenBucket;
use crate::quota::layout::{Layout, LayoutOptions};
use crate::quota::rate::Quota;
use crate::time::clock::{Clock, MockClock};
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::verb::{Keep, Take};

const DEBT: u64 = 50;

struct Hot {
    bucket: Bucket,
    engine: Engine,
    cells: LeaseCells,
    mock: MockClock,
    quota: Quota,
    clock: Clock,
}

impl Hot {
    fn new(quota: Quota, cells: usize) -> Hot {
        Hot::on(Clock::mock(), quota, cells)
    }

    fn on((clock, mock): (Clock, MockClock), quota: Quota, cells: usize) -> Hot {
        let room = LayoutOptions { max_debt: Some(DEBT), ..LayoutOptions::DEFAULT };
        let layout = Layout::of(quota.numbers(), room).expect("it is an ordinary quota");
        let engine = Engine::new(LiveTerms::new(quota, layout), clock.clone(), None);
        Hot { bucket: Bucket::new(), engine, cells: LeaseCells::new(cells), mock, quota, clock }
    }

    fn spread(&self) -> Spread<'_> {
        Spread {
            bucket: &self.bucket,
            engine: &self.engine,
            cells: &self.cells,
            generation: Generation::ONLY,
        }
    }

    fn take(&self, own: usize, n: u64) -> Result<Granted, Denied> {
        match self.cells.of(own).take(Generation::ONLY, n) {
            Some(granted) => Ok(granted),
            None => self.spread().acquire(own, Now(&self.engine), n).expect("it is there"),
        }
    }

    fn run(&self, step: Take) -> Result<(Granted, Receipt), Denied> {
        let Done { outcome, reading, leased } =
            self.spread().run(Now(&self.engine), step).expect("it is there");
        let receipt = Receipt::new(outcome, &reading, None).beside(reading.refill.units(leased));
        step.decision((outcome, reading)).map(|granted| (granted, receipt))
    }

    fn remaining(&self) -> u64 {
        let seen = self.spread().look(Now(&self.engine), Take::Exactly(0));
        let Done { outcome, reading, .. } = seen.expect("it is there");
        Granted::new(outcome, &reading).remaining()
    }

    /// Returns the word and the cells, as text.
    fn words(&self) -> String {
        format!("{:?} {:?}", self.bucket, self.cells)
    }

    /// Returns a plain bucket on the same clock, with `parts` quarters of the burst.
    fn plain(&self, parts: u64) -> TokenBucket {
        let burst = part(self.quota.capacity(), parts);
        let builder = TokenBucket::builder(self.quota.burst(burst)).clock(self.clock.clone());
        builder.max_debt(DEBT).unwrap().headroom(self.quota).unwrap().build()
    }

    fn advance(&self, nanos: u64) {
        self.mock.advance(Duration::from_nanos(nanos));
    }

    /// Takes the tokens left in a cell, and one more. Returns the size of the lease that the cell
    /// has then.
    fn refill(&self, own: usize) -> u64 {
        while self.cells.of(own).take(Generation::ONLY, 1).is_some() {}
        self.take(own, 1).expect("there are plenty");
        self.cells.of(own).lease_size()
    }

    /// Takes tokens at one instant until every cell has a lease.
    fn heat(&self, cells: usize) {
        for own in 0..cells {
            while self.cells.of(own).lease_size() == 0 {
                self.take(own, 1).expect("there are plenty");
            }
        }
    }
}

/// Returns `parts` quarters of `burst`, rounded up.
fn part(burst: u64, parts: u64) -> u64 {
    burst - burst * (4 - parts) / 4
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    /// Takes of some tokens each: the tokens of one take, and the number of takes.
    Take(u64, u64),
    UpTo(u64),
    /// Some tokens, if a part of the burst stays, in percent.
    Above(u64, u8),
    Refund(u64),
    Reserve(u64),
    Charge(u64),
    /// A new burst, in eighths of the first one.
    SetBurst(u64),
}

fn verbs() -> impl Strategy<Value = Verb> {
    prop_oneof![
        12 => (1..150_u64).prop_map(|times| Verb::Take(1, times)),
        3 => (1..9_u64, 1..60_u64).prop_map(|(n, times)| Verb::Take(n, times)),
        1 => (1..3_000_u64).prop_map(|n| Verb::Take(n, 1)),
        1 => (1..400_u64).prop_map(Verb::UpTo),
        2 => (1..400_u64, 0..101_u8).prop_map(|(n, percent)| Verb::Above(n, percent)),
        2 => (1..100_u64).prop_map(Verb::Refund),
        1 => (1..100_u64).prop_map(Verb::Reserve),
        1 => (1..40_u64).prop_map(Verb::Charge),
        1 => (1..9_u64).prop_map(Verb::SetBurst),
    ]
}

/// Returns nanoseconds between two verbs.
fn gaps() -> impl Strategy<Value = u64> {
    prop_oneof![6 => Just(0), 4 => 0..2_000_u64, 2 => 0..100_000_u64, 2 => 0..5_000_000_u64, 1 => 0..2_000_000_000_u64]
}

fn quotas() -> impl Strategy<Value = Quota> {
    let rates = prop_oneof![Just(10), Just(1_000), Just(100_000), Just(10_000_000), Just(777_777_777)];
    (rates, 1..3_000_u64).prop_map(|(rate, burst)| Quota::per_second(rate).burst(burst))
}

fn keeps_between(quota: Quota, cells: usize, steps: &[(u64, usize, Verb)]) -> TestCaseResult {
    let hot = Hot::new(quota, cells);
    let (most, least) = (hot.plain(4), hot.plain(3));
    let slack = Cell::new(0);
    let granted = |n: u64, credit: bool| {
        match credit {
            // The larger plain bucket owes the same tokens as the spread one.
            true => assert!(most.reserve(n).is_ok_and(|reserved| reserved.commit().tokens() == n)),
            false => assert!(most.try_acquire_n(n).is_ok(), "{n} were not there"),
        }
        // The smaller plain bucket may have fewer tokens, and owes the others. Tokens over its
        // bound on debt are let go, in whole tokens.
        if least.hold(0).unwrap().settle(n) > 0 {
            slack.set(1);
        }
    };
    for (gap, own, verb) in steps {
        hot.advance(*gap);
        let mut refused = None;
        match *verb {
            Verb::Take(n, times) => {
                for _ in 0..times {
                    match hot.take(*own, n) {
                        Ok(_) => granted(n, false),
                        Err(denied) => refused = Some((n, denied)),
                    }
                }
            }
            Verb::UpTo(n) => {
                if let Ok((some, _)) = hot.run(Take::UpTo(n)) {
                    granted(some.tokens(), false);
                }
            }
            Verb::Above(n, percent) => {
                // The tokens on lease count as kept ones.
                let kept = (hot.engine.source.quota().capacity() * u64::from(percent)).div_ceil(100);
                match hot.run(Take::Above { n, keep: Keep::Percent(percent) }) {
                    Ok(_) => {
                        assert!(most.peek().remaining() >= n + kept, "a kept token was taken");
                        granted(n, false);
                    }
                    Err(_) => {
                        let few = least.peek().remaining() <= n + kept + slack.get();
                        assert!(few, "{n} were there above {kept}, {:?}", least.peek());
                    }
                }
            }
            Verb::Refund(n) => {
                hot.spread().settle(Settle::Refund(n));
                most.refund(n);
                least.refund(n);
            }
            Verb::Reserve(n) => {
                if hot.run(Take::Reserve { n, max_wait: u64::MAX }).is_ok() {
                    granted(n, true);
                }
            }
            Verb::Charge(n) => {
                let taken = hot.spread().settle(Settle::Charge(n)).expect("it is there");
                most.hold(0).unwrap().settle(taken);
                slack.set(slack.get().max(least.hold(0).unwrap().settle(taken).min(1)));
            }
            Verb::SetBurst(parts) => {
                let burst = (quota.capacity() * parts / 8).max(1);
                // A plain bucket counts the tokens earned, and drops the tokens that no longer have
                // room, at its next use.
                let touch = || {
                    if hot.run(Take::Exactly(1)).is_ok() {
                        hot.spread().settle(Settle::Refund(1));
                    }
                    for plain in [&most, &least] {
                        if plain.try_acquire().is_ok() {
                            plain.refund(1);
                        }
                    }
                };
                touch();
                if hot.engine.source.set(quota.burst(burst), &hot.clock).unwrap() == Change::LowerBurst {
                    hot.spread().recall_after_a_lower_burst();
                }
                most.set_quota(quota.burst(burst)).unwrap();
                least.set_quota(quota.burst(part(burst, 3))).unwrap();
                touch();
            }
        }
        let (left, high) = (hot.remaining(), most.peek().remaining());
        let low = least.peek().remaining().saturating_sub(slack.get());
        prop_assert!(low <= left && left <= high, "{} are left, not {} to {}", left, low, high);
        if let Some((n, denied)) = refused {
            prop_assert!(low < n, "{} were refused of {}", n, low);
            // A refusal is exact: no token is at hand in a cell beside it. (A take that is never
            // granted recalls no lease.)
            prop_assert!(hot.spread().at_hand() == 0 || denied.reason() == Reason::TooMany);
            let words = hot.words();
            let (mut again, wait) = (hot.take(*own, n), denied.retry_after());
            prop_assert_eq!((again.is_err(), hot.words()), (true, words));
            if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                hot.mock.advance(wait - Duration::from_nanos(1));
                again = hot.take(*own, n);
                prop_assert!(again.is_err(), "{:?} is not the least wait", wait);
                hot.advance(1);
                prop_assert!(hot.take(*own, n).is_ok(), "{:?} is too early", wait);
                granted(n, false);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn a_bucket_that_is_spread_keeps_between_two_plain_ones(
        quota in quotas(),
        cells in 0..4_u32,
        steps in prop::collection::vec((gaps(), 0..8_usize, verbs()), 1..60),
    ) {
        keeps_between(quota, 1 << cells, &steps)?;
    }
}

#[test]
fn every_token_is_found_at_one_instant() {
    for (burst, cells) in [(1, 2), (15, 2), (64, 4), (1_000, 1), (1_000, 8), (100_000, 4)] {
        let hot = Hot::new(Quota::per_second(1_000).burst(burst), cells);
        let granted = (0..2 * burst).filter(|turn| hot.take(*turn as usize / 50, 1).is_ok()).count();
        assert_eq!((granted as u64, hot.remaining()), (burst, 0), "{cells} cells");
        let refused = || {
            for own in 0..cells {
                for n in [1, 2, burst, burst + 1] {
                    assert!(hot.take(own, n).is_err());
                }
            }
            hot.words()
        };
        // A core notes in its own cell that no token is left. After that a refusal writes nothing.
        let words = refused();
        assert_eq!(words, refused());
    }
}

#[test]
fn scattered_tokens_are_gathered_for_who_asks_for_all() {
    let hot = Hot::new(Quota::per_second(1).burst(1_000), 4);
    hot.heat(4);
    let left = hot.remaining();
    assert!(hot.spread().at_hand() >= 8);
    assert!(hot.take(0, left + 1).is_err());
    hot.heat(4);
    let left = hot.remaining();
    assert!(hot.take(2, left).is_ok() && hot.take(3, 1).is_err());
}

/// Other takes end idle leases, and then the bucket fills up to its burst.
#[test]
fn leases_that_lie_idle_go_back() {
    let hot = Hot::new(Quota::per_second(1_000_000).burst(10_000), 8);
    hot.heat(8);
    while hot.take(7, 1).is_ok_and(|granted| granted.remaining() > 2_000) {}
    hot.heat(7);
    let at_hand = hot.spread().at_hand();
    assert!(at_hand >= 14, "{at_hand}");
    hot.advance(20_000_000);
    // The takes spend the cell's own lease first, then end those of the others.
    let own = hot.cells.of(0).lease_size();
    for _ in 0..own + 16 {
        assert!(hot.take(0, 1).is_ok());
        hot.advance(2_000_000);
    }
    assert_eq!(hot.spread().at_hand(), 0);
    hot.advance(20_000_000);
    assert_eq!(hot.remaining(), 10_000);
    assert!(hot.take(3, 10_000).is_ok());
}

/// A core that goes on leasing ends the idle leases of all others, one at a time.
#[test]
fn a_busy_core_ends_the_idle_leases_of_all_others() {
    let hot = Hot::new(Quota::per_second(1_000).burst(1_000_000), 8);
    hot.heat(8);
    for _ in 0..300 {
        hot.advance(15_000);
        assert!(hot.refill(0) > 0);
    }
    for own in 1..8 {
        assert_eq!(hot.cells.of(own).lease_size(), 0, "the lease of cell {own}");
    }
}

/// No token is leased where takes are far apart.
#[test]
fn nothing_is_leased_of_a_bucket_at_leisure() {
    let hot = Hot::new(Quota::per_second(1_000_000).burst(10_000), 4);
    for turn in 0..1_000 {
        hot.advance(5_000);
        assert!(hot.take(turn % 2, 1).is_ok());
        assert_eq!(hot.spread().at_hand(), 0);
    }
}

/// The first lease is of two tokens, after 32 takes. Each fill within 4 us doubles the next lease,
/// up to 512 tokens. Within 16 us the size stays, and within 1 ms it is halved. After a longer time
/// there is no lease.
#[test]
fn the_size_of_a_lease_follows_the_time_between_fills() {
    let fresh = || Hot::new(Quota::per_second(1_000).burst(1_000_000), 1);
    let hot = fresh();
    assert!((0..32).all(|_| hot.refill(0) == 0), "a lease before the demand is known");
    for size in [2, 4, 8, 16, 32, 64, 128, 256].into_iter().chain([512; 20]) {
        assert_eq!(hot.refill(0), size);
    }
    let gaps =
        [(0, 64), (4_000, 64), (4_001, 32), (16_000, 32), (16_001, 16), (1_000_000, 16), (1_000_001, 0)];
    for (gap, next) in gaps {
        let hot = fresh();
        while hot.refill(0) < 16 {}
        hot.advance(gap);
        // The size of a lease was decided by the fill before, unless the cell was idle meanwhile.
        assert_eq!((hot.refill(0), hot.refill(0)), (if next == 0 { 0 } else { 32 }, next), "{gap} ns");
    }
    let hot = fresh();
    while hot.refill(0) < 2 {}
    hot.advance(16_001);
    hot.refill(0);
    hot.advance(16_001);
    assert_eq!((hot.refill(0), hot.refill(0)), (2, 0), "half of two is no lease");
}

/// A lease is at most its cell's even share of half the spare tokens, and of a quarter of the
/// burst.
#[test]
fn a_lease_is_a_small_part_of_the_bucket() {
    for (burst, cells) in [(1_000, 1), (1_000, 2), (5_000, 4), (300, 8)] {
        let hot = Hot::new(Quota::per_second(1).burst(burst), cells);
        let (mut left, mut last, mut largest, mut leases) = (burst, 0, 0, [0; 2]);
        while left > 0 {
            let size = hot.refill(0);
            left = left - last - 1;
            let part = left / (2 * cells as u64);
            assert!(size <= part, "{size} of {left} tokens, {cells} cells");
            if largest == 1 << (burst / (4 * cells as u64)).ilog2() {
                assert_eq!(
                    size,
                    largest.min(part) * u64::from(part > 1),
                    "{left} tokens left, {cells} cells"
                );
                leases[usize::from(size < largest)] += 1;
            }
            (last, largest) = (size, largest.max(size));
        }
        assert!(hot.take(0, 1).is_err());
        assert!(leases.into_iter().all(|leases| leases > 1), "{leases:?} of the largest size, and smaller");
    }
}

/// One thread takes at one instant, and loses no token. `remaining` of a grant beside a lease does
/// not count the tokens of that lease.
#[test]
fn a_take_of_more_than_its_lease_has_left_loses_no_token() {
    for n in [1, 2, 3, 7, 30] {
        let hot = Hot::new(Quota::per_second(1).burst(4_000), 1);
        hot.heat(1);
        let mut left = hot.remaining();
        while let Ok(granted) = hot.take(0, n) {
            left -= n;
            assert_eq!(hot.remaining(), left, "takes of {n}");
            assert!(granted.remaining() == left || granted.remaining() < left && n > 1);
        }
        assert!(left < n, "{left} tokens are left");
    }
}

/// The word has no room for leased tokens, even if it was drained before, and even if it fills in a
/// microsecond.
#[test]
fn the_word_has_no_room_for_tokens_on_lease() {
    const BURST: usize = 1_000;
    let hot = Hot::new(Quota::per_second(1_000_000_000).burst(BURST as u64), 4);
    for (cells, gap) in [(4, 1_000_000_000), (4, 1_000), (1, 1_000_000_000), (1, 1_000)] {
        hot.heat(cells);
        hot.advance(gap);
        let left = hot.remaining();
        let granted = (0..2 * BURST).filter(|turn| hot.take(turn % 4, 1).is_ok()).count();
        assert!((BURST * 3 / 4..=BURST).contains(&granted), "{granted} after {gap} ns");
        assert_eq!(granted as u64, left, "{cells} leases, {gap} ns");
        hot.advance(1_000_000_000);
    }
}

/// A demotion leaves every cell open if the clock panics, whichever lease it is ending then.
#[test]
fn a_demotion_by_a_clock_that_panics_leaves_every_cell_open() {
    for closed in 0..4 {
        let (still, mock) = Clock::mock();
        let readings = Arc::new(AtomicU64::new(u64::MAX));
        let rest = Arc::clone(&readings);
        let clock = Clock::from_fn(move || {
            assert!(rest.fetch_sub(1, Relaxed) > 0, "as it was told to");
            Duration::from_nanos(still.nanos())
        });
        let hot = Hot::on((clock, mock), Quota::per_second(1).burst(10_000), 4);
        hot.heat(4);
        let left = hot.remaining();
        readings.store(closed, Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| hot.spread().close())).is_err());
        readings.store(u64::MAX, Relaxed);
        assert_eq!(hot.remaining(), left, "{closed} cells were closed");
        // A cell that stayed closed, or claimed, would get no lease.
        (0..4).for_each(|own| while hot.refill(own) == 0 {});
        let left = hot.remaining();
        assert!(hot.spread().close());
        assert_eq!((hot.spread().at_hand(), hot.remaining()), (0, left));
        for own in 0..4 {
            assert!(hot.cells.of(own).take(Generation::ONLY, 1).is_none());
            assert!(hot.take(own, 1).is_ok(), "the word has the tokens");
        }
        assert_eq!((hot.spread().at_hand(), hot.remaining()), (0, left - 4));
    }
}

#[test]
fn what_is_undone_comes_back_and_mints_nothing() {
    let hot = Hot::new(Quota::per_second(1_000).burst(1_000), 2);
    hot.heat(2);
    let left = hot.remaining();
    let (_, receipt) = hot.run(Take::Exactly(100)).unwrap();
    hot.spread().settle(Settle::Undo(&receipt));
    assert_eq!(hot.remaining(), left);
    // The bucket is as full as it gets beside the leases. All its tokens are spent after the take
    // that is undone.
    hot.advance(2_000_000_000);
    let (_, receipt) = hot.run(Take::Exactly(50)).unwrap();
    hot.advance(50_000_000);
    // The 50 tokens are earned again. The next take makes room for more than the undo may give
    // back.
    let mut granted = hot.run(Take::Exactly(60)).unwrap().0.tokens();
    for own in 0..2 {
        while hot.cells.of(own).take(Generation::ONLY, 1).is_some() {
            granted += 1;
        }
    }
    hot.spread().settle(Settle::Undo(&receipt));
    while hot.take(0, 1).is_ok() {
        granted += 1;
    }
    assert!(granted <= 1_000, "{granted}");
}

/// A take is undone in full beside a lease. The word was as full as it can be beside the leases,
/// which had the same room before the take.
#[test]
fn what_is_undone_beside_a_lease_comes_back() {
    for (taken, idle) in [(1, 0), (100, 0), (2_000, 1_000_000)] {
        let hot = Hot::new(Quota::per_second(1_000).burst(10_000), 2);
        hot.heat(2);
        hot.advance(60_000_000_000);
        let (left, leased) = (hot.remaining(), hot.spread().at_hand());
        assert!(leased > 0 && left + leased >= 10_000 - leased, "{leased} are leased, {left} left");
        let (_, receipt) = hot.run(Take::Exactly(taken)).unwrap();
        hot.advance(idle);
        hot.spread().settle(Settle::Undo(&receipt));
        assert_eq!(hot.remaining(), left, "of {taken} taken beside a lease of {leased}");
    }
}

/// A cell serves one generation, and one claim. Through a limiter only a race shows this, when a
/// thread that comes late has the generation before.
#[test]
fn a_cell_serves_one_generation_and_one_claim() {
    let cells = LeaseCells::new(4);
    let [first, next, last] = [1, 2, 3].map(Generation::number);
    assert!(cells.open(first));
    let cell = cells.of(1);
    cell.put(first, Lease::of(8));
    assert!(cell.take(next, 1).is_none(), "the lease is of another generation");
    assert_eq!(cell.lease(first).left(), 8);
    assert!(cell.take(first, 1).is_some());
    assert!(!cell.lease(first).is_over() && cell.lease(next).is_over());
    cell.close(first);
    assert!(cell.lease(first).is_over());
    // A claim belongs to one thread until that thread ends it. Until then no thread opens the
    // cells.
    assert!(cell.claim_anew(next) && !cell.claim_anew(last));
    assert!(!cells.open(last) && !cells.open(last));
    cell.open(next);
    assert!(cells.open(last));
}
