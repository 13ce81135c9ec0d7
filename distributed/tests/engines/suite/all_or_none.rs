//! Calls that are granted together: each answer and each stored row is that of the law, number by
//! number, and a refusal leaves all of them as they were.

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tollgate::{Quota, Window};
use tollgate_distributed::{Amount, Bucket, Count, CountSpec, Law, Op, Spec, Store};
use tollgate_testing::size;

use crate::engine::{Engine, Stored, exactly, now_us};

/// The keys. The same of a bucket and of a count share nothing.
const KEYS: usize = 4;

/// The laws of each key: four of a bucket, and four of a count.
fn laws() -> [[Law; KEYS]; 2] {
    let bucket = |quota| Spec::new(quota, 0).unwrap().into();
    let count = |window| CountSpec::new(window, Duration::from_micros(now_us())).unwrap().into();
    [
        [Quota::per_hour(9), Quota::per_second(20).burst(5), Quota::per_day(7).burst(30), Quota::per_hour(1)]
            .map(bucket),
        [
            Window::per_day(12).utc(),
            Window::per_month(20),
            Window::per_minute(30).sliding(),
            Window::per_hour(9),
        ]
        .map(count),
    ]
}

/// Walks random calls of up to eight keys.
pub(crate) async fn calls_are_granted_together_or_not_at_all<E: Engine>(mut engine: E) {
    let mut runner = TestRunner::deterministic();
    let calls = prop::sample::subsequence((0..2 * KEYS).collect::<Vec<_>>(), 1..=5).prop_shuffle();
    let step = (calls, prop::collection::vec(1..=3_i64, 2 * KEYS));
    let (keys, laws) = (["a", "b", "", "d'\"\\"].map(str::as_bytes), laws());
    let (mut rows, mut counts) = (engine.rows().await, engine.counts().await);
    let mut seen = [0; 2];
    for walked in 0..size(300, 3_000) {
        let (calls, amounts) = step.new_tree(&mut runner).unwrap().current();
        let mut ops: Vec<Op<'_>> = calls
            .iter()
            .map(|&call| Op::new(keys[call % KEYS], laws[call / KEYS][call % KEYS], exactly(amounts[call])))
            .collect();
        let refused = engine.store().acquire_all(&mut ops).await.unwrap();
        // The answer to each call alone, that to a look, and the row after the call.
        let mut alone = Vec::new();
        for op in &ops {
            let (now_us, none) = (op.answer.now_us, Amount::default());
            alone.push(match &op.law {
                Law::Bucket(spec) => {
                    let stored = rows.get(op.key).map(Stored::bucket);
                    let (bucket, answer) = Bucket::step(stored, spec, now_us, op.amount);
                    let row = bucket.map(|bucket| Stored::of(&bucket, spec));
                    (answer, Bucket::step(stored, spec, now_us, none).1, row, None)
                }
                Law::Count(spec) => {
                    let stored = counts.get(op.key);
                    let (count, answer) = Count::step(stored, spec, now_us, op.amount).unwrap();
                    (answer, Count::step(stored, spec, now_us, none).unwrap().1, None, count)
                }
                law => panic!("{law:?}"),
            });
        }
        let first = ops.iter().zip(&alone).position(|(op, alone)| alone.0.granted < op.amount.min);
        assert_eq!(refused, first, "{ops:?}");
        seen[usize::from(refused.is_some())] += 1;
        for (op, (taken, looked, row, count)) in ops.iter().zip(alone) {
            assert_eq!(op.answer, if refused.is_some() { looked } else { taken }, "{op:?} of {ops:?}");
            if refused.is_none() {
                row.map(|row| rows.insert(op.key.to_vec(), row));
                count.map(|count| counts.insert(op.key.to_vec(), count));
            }
        }
        let stored = engine.rows().await;
        assert_eq!(stored.keys().collect::<Vec<_>>(), rows.keys().collect::<Vec<_>>(), "{ops:?}");
        for (key, row) in &stored {
            assert_eq!(row.bucket(), rows[key].bucket(), "{ops:?}");
        }
        assert_eq!(engine.counts().await, counts, "{ops:?}");
        if walked % 20 == 19 {
            let all = keys.map(<[u8]>::to_vec);
            engine.delete(&all).await;
            engine.delete_counts(&all).await;
            (rows, counts) = Default::default();
        }
    }
    println!("{} granted, {} refused", seen[0], seen[1]);
    assert!(seen.iter().all(|seen| *seen > 40), "{seen:?}");
}

/// The last tokens of two keys are those of one caller, whatever the order of its calls.
pub(crate) async fn callers_of_the_same_keys_do_not_block_each_other<E: Engine>(engine: E) {
    let laws = laws();
    let spec = Law::from(Spec::new(Quota::per_day(1).burst(40), 0).unwrap());
    let (store, store_of) =
        (engine.store(), |key: &'static str, law| Op::new(key.as_bytes(), law, exactly(1)));
    let ask = async |turn: usize| {
        let mut granted = 0;
        for _ in 0..20 {
            let mut ops = [store_of("x", spec), store_of("y", spec), store_of("z", laws[1][1])];
            ops.rotate_left(turn % 3);
            granted += u64::from(store.acquire_all(&mut ops).await.unwrap().is_none());
        }
        granted
    };
    let (a, b, c, d) = tokio::join!(ask(0), ask(1), ask(2), ask(3));
    assert_eq!(a + b + c + d, 20, "{:?}", [a, b, c, d]);
}
