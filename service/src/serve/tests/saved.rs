// promise: state
//! Counts that two processes went on with from one file.

use std::sync::Arc;
use std::time::Duration;

use tollgate::Clock;
use tollgate_testing::Random;

use crate::rules::tree::{Amount, Unit};
use crate::serve::counts::{CountOptions, LimitCounts, Verb};
use crate::serve::limiters::CountKey;
use tollgate_common::state_file::{SavedPart, StateFile, take_secret};

/// The numbers of keys of each table.
const KEYS: u8 = 4;

/// Saves counts, and returns the parts of the file.
fn parts(counts: &Arc<LimitCounts>) -> Vec<SavedPart> {
    let folder = tempfile::tempdir().unwrap();
    let (path, counts) = (folder.path().join("state"), counts.clone());
    let (file, _) = StateFile::open(&path).unwrap();
    file.save_each(Duration::from_secs(3_600), move |to| counts.save(to), |_| ()).unwrap().end();
    StateFile::open(&path).unwrap().1
}

/// Returns an amount of each table.
fn tables() -> [Amount; 5] {
    let text = |text: &str| Amount::Text(text.into(), text.parse().unwrap());
    [
        Amount::Window { unit: Unit::Hour, requests: 9 },
        Amount::Window { unit: Unit::Year, requests: 9 },
        text("9/h"),
        text("1/h burst 40"),
        text("30/h fixed"),
    ]
}

fn count(counts: &LimitCounts, amount: &Amount, key: u8, ask: (Verb, u64)) -> u64 {
    let (counter, key): (_, CountKey) = (counts.counter_of(amount), [key; 16]);
    let counted = counts.count(&counter, key, ask, counts.now()).unwrap();
    // A bucket tells the tokens left.
    if matches!(amount, Amount::Window { .. }) { counted.hits.after } else { 100 - counted.remaining }
}

/// Of each key the higher count holds: no take that both had at the begin counts twice.
#[test]
fn the_counts_of_another_process_are_merged_once() {
    let (clock, _mock) = Clock::mock();
    let options = CountOptions { max_keys: 1_000, clock, ..CountOptions::default() };
    let mut random = Random(1);
    let mut take = |counts: &LimitCounts| {
        for (table, key) in tables().iter().flat_map(|table| (0..KEYS).map(move |key| (table, key))) {
            count(counts, table, key, (Verb::Add, random.below(4)));
        }
    };
    for _ in 0..50 {
        let one = Arc::new(LimitCounts::new(&options));
        take(&one);
        let mut saved = parts(&one);
        let other = Arc::new(LimitCounts::of_saved(&mut saved, &options));
        saved.iter().for_each(|part| other.restore(part).unwrap());
        [&one, &other].into_iter().for_each(|counts| take(counts));
        let look = |counts: &LimitCounts| -> Vec<u64> {
            let all = tables();
            let each = all.iter().flat_map(|table| (0..KEYS).map(move |key| (table, key)));
            each.map(|(table, key)| count(counts, table, key, (Verb::Look, 0))).collect()
        };
        let wanted: Vec<u64> = look(&one).into_iter().zip(look(&other)).map(|(a, b)| a.max(b)).collect();
        for _ in 0..2 {
            let mut parts = parts(&one);
            take_secret(&mut parts).unwrap();
            other.merge(parts);
            assert_eq!(look(&other), wanted);
        }
    }
}
