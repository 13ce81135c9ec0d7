// promise: law
//! A spread bucket, used by threads that take turns: each call names the cell that it uses.
//!
//! The bucket is compared with two plain buckets that are charged with the same tokens. The one
//! with the same burst never has fewer tokens left. The one with three quarters of that burst never
//! has more.

mod between;
mod hot;

use proptest::prelude::*;
use tollgate_testing::cases;

use self::between::{gaps, keeps_between, quotas, verbs};
use self::hot::Hot;
use crate::bucket::receipt::Settle;
use crate::rule::rate::Quota;
use crate::word::verb::Take;

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
        while hot.cells.of(own).take(1).is_some() {
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
