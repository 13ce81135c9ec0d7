//! Rough figures: decisions a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::Quota;
use tollgate_distributed::{Amount, Op, Spec, Store};

use super::world::exactly;

const TIME: Duration = Duration::from_secs(2);

/// Prints the decisions a second of one task and of 32, on one key and on 64 in a batch, granted
/// and denied.
pub(crate) async fn measure<S: Store>(stores: &[Arc<S>]) {
    let much = Spec::new(Quota::per_second(1_000_000_000).burst(1_000_000), 0).unwrap();
    let little = Spec::new(Quota::per_day(1), 0).unwrap();
    for (keys, tasks) in [(1, 1), (1, 32), (64, 1), (64, 8)] {
        for (name, spec, amount) in [("granted", much, exactly(1)), ("denied", little, exactly(2))] {
            let begin = Instant::now();
            let mut set = JoinSet::new();
            for task in 0..tasks {
                let store = Arc::clone(&stores[task % stores.len()]);
                set.spawn(decide(store, task, keys, spec, amount));
            }
            let decided: u64 = set.join_all().await.into_iter().sum();
            let rate = decided as f64 / begin.elapsed().as_secs_f64();
            println!("{keys:2} keys a call, {tasks:2} tasks, {name}: {rate:8.0} decisions a second");
        }
    }
}

/// Decides on the keys of one task for some time, and returns the number of decisions.
async fn decide<S: Store>(store: Arc<S>, task: usize, keys: usize, spec: Spec, amount: Amount) -> u64 {
    let keys: Vec<String> = (0..keys).map(|key| format!("{}:{task}:{key}", spec.quota())).collect();
    let end = Instant::now() + TIME;
    let mut decided = 0;
    while Instant::now() < end {
        let mut ops: Vec<_> = keys.iter().map(|key| Op::new(key.as_bytes(), spec, amount)).collect();
        store.acquire(&mut ops).await.unwrap();
        decided += ops.len() as u64;
    }
    decided
}
