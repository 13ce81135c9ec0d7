//! A clean-up deletes rows, and changes no decision.

use std::time::Duration;

use tollgate::Quota;
use tollgate_distributed::{Amount, Bucket, Spec};

use crate::engine::{Rows, Sql, Stored, ask, exactly, now_us};

/// Rows with ages around the one from which a row decides as a missing one.
pub(crate) fn rows_of_all_ages(spec: &Spec, rows: i64, grace_us: i64) -> Rows {
    let fill_us = (spec.fill_ticks() * spec.tick_us()) as i64;
    let row = |index: i64| {
        let age_us = (fill_us + grace_us) * index * 2 / rows;
        let bucket = Bucket {
            credits: index % spec.capacity() as i64,
            last_us: now_us() - age_us as u64,
            per_token: spec.per_token(),
        };
        (format!("key {index:09}").into_bytes(), Stored::of(&bucket, spec))
    };
    (0..rows).map(row).collect()
}

/// A clean-up deletes the rows that have decided as a missing one for some time, and no others.
pub(crate) async fn a_clean_up_deletes_only_rows_that_decide_nothing(mut engine: impl Sql) {
    let spec = Spec::new(Quota::per_minute(60).burst(100), 0).unwrap();
    let grace_us = 10_000_000;
    let before = rows_of_all_ages(&spec, 3_500, grace_us);
    engine.put(&before).await;
    let begin = now_us();
    let deleted = engine.clean_up(Duration::from_micros(grace_us as u64)).await;
    let end = now_us();
    let after = engine.rows().await;
    assert_eq!(deleted, (before.len() - after.len()) as u64);
    let take = exactly(7);
    for (key, row) in &before {
        let full = Bucket::step(None, &spec, begin, take);
        match after.get(key) {
            None => {
                assert!(row.full_us + grace_us <= end as i64, "{row:?} is younger");
                assert_eq!(Bucket::step(Some(row.bucket()), &spec, begin, take), full, "{row:?} decides");
            }
            Some(kept) => {
                assert_eq!(kept, row);
                assert!(row.full_us + grace_us >= begin as i64, "{row:?} is left");
            }
        }
    }
    assert!(deleted > 1_000 && after.len() > 1_000, "{deleted} of {}", before.len());
    // A second run, by the time of the first, finds at most the rows that came of age in between. A
    // deleted key has a full bucket.
    let grace_us = grace_us as u64 + now_us() - begin;
    let again = engine.clean_up(Duration::from_micros(grace_us)).await;
    let end = now_us() as i64;
    let at_edge = after.values().filter(|row| row.full_us + grace_us as i64 <= end).count() as u64;
    assert!(again <= at_edge, "{again} rows were left, {at_edge} of them came of age");
    let (gone, _) = before.iter().find(|(key, _)| !after.contains_key(*key)).unwrap();
    let look = ask(engine.store(), gone, spec, Amount::default()).await;
    assert_eq!(look.credits, spec.capacity() as i64);
}
