//! A random walk: each answer and each stored row equals `Bucket::step`, number by number.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tollgate_distributed::{Bucket, MAX_KEY, Op, Spec, Store};

use super::strategies::{Gap, Wish, gaps, specs, wishes};
use crate::engine::{Engine, Rows, Stored, now_us};

const KEYS: usize = 64;

/// The largest difference between the clocks of a server and of this process.
const CLOCKS_US: u64 = 60_000_000;

/// A step of a key: perhaps a new quota, a gap, and a call.
type Step = (Option<Spec>, Gap, Wish);

struct Walk {
    keys: Vec<Vec<u8>>,
    specs: Vec<Spec>,
    rows: Rows,
}

/// Walks `steps` steps of a store, up to 64 in a batch.
pub(crate) async fn walk<E: Engine>(engine: &mut E, store: &E::Store, steps: u64) {
    let mut runner = TestRunner::deterministic();
    let mut sample =
        |strategy: &BoxedStrategy<(Vec<Step>, usize)>| strategy.new_tree(&mut runner).unwrap().current();
    let step = (prop::option::weighted(0.2, specs()), gaps(), wishes());
    let first = (specs().prop_map(Some), gaps(), wishes());
    let batch = (prop::collection::vec(step, KEYS), prop_oneof![1 => 1..=KEYS, 6 => Just(KEYS)]).boxed();
    let first = (prop::collection::vec(first, KEYS), Just(KEYS)).boxed();
    let (begin, _) = sample(&first);
    let specs = begin.iter().map(|(spec, ..)| spec.unwrap()).collect();
    let mut walk = Walk { keys: keys(), specs, rows: Rows::new() };
    store.acquire(&mut []).await.unwrap();
    let mut walked = 0;
    while walked < steps {
        let (batch, length) = sample(&batch);
        walk.batch(engine, store, &batch[..length], walked as usize).await;
        walked += length as u64;
    }
}

/// Returns keys with all kinds of bytes, of all lengths.
fn keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..KEYS - 8).map(|key| format!("user:{key}").into_bytes()).collect();
    keys.extend(["user:1 ", "user:1\0", "USER:1"].map(|key| key.as_bytes().to_vec()));
    keys.extend([vec![], vec![0], vec![0, 0], b"'\"\\%_;--$1?".to_vec(), vec![0xff; MAX_KEY]]);
    keys
}

impl Walk {
    /// Walks one batch, which begins at another key each time.
    async fn batch<E: Engine>(&mut self, engine: &mut E, store: &E::Store, steps: &[Step], offset: usize) {
        let places: Vec<usize> = (0..steps.len()).map(|index| (index * 5 + offset) % KEYS).collect();
        for (&place, (spec, ..)) in places.iter().zip(steps) {
            self.specs[place] = spec.unwrap_or(self.specs[place]);
        }
        self.forge(engine, &places, steps).await;
        let amounts: Vec<_> =
            places.iter().zip(steps).map(|(&place, step)| step.2.amount(&self.specs[place])).collect();
        let mut ops: Vec<Op<'_>> = places
            .iter()
            .zip(&amounts)
            .map(|(&place, &amount)| Op::new(&self.keys[place], self.specs[place], amount))
            .collect();
        store.acquire(&mut ops).await.unwrap();
        let rows = engine.rows().await;
        for (op, &place) in ops.iter().zip(&places) {
            let spec = &self.specs[place];
            assert!(op.answer.now_us.abs_diff(now_us()) < CLOCKS_US, "the clock of the store: {op:?}");
            let stored = self.rows.get(op.key).map(Stored::bucket);
            let (bucket, answer) = Bucket::step(stored, spec, op.answer.now_us, op.amount);
            assert_eq!(op.answer, answer, "the answer of {op:?} on {stored:?}");
            if let Some(bucket) = bucket {
                let row = rows.get(op.key).unwrap_or_else(|| panic!("no row of {op:?}"));
                E::check(row, &bucket, spec, op);
                self.rows.insert(op.key.to_vec(), *row);
            }
            assert_eq!(rows.get(op.key), self.rows.get(op.key), "the row of {op:?}");
        }
        assert_eq!(rows, self.rows);
    }

    /// Moves the times of rows, as if time had passed, deletes rows, and writes rows of any bucket.
    async fn forge(&mut self, engine: &mut impl Engine, places: &[usize], steps: &[Step]) {
        let (mut moved, mut forgotten) = (BTreeMap::new(), Vec::new());
        for (&place, (_, gap, _)) in places.iter().zip(steps) {
            let (key, spec) = (&self.keys[place], &self.specs[place]);
            if let Gap::Forged(credits, unit) = *gap {
                let row = Stored { credits, last_us: now_us() as i64, unit, full_us: 0 };
                self.rows.insert(key.clone(), row);
                moved.insert(key.clone(), row);
                continue;
            }
            let Some(stored) = self.rows.get_mut(key) else { continue };
            let fill_us = u128::from(spec.fill_ticks()) * u128::from(spec.tick_us());
            let gap_us = match *gap {
                Gap::None | Gap::Forged(..) => continue,
                Gap::Forgotten => {
                    forgotten.push(key.clone());
                    continue;
                }
                Gap::Micros(gap) => i128::from(gap),
                Gap::Fills(hundredths) => (fill_us / 100 * u128::from(hundredths)) as i128,
            };
            stored.last_us = (i128::from(now_us()) - gap_us).max(0) as i64;
            moved.insert(key.clone(), *stored);
        }
        self.rows.retain(|key, _| !forgotten.contains(key));
        engine.put(&moved).await;
        engine.delete(&forgotten).await;
    }
}
