//! Buckets that are refilled at intervals: the law, the bound, and the phase.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tollgate_distributed::{TokenRequester, TokenTable};

use crate::engine::now_us;

const SECOND_US: i64 = 1_000_000;

/// A row of the table, with its time in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) available: i64,
    pub(crate) capacity: i64,
    pub(crate) refill_seconds: i64,
    pub(crate) last_us: i64,
}

/// A table of such rows, which the test reads and writes.
pub(crate) trait Table: Sized {
    type Store: TokenTable;

    /// Starts its engine. There is none if its program is not installed.
    async fn start() -> Option<Self>;
    fn requester(&self) -> &TokenRequester<Self::Store>;
    async fn row(&mut self, id: &str) -> Interval;
    async fn put(&mut self, id: &str, row: Interval);
}

impl Interval {
    /// Takes a token at a time.
    pub(crate) fn take(&mut self, now_us: i64) -> bool {
        let interval = self.refill_seconds * SECOND_US;
        let whole = (now_us - self.last_us).div_euclid(interval);
        let there = if whole >= 1 { self.capacity } else { self.available };
        if there < 1 {
            return false;
        }
        self.available = there - 1;
        self.last_us += whole.max(0) * interval;
        true
    }
}

/// Walks 300 steps. The server reads its clock between two readings of the test. The answer equals
/// the law at one of them: they differ only at the start of an interval.
pub(crate) async fn tokens_at_intervals_keep_the_law(mut table: impl Table) {
    let mut runner = TestRunner::deterministic();
    let intervals = (1..4_i64, prop_oneof![1..5_i64, Just(1_000_000_000)]);
    // Tenths of an interval since the last refill.
    let steps = (prop::option::weighted(0.4, -15..50_i64), intervals).boxed();
    let id = "it's a \"key\"";
    let mut row = Interval { available: 2, capacity: 2, refill_seconds: 1, last_us: now_us() as i64 };
    for _ in 0..300 {
        let (tenths, (capacity, refill_seconds)) = steps.new_tree(&mut runner).unwrap().current();
        if let Some(tenths) = tenths {
            let last_us = now_us() as i64 - tenths * refill_seconds * SECOND_US / 10;
            row = Interval { capacity, refill_seconds, last_us, available: row.available.min(capacity) };
            table.put(id, row).await;
        }
        let mut models = [row, row];
        let granted = [models[0].take(now_us() as i64), false];
        let answer = table.requester().request_token(id).await.unwrap();
        let granted = [granted[0], models[1].take(now_us() as i64)];
        let stored = table.row(id).await;
        let allowed = (0..2).any(|end| answer == granted[end] && stored == models[end]);
        assert!(allowed, "{answer} and {stored:?}, but the law says {granted:?} and {models:?} on {row:?}");
        row = stored;
    }
    assert!(!table.requester().request_token("no such bucket").await.unwrap());
}

/// At the end of an interval and at the start of the next, twice the capacity is granted within
/// less than an interval, and no more. The calls do not shift the intervals.
pub(crate) async fn twice_the_capacity_is_granted_in_the_time_of_an_interval(mut table: impl Table) {
    let (id, capacity) = ("edge", 5);
    // The bucket is full, and the next interval begins in 300 ms.
    let begin = now_us() as i64;
    let last_us = begin - SECOND_US * 7 / 10;
    table.put(id, Interval { available: capacity, capacity, refill_seconds: 1, last_us }).await;
    let mut granted = 0;
    while (now_us() as i64) < begin + 900_000 {
        granted += i64::from(table.requester().request_token(id).await.unwrap());
    }
    assert_eq!(granted, 2 * capacity);
    let row = table.row(id).await;
    assert_eq!((row.last_us - last_us) % SECOND_US, 0, "the phase was shifted");
    assert_eq!(row.last_us, last_us + SECOND_US);
}

/// Returns a row of which no interval ends in the time of a test.
pub(crate) fn full(available: i64) -> Interval {
    Interval { available, capacity: available, refill_seconds: 1_000_000, last_us: now_us() as i64 }
}

/// Takes all tokens of an id, and returns their number.
pub(crate) async fn drain(table: &impl Table, id: &str) -> i64 {
    let mut taken = 0;
    while table.requester().request_token(id).await.unwrap() {
        taken += 1;
    }
    taken
}

/// Ids are compared by their bytes: an end of spaces, the case and the composition count.
pub(crate) async fn ids_with_different_bytes_have_different_buckets(mut table: impl Table) {
    let long = "x".repeat(255);
    let ids = ["acme", "acme ", "acme  ", "ACME", "acme\t", "", " ", "\u{e9}", "e\u{301}", &long];
    for (id, available) in ids.iter().zip(1..) {
        table.put(id, full(available)).await;
    }
    for id in ["acme   ", "Acme", "acme\u{1}", "e", &format!("{long} "), &format!("{long}x")] {
        assert_eq!(drain(&table, id).await, 0, "{id:?} is not in the table");
    }
    for (id, available) in ids.iter().zip(1..) {
        assert_eq!(drain(&table, id).await, available, "{id:?}");
    }
}
