//! The law of each store: its steps, its keys, its rows, and a clock that goes back.

use std::time::Duration;

use ring::digest::{self, SHA256};
use tollgate::Quota;
use tollgate_distributed::{Amount, DistributedLimiter, Op, Spec, Store, StoreErrorKind};
use tollgate_testing::size;

use super::{count_walk, walk};
use crate::engine::{Engine, Options, PATIENT, Rows, Stored, ask, exactly, now_us, slow};

/// A fifth of the steps without `FULL=1`.
pub(crate) async fn each_step_and_each_row_is_the_step_of_the_law<E: Engine>(mut engine: E) {
    let store = engine.connect(PATIENT);
    walk::walk(&mut engine, &store, size(E::STEPS / 5, E::STEPS)).await;
}

/// 100,000 steps with `FULL=1`, and a tenth of those of a bucket without.
pub(crate) async fn each_step_of_a_window_and_each_row_is_the_step_of_the_law<E: Engine>(mut engine: E) {
    let steps = size(E::STEPS / 10, 100_000);
    let store = engine.connect(PATIENT);
    count_walk::walk(&mut engine, &store, steps).await;
}

/// After a step back of a second or less a bucket waits. After a longer one it refills from the new
/// time. Neither earns a token.
pub(crate) async fn a_step_back_of_the_clock_mints_nothing_and_stalls_a_second(mut engine: impl Engine) {
    // One token every 10 ms.
    let spec = Spec::new(Quota::per_second(100).burst(10), 0).unwrap();
    for (key, left, by_us) in
        [("short", 5, 900_000), ("long", 5, 10_000_000), ("empty", 0, 10_000_000), ("hour", 5, 3_600_000_000)]
    {
        let key = key.as_bytes();
        ask(engine.store(), key, spec, exactly(10 - left)).await;
        let mut rows = engine.rows().await;
        rows.retain(|id, _| id == key);
        let ahead_us = now_us() + by_us;
        rows.get_mut(key).unwrap().last_us = ahead_us as i64;
        engine.put(&rows).await;
        let early = ask(engine.store(), key, spec, exactly(left + 1)).await;
        assert!(early.granted == 0 || early.now_us >= ahead_us, "a token of no time");
        let taken = ask(engine.store(), key, spec, exactly(left)).await;
        assert_eq!(taken.granted, left, "the tokens that were left");
        // By the clock of the store: the bucket earns from there on, a token within half a second.
        let from_us = if by_us <= 1_000_000 { ahead_us } else { taken.now_us };
        loop {
            let answer = ask(engine.store(), key, spec, exactly(1)).await;
            if answer.granted > 0 {
                assert!(answer.now_us >= from_us, "{answer:?} at a step of {by_us} us");
                break;
            }
            assert!(answer.now_us < from_us + 500_000, "a stall at a step of {by_us} us: {answer:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Returns the form in which a limiter stores a key that is too long.
fn digest(key: &[u8]) -> Vec<u8> {
    let digits =
        digest::digest(&SHA256, key).as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("sha256:{digits}").into_bytes()
}

/// No key shares the bucket of another one: neither one that is stored as a digest, nor a short one
/// that looks like a digest, nor one with other bytes that a text might ignore.
pub(crate) async fn each_key_has_its_own_bucket(engine: impl Engine) {
    let store = engine.connect(PATIENT);
    let builder = DistributedLimiter::<Vec<u8>, _>::builder(Quota::per_hour(2), store).name("keys");
    let limiter = builder.exact().deadline(Duration::from_secs(10)).build().unwrap();
    // With the name, the first is the longest key that is stored as it is.
    let long = [vec![b'x'; 250], vec![b'x'; 251], vec![0xff; 255], vec![b'y'; 100_000]];
    let once: Vec<_> = long.iter().map(|key| digest(key)).collect();
    let twice = once.iter().map(|key| digest(key));
    let short = ["", "a", "a ", "a\0", "A", ":", ":a", "sha256", "sha256:", "sha256: ", "SHA256:"];
    let short = short.map(|key| key.as_bytes().to_vec());
    let keys: Vec<_> = long.iter().cloned().chain(twice).chain(once.iter().cloned()).chain(short).collect();
    for key in &keys {
        for left in [1, 0] {
            let granted = limiter.ask(key).await.unwrap_or_else(|_| panic!("\"{}\"", key.escape_ascii()));
            assert_eq!(granted.remaining(), left, "\"{}\"", key.escape_ascii());
        }
    }
    for key in &keys {
        assert!(limiter.ask(key).await.is_err(), "\"{}\"", key.escape_ascii());
    }
}

/// No call of the batch takes a token, and a call beside it does.
pub(crate) async fn a_row_that_is_no_bucket_fails_its_call_and_names_the_key<E: Engine>(mut engine: E) {
    let most = 1_i64 << 53;
    let wrong = [
        (most, 0, 1),
        (-most, 0, 1),
        (i64::MAX, 0, 1),
        (i64::MIN, 0, 1),
        (0, 0, 0),
        (0, 0, -1),
        (0, 0, most),
        (0, 0, i64::MAX),
        (i64::MAX, i64::MAX, 0),
    ];
    let wrong = wrong.map(|(credits, last_us, unit)| Stored { credits, last_us, unit, full_us: 0 });
    engine.lift_constraints(&wrong).await;
    let store = engine.connect(Options { connections: 1, ..PATIENT });
    let amounts = [exactly(0), exactly(1), Amount { spent: 1, ..Amount::default() }];
    let amounts = if E::CHECKS_ROWS { &amounts[..] } else { &amounts[..1] };
    for row in wrong {
        engine.put(&Rows::from([(b"wr\"ong\xff".to_vec(), row)])).await;
        for &amount in amounts {
            let mut ops = [
                Op::new(b"sound", slow(), exactly(i64::from(E::CHECKS_ROWS))),
                Op::new(b"wr\"ong\xff", slow(), amount),
            ];
            let (result, other) =
                tokio::join!(store.acquire(&mut ops), ask(&store, b"other", slow(), exactly(1)));
            let error = result.err().unwrap_or_else(|| panic!("{row:?} was decided"));
            assert_eq!(error.kind(), StoreErrorKind::Permanent, "{row:?}: {error}");
            // The error of a division by no unit is that of the server.
            let is_named = error.to_string().contains(r#""wr\"ong\xff""#);
            assert!(is_named || !E::CHECKS_ROWS && row.unit == 0, "{row:?}: {error}");
            assert_eq!(other.granted, 1, "a call beside it");
        }
        assert!(!engine.rows().await.contains_key(b"sound".as_slice()), "a failed call took a token");
    }
}
