// promise: law
//! A bucket that is spread over two cells, each with at most two tokens at hand.
//!
//! A token is earned in ten seconds. The clock moves by less, or by enough to fill the bucket. So
//! the number of tokens granted is known exactly.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::checker::thread;
use super::world::{SECOND, fixed};
use super::{explore, run};
use crate::bucket::atomic::Bucket;
use crate::bucket::engine::{Engine, Now};
use crate::bucket::lease::{LeaseCells, Spread};
use crate::bucket::live_terms::{Change, LiveTerms};
use crate::bucket::receipt::Settle;
use crate::rule::rate::Quota;
use crate::time::clock::{Clock, MockClock};

/// The time that earns one token, in nanoseconds.
const SLOT: u64 = 10 * SECOND;
/// Longer than the time to fill any bucket.
const LONG: Duration = Duration::from_secs(100);

struct Hot {
    bucket: Bucket,
    engine: Engine,
    mock: MockClock,
    cells: LeaseCells,
    /// The earliest time at which each grant was made, and its tokens.
    grants: Mutex<Vec<(u64, u64)>>,
}

impl Hot {
    fn new(burst: u64) -> Arc<Hot> {
        Hot::of(fixed(SLOT, burst))
    }
}

impl Hot {
    fn of(source: LiveTerms) -> Arc<Hot> {
        let (clock, mock) = Clock::mock();
        Arc::new(Hot {
            bucket: Bucket::new(),
            engine: Engine::new(source, clock, None),
            mock,
            cells: LeaseCells::new(2),
            grants: Mutex::default(),
        })
    }

    fn spread(&self) -> Spread<'_> {
        Spread { bucket: &self.bucket, engine: &self.engine, cells: &self.cells }
    }

    /// Takes `n` tokens as a thread of the cell `own`.
    fn take_n(&self, own: usize, n: u64) -> bool {
        let since = self.engine.clock.nanos();
        let granted = self.spread().acquire(own, Now(&self.engine), n).is_ok();
        if granted {
            self.grants.lock().unwrap_or_else(PoisonError::into_inner).push((since, n));
        }
        granted
    }

    fn take(&self, own: usize) -> bool {
        self.take_n(own, 1)
    }

    /// Takes all tokens that are there.
    fn drain(&self) {
        while self.take(0) || self.take(1) {}
        assert_eq!(self.spread().at_hand(), 0);
    }

    /// Returns the tokens granted at a moment or later.
    fn granted_from(&self, moment: u64) -> u64 {
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.iter().filter(|(since, _)| *since >= moment).map(|(_, n)| n).sum()
    }

    fn granted(&self) -> u64 {
        self.granted_from(0)
    }

    fn run(self: &Arc<Hot>, threads: &[fn(&Hot)]) {
        run(self, threads);
    }
}

/// Moves the clock by half the time that earns a token.
fn half_a_slot(hot: &Hot) {
    hot.mock.advance(Duration::from_secs(5));
}

/// Returns a bucket of six tokens: two were granted, and two are in each cell.
fn filled() -> Arc<Hot> {
    let hot = Hot::new(6);
    assert!(hot.take(0) && hot.take(1));
    assert_eq!(hot.spread().at_hand(), 4);
    hot
}

/// Returns a bucket like [`filled`], a long time later: the word is as full as the leases allow.
fn filled_long_ago() -> Arc<Hot> {
    let hot = filled();
    hot.mock.advance(LONG);
    hot
}

const LATER: u64 = 100 * SECOND;

#[test]
fn takers_of_two_cells_share_what_there_is() {
    explore("takers of two cells", || {
        let hot = Hot::new(4);
        hot.run(&[
            |hot| {
                hot.take(0);
                hot.take(0);
            },
            |hot| {
                hot.take(1);
                half_a_slot(hot);
                hot.take(1);
            },
        ]);
        hot.drain();
        assert_eq!(hot.granted(), 4);
    });
}

/// A lease is taken while the bucket is full, and time passes. No token spent from the lease is
/// granted twice.
#[test]
fn a_lease_has_no_room_for_what_is_earned_meanwhile() {
    explore("takers of two cells, a long time meanwhile", || {
        let hot = Hot::new(4);
        hot.run(&[
            |hot| {
                hot.take(0);
            },
            |hot| {
                hot.take(1);
            },
            |hot| hot.mock.advance(LONG),
        ]);
        hot.drain();
        assert!(hot.granted_from(LATER) <= 4, "{:?}", hot.grants);
    });
}

#[test]
fn a_thief_and_an_owner_take_each_token_once() {
    explore("an owner, a thief", || {
        let hot = Hot::new(4);
        // Two tokens are at hand in one cell, and none is left in the word.
        assert!(hot.take(0) && hot.take(1));
        assert_eq!(hot.spread().at_hand(), 2);
        hot.run(&[
            |hot| {
                hot.take(0);
                hot.take(0);
            },
            |hot| {
                half_a_slot(hot);
                hot.take(1);
            },
        ]);
        hot.drain();
        assert_eq!(hot.granted(), 4);
    });
}

#[test]
fn what_is_gathered_beside_a_spender_is_granted_once() {
    explore("a spender, a taker of all", || {
        let hot = Hot::new(4);
        assert!(hot.take(0));
        hot.run(&[
            |hot| {
                hot.take(0);
                half_a_slot(hot);
                hot.take(0);
            },
            |hot| {
                hot.take_n(1, 3);
            },
        ]);
        hot.drain();
        assert_eq!(hot.granted(), 4);
    });
}

/// Leases end while their tokens are spent. Until then the tokens earned had no room in place of
/// the spent ones.
#[test]
fn a_lease_that_ends_mints_nothing() {
    explore("a spender, a taker of all, a long time before", || {
        let hot = filled_long_ago();
        hot.take(1);
        hot.run(&[
            |hot| {
                hot.take(0);
                hot.take(0);
            },
            |hot| {
                hot.take_n(1, 5);
            },
        ]);
        hot.drain();
        assert!(hot.granted_from(LATER) <= 6, "{:?}", hot.grants);
    });
}

/// The lease of the other cell is out, spent or not, while this cell is filled anew.
#[test]
fn a_cell_that_is_filled_beside_a_lease_mints_nothing() {
    explore("a cell that is filled, a spender", || {
        let hot = filled();
        assert!(hot.take(0) && hot.take(0));
        hot.run(&[
            |hot| {
                hot.take(0);
            },
            |hot| {
                hot.mock.advance(LONG);
                hot.take(1);
                hot.take(1);
            },
        ]);
        hot.drain();
        assert!(hot.granted_from(LATER) <= 6, "{:?}", hot.grants);
    });
}

#[test]
fn what_is_refunded_beside_a_lease_is_granted_once() {
    explore("a refund, a taker", || {
        let hot = Hot::new(4);
        assert!(hot.take(0));
        hot.run(&[
            |hot| {
                hot.spread().settle(Settle::Refund(1));
            },
            |hot| {
                hot.take(0);
                half_a_slot(hot);
                hot.take(1);
            },
        ]);
        hot.drain();
        let granted = hot.granted();
        // There may be no room for the refund while another lease is being taken.
        assert!(granted == 4 || granted == 5, "{granted}");
    });
}

#[test]
fn a_smaller_burst_holds_for_what_is_leased() {
    explore("a change of quota, a taker", || {
        let quota = Quota::every(Duration::from_secs(10)).burst(4);
        let hot = Hot::of(LiveTerms::new(quota, quota.layout()));
        assert!(hot.take(0));
        hot.run(&[
            |hot| {
                hot.engine.source.set(Quota::every(Duration::from_secs(10)), &hot.engine.clock).unwrap();
                hot.spread().recall_after_a_lower_burst();
            },
            |hot| {
                hot.take(1);
            },
        ]);
        let before = hot.granted();
        hot.drain();
        assert!(hot.granted() - before <= 1 && hot.granted() <= 4);
    });
}

/// Lowers the burst beside a taker. In the end no more tokens are left than the new burst.
fn a_lower_burst(name: &str, before: u64, after: u64, prepare: fn(&Hot), taker: fn(&Hot)) {
    explore(name, move || {
        let quota = Quota::every(Duration::from_secs(10)).burst(before);
        let hot = Hot::of(LiveTerms::new(quota, quota.layout()));
        prepare(&hot);
        let setter = Arc::clone(&hot);
        let setter = thread::spawn(move || {
            let change = setter.engine.source.set(quota.burst(after), &setter.engine.clock).unwrap();
            assert_eq!(change, Change::LowerBurst);
            setter.spread().recall_after_a_lower_burst();
        });
        hot.run(&[taker]);
        setter.join().unwrap();
        let granted = hot.granted();
        hot.drain();
        assert!(hot.granted() - granted <= after && hot.granted() <= before, "{:?}", hot.grants);
    });
}

/// The cell of a thread that is stopped while it takes a lease stays as it is. The word is cut to
/// the room beside that cell.
#[test]
fn a_smaller_burst_holds_beside_a_cell_that_is_kept() {
    let prepare = |hot: &Hot| assert!(hot.take(0));
    a_lower_burst("a lower burst, a taker that leases", 6, 2, prepare, |hot| {
        hot.take(1);
    });
}

/// Tokens leased under the burst before go back while a lease is taken under the new one.
#[test]
fn a_lease_that_is_taken_while_others_end_mints_nothing() {
    let prepare = |hot: &Hot| {
        assert!(hot.take(0) && hot.take(1));
        assert_eq!(hot.spread().at_hand(), 4);
    };
    a_lower_burst("a lower burst and two leases, a taker", 8, 4, prepare, |hot| {
        hot.take(0);
    });
}

#[test]
fn a_change_to_the_same_quota_loses_no_token() {
    explore("the same quota, a taker that leases", || {
        let quota = Quota::every(Duration::from_secs(10)).burst(6);
        let hot = Hot::of(LiveTerms::new(quota, quota.layout()));
        hot.run(&[
            |hot| {
                let quota = hot.engine.source.quota();
                let change = hot.engine.source.set(quota, &hot.engine.clock).unwrap();
                assert_eq!(change, Change::Other);
            },
            |hot| {
                hot.take(0);
                hot.take(1);
            },
        ]);
        hot.drain();
        assert_eq!(hot.granted(), 6);
    });
}
