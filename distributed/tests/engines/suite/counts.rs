//! Counts of windows that are wrong, that are over, and that are many.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::Window;
use tollgate_distributed::{Count, CountSpec, Op, Store, StoreErrorKind};
use tollgate_testing::size;

use super::load::{decide, stores};
use crate::engine::{Counts, Engine, Options, PATIENT, Sql, bytes_of_count, exactly, now_us};

const SECOND_US: u64 = 1_000_000;
const HOUR_US: u64 = 3_600 * SECOND_US;
/// The most tokens of a count.
const MOST: u64 = (1 << 53) - 1;

fn hourly(limit: u64) -> CountSpec {
    CountSpec::new(Window::per_hour(limit), Duration::ZERO).unwrap()
}

/// No call of the batch takes a token, and a call beside it does.
pub(crate) async fn a_row_that_is_no_count_fails_its_call_and_names_the_key<E: Engine>(mut engine: E) {
    let wrong = [bytes_of_count(&[MOST + 1]), vec![0xff; 7], bytes_of_count(&[MOST, 1]), vec![0xff; 7 * 65]];
    // Constraints keep these out.
    let odd = [vec![], b"text".to_vec(), vec![0; 6], vec![0; 8], vec![1; 7 * 66]];
    let store = engine.connect(Options { connections: 1, ..PATIENT });
    let key = b"wr\"ong\xff".as_slice();
    let (mut beside, mut kept_out) = (0, 0);
    for used in wrong.iter().chain(&odd) {
        let now_us = now_us();
        if !engine.put_used(key, now_us - SECOND_US, used, now_us + HOUR_US - SECOND_US).await {
            kept_out += 1;
            continue;
        }
        for amount in [0, 1] {
            let mut ops = [
                Op::new(b"sound", hourly(5), exactly(i64::from(E::CHECKS_ROWS))),
                Op::new(key, hourly(5), exactly(amount)),
            ];
            let mut other = [Op::new(b"other", hourly(100), exactly(1))];
            let (result, decided) = tokio::join!(store.acquire(&mut ops), store.acquire(&mut other));
            let error = result.err().unwrap_or_else(|| panic!("{used:?} was decided"));
            assert_eq!(error.kind(), StoreErrorKind::Permanent, "{used:?}: {error}");
            assert!(error.to_string().contains(r#""wr\"ong\xff""#), "{used:?}: {error}");
            decided.unwrap();
            beside += 1;
            assert_eq!(
                (other[0].answer.granted, other[0].answer.credits),
                (1, 100 - beside),
                "a call beside it"
            );
        }
        engine.delete_counts(&[key.to_vec()]).await;
        assert_eq!(
            engine.counts().await.keys().collect::<Vec<_>>(),
            [b"other"],
            "a failed call took a token"
        );
    }
    assert_eq!(kept_out, if E::CHECKS_ROWS { 0 } else { odd.len() });
}

/// A clean-up deletes the counts that have been over for some time, and no others.
pub(crate) async fn a_clean_up_deletes_only_counts_that_are_over(mut engine: impl Sql) {
    let grace_us = 10 * SECOND_US;
    let begin = now_us();
    let before: Counts = (0..3_500)
        .map(|index| {
            let end_us = begin - 2 * grace_us + index * grace_us * 2 / 3_500;
            let count = Count { start_us: end_us - HOUR_US, used: vec![5].into(), end_us };
            (format!("key {index:09}").into_bytes(), count)
        })
        .chain([(b"runs".to_vec(), Count { start_us: begin, used: vec![5].into(), end_us: begin + HOUR_US })])
        .collect();
    engine.put_counts(&before).await;
    let deleted = engine.clean_up(Duration::from_micros(grace_us)).await;
    let (end, after) = (now_us(), engine.counts().await);
    assert_eq!(deleted, (before.len() - after.len()) as u64);
    for (key, count) in &before {
        match after.get(key) {
            None => assert!(count.end_us + grace_us <= end, "{count:?} is younger"),
            Some(kept) => assert!(kept == count && count.end_us + grace_us >= begin, "{count:?} is left"),
        }
    }
    assert!(deleted > 1_000 && after.len() > 1_000, "{deleted} of {}", before.len());
    // A count that is over decides as a missing one, and one that runs goes on.
    for (key, granted) in [(before.keys().next().unwrap().as_slice(), 5), (b"runs", 0)] {
        let mut ops = [Op::new(key, hourly(5), exactly(5))];
        engine.store().acquire(&mut ops).await.unwrap();
        assert_eq!(ops[0].answer.granted, granted, "{}", key.escape_ascii());
    }
}

/// Sends batches of 64 of these keys, each for one token. Returns the granted tokens.
async fn take_of_each<S: Store>(store: Arc<S>, keys: Vec<String>) -> i64 {
    let mut granted = 0;
    for batch in keys.chunks(64) {
        let mut ops: Vec<_> =
            batch.iter().map(|key| Op::new(key.as_bytes(), hourly(3), exactly(1))).collect();
        decide(&*store, &mut ops).await.unwrap();
        granted += ops.iter().map(|op| op.answer.granted).sum::<i64>();
    }
    granted
}

/// Each of many keys has its limit, and one hot key has its own, whichever connections ask.
pub(crate) async fn many_counts_and_a_hot_one_have_their_limits_under_load<E: Engine>(mut engine: E) {
    let keys: Vec<String> = (0..size(4_000, 50_000)).map(|key| format!("key {key}")).collect();
    let stores = stores(&engine, 4, PATIENT);
    let (mut of_many, mut of_one) = (JoinSet::new(), JoinSet::new());
    for (index, store) in stores.iter().enumerate() {
        let mut keys = keys.clone();
        keys.rotate_left(index * 997);
        if index % 2 == 0 {
            keys.reverse();
        }
        of_many.spawn(take_of_each(store.clone(), keys));
        for _ in 0..16 {
            let store = store.clone();
            of_one.spawn(async move {
                let mut granted = 0;
                loop {
                    let mut ops = [Op::new(b"hot", hourly(500), exactly(1))];
                    decide(&*store, &mut ops).await.unwrap();
                    match ops[0].answer.granted {
                        0 => return granted,
                        one => granted += one,
                    }
                }
            });
        }
    }
    assert_eq!(of_one.join_all().await.into_iter().sum::<i64>(), 500);
    assert_eq!(of_many.join_all().await.into_iter().sum::<i64>(), 3 * keys.len() as i64);
    let counts = engine.counts().await;
    assert_eq!(counts.len(), keys.len() + 1);
    let wrong = counts.iter().find(|(key, count)| *count.used != [if *key == b"hot" { 500 } else { 3 }]);
    assert_eq!(wrong, None);
    assert_eq!(engine.deadlocks().await, 0);
}
