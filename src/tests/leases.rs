// promise: law
//! The sizes of leases by demand, and the hints beside them: no grant depends on these numbers.

use std::time::Duration;

use crate::bucket::atomic::Bucket;
use crate::bucket::engine::{Engine, Now};
use crate::bucket::lease::{LeaseCells, Spread, thread_index};
use crate::bucket::live_terms::LiveTerms;
use crate::bucket::receipt::Settle;
use crate::rule::rate::Quota;
use crate::time::clock::Clock;
use crate::word::decision::Granted;
use crate::word::verb::Take;

const QUICK: u64 = 4_000;
const SLOW: u64 = 4 * QUICK;
const IDLE: u64 = 1_000_000;
/// Takes in quick succession before the first lease.
const WARM_UP: usize = 32;

#[test]
fn a_lease_doubles_halves_and_ends_with_demand() {
    let cells = LeaseCells::new(1);
    let mut now = 0;
    let mut after = |gap: u64, most: u64| {
        now += gap;
        cells.of(0).note(now, 0, most);
        cells.of(0).batch()
    };
    for _ in 1..WARM_UP {
        assert_eq!(after(QUICK, 1_000), 1);
    }
    for size in [2, 4, 8, 16, 32, 64, 128, 256, 512, 512] {
        assert_eq!(after(QUICK, 1_000), size);
    }
    assert_eq!((after(QUICK + 1, 1_000), after(SLOW, 1_000)), (512, 512));
    for size in [256, 128, 64, 32, 16, 8, 4, 2] {
        assert_eq!(after(SLOW + 1, 1_000), size);
    }
    // After an idle time the demand starts from 0.
    assert_eq!((after(IDLE, 1_000), after(QUICK, 1_000)), (1, 1));
    for _ in 2..WARM_UP {
        assert_eq!(after(QUICK, 1_000), 1);
    }
    assert_eq!((after(QUICK, 1_000), after(QUICK, 1_000)), (2, 4));
    assert_eq!((after(IDLE, 1_000), after(IDLE + 1, 1_000)), (2, 1));
    // Before the first lease, one slow take is enough.
    for slow in [QUICK + 1, SLOW + 1] {
        for _ in 1..WARM_UP {
            assert_eq!(after(QUICK, 1_000), 1);
        }
        assert_eq!(after(slow, 1_000), 1);
        for _ in 1..WARM_UP {
            assert_eq!(after(QUICK, 1_000), 1);
        }
        assert_eq!((after(QUICK, 1_000), after(IDLE + 1, 1_000)), (2, 1));
    }
}

#[test]
fn a_lease_is_at_most_the_part_that_the_bucket_allows() {
    let cells = LeaseCells::new(1);
    let mut now = 0;
    let mut after = |most: u64| {
        now += QUICK;
        cells.of(0).note(now, 0, most);
        cells.of(0).batch()
    };
    let sizes: Vec<_> = (0..WARM_UP + 6).map(|_| after(20)).collect();
    assert_eq!(sizes[WARM_UP - 2..], [1, 2, 4, 8, 16, 16, 16, 16]);
    // Once the bucket allows less, the lease ends, and the next one is small.
    assert_eq!([after(10), after(10), after(10), after(10)], [1, 2, 4, 8]);
}

#[test]
fn a_refusal_marks_a_bucket_as_drained_until_tokens_are_there() {
    let (clock, mock) = Clock::mock();
    let quota = Quota::per_second(10);
    let engine = Engine::new(LiveTerms::new(quota, quota.layout()), clock, None);
    let (bucket, cells) = (Bucket::new(), LeaseCells::new(2));
    let spread = Spread { bucket: &bucket, engine: &engine, cells: &cells };
    let take = |n: u64| spread.acquire(0, Now(&engine), n).is_ok();
    assert!(take(10) && !cells.is_drained());
    assert!(!take(1) && cells.is_drained());
    mock.advance(Duration::from_millis(100));
    assert!(take(1) && cells.is_drained(), "no other token is there");
    mock.advance(Duration::from_millis(200));
    assert!(take(1) && !cells.is_drained(), "there is one more");
}

#[test]
fn each_thread_has_an_index_of_its_own() {
    let own = [thread_index(), thread_index()];
    assert_eq!(own[0], own[1]);
    let others = std::thread::scope(|scope| {
        [0; 3].map(|_| scope.spawn(thread_index)).map(|thread| thread.join().unwrap())
    });
    let mut all = [own[0], others[0], others[1], others[2]];
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
}

/// A bucket with an empty word and two cells. The first cell has a lease, and part of it is spent.
struct Leased {
    bucket: Bucket,
    engine: Engine,
    cells: LeaseCells,
}

impl Leased {
    fn new() -> Leased {
        let (clock, quota) = (Clock::mock().0, Quota::per_second(1_000));
        let engine = Engine::new(LiveTerms::new(quota, quota.layout()), clock, None);
        let leased = Leased { bucket: Bucket::new(), engine, cells: LeaseCells::new(2) };
        // The clock stands still, so the cell is in demand.
        while leased.cells.of(0).lease_size() < 16 {
            assert!(leased.take(0, 1));
        }
        assert!(leased.cells.of(0).take(10).is_some());
        leased.engine.charge(&leased.bucket, None, Now(&leased.engine), Take::UpTo(1_000).into()).unwrap();
        leased
    }

    fn spread(&self) -> Spread<'_> {
        Spread { bucket: &self.bucket, engine: &self.engine, cells: &self.cells }
    }

    fn take(&self, own: usize, n: u64) -> bool {
        self.spread().acquire(own, Now(&self.engine), n).is_ok()
    }

    fn remaining(&self) -> u64 {
        let seen = self.spread().look(Now(&self.engine), Take::Exactly(0));
        Granted::new(seen.outcome, &seen.reading).remaining()
    }
}

#[test]
fn a_token_of_another_cell_is_taken_and_the_lease_stays() {
    let leased = Leased::new();
    let (size, left) = (leased.cells.of(0).lease_size(), leased.spread().at_hand());
    assert!(leased.take(1, 1));
    assert_eq!((leased.cells.of(0).lease_size(), leased.spread().at_hand()), (size, left - 1));
    assert!(leased.take(1, left - 1) && !leased.take(1, 1));
}

/// Any take of another thread ends a lease that no thread has used for more than a millisecond.
#[test]
fn a_lease_that_is_idle_is_ended_by_a_take_elsewhere() {
    for takes in 1..5 {
        let ((clock, mock), quota) = (Clock::mock(), Quota::per_second(1_000));
        let engine = Engine::new(LiveTerms::new(quota, quota.layout()), clock, None);
        let leased = Leased { bucket: Bucket::new(), engine, cells: LeaseCells::new(2) };
        while leased.cells.of(0).lease_size() < 16 {
            assert!(leased.take(0, 1));
        }
        mock.advance(Duration::from_nanos(IDLE));
        (0..takes).for_each(|_| assert!(leased.take(1, 1)));
        assert_eq!(leased.cells.of(0).lease_size(), 16);
        mock.advance(Duration::from_nanos(1));
        let before = leased.remaining();
        assert!(leased.take(1, 1));
        assert_eq!((leased.cells.of(0).lease_size(), leased.remaining()), (0, before - 1), "{takes}");
    }
}

/// A grant of a lease says when the word is full, as of the lease's beginning.
#[test]
fn a_grant_of_a_lease_tells_the_reset_of_the_word() {
    let leased = Leased::new();
    let cell = leased.cells.of(0);
    let granted = cell.take(1).expect("it has tokens");
    // The clock stands still. The word earns a token a millisecond.
    assert_eq!(granted.reset_after(), Duration::from_millis(1_000 - cell.rest()));
    assert_eq!(granted.remaining(), cell.rest() + cell.lease().left());
}

/// The spent tokens of a lease make room for a refund once the lease has ended.
#[test]
fn a_refund_that_does_not_fit_beside_a_lease_ends_it() {
    let leased = Leased::new();
    let (size, left) = (leased.cells.of(0).lease_size(), leased.spread().at_hand());
    assert!(left < size);
    let refund = 1_000 - left;
    leased.spread().settle(Settle::Refund(refund));
    assert_eq!(leased.remaining(), 1_000);
    assert_eq!(leased.cells.of(0).lease_size(), 0);

    // A refund that fits leaves the lease alone.
    let leased = Leased::new();
    let left = leased.spread().at_hand();
    leased.spread().settle(Settle::Refund(1_000 - size));
    assert_eq!((leased.remaining(), leased.cells.of(0).lease_size()), (1_000 - size + left, size));
}
