//! Counts in a store that an operator sets to 0.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::{Fleet, MILLI, Replica, StoreSettings, settings};
use crate::serve::counts::Counted;
use crate::serve::messages::DescriptorEntry;
use crate::serve::shared::Want;

impl Fleet {
    /// Clears the count of a key by a replica.
    async fn clear(&self, replica: usize, key: &str) -> Result<[Counted; 2], String> {
        let Replica { counts, rules, shared } = &self.replicas[replica];
        let entries = [DescriptorEntry { key: key.to_owned(), value: "ann".to_owned() }];
        let limit = rules.rules.domain("d").unwrap().find([(key, "ann")].into_iter()).unwrap();
        let own = counts.key("d", &entries, &limit.shared);
        shared.clear(|| Want::look(rules.counter(limit), own, "d", &entries, limit), counts.now()).await
    }
}

/// The window runs for a day, so no time frees a token of it.
#[tokio::test(start_paused = true)]
async fn a_cleared_count_is_that_of_the_store_and_no_refusal_is_known() {
    for (key, limit) in [("minute", 100), ("busy", 1_000), ("bucket", 200), ("sliding", 100)] {
        for lease in [Duration::ZERO, 100 * MILLI] {
            let case = format!("{key}, {lease:?}");
            let fleet = Fleet::new(2, &StoreSettings { lease, ..settings() });
            let taken = fleet.run(key, 1_500 * MILLI, MILLI).await;
            assert!(taken >= limit, "{case}: {taken}");
            while fleet.ask(0, key, 1).await {}
            let [before, after] = fleet.clear(0, key).await.unwrap();
            assert_eq!((after.hits.after, after.remaining), (0, limit), "{case}");
            assert!(before.remaining <= 1, "{case}: {before:?}");
            let mut granted = 0;
            while fleet.ask(0, key, 1).await {
                granted += 1;
            }
            assert!((limit..=limit + limit / 50).contains(&granted), "{case}: {granted} of {limit}");
        }
    }
}

/// The hits of sub-windows that are over stay: no call of a store takes them back.
#[tokio::test(start_paused = true)]
async fn a_sliding_window_that_is_not_cleared_as_a_whole_is_said() {
    let fleet = Fleet::new(1, &StoreSettings { lease: Duration::ZERO, ..settings() });
    assert!(fleet.ask(0, "sliding", 40).await);
    fleet.pass(Duration::from_secs(20)).await;
    assert!(fleet.ask(0, "sliding", 30).await);
    let why = fleet.clear(0, "sliding").await.unwrap_err();
    assert!(why.starts_with("the hits of the present sub-window are cleared alone: 40 are left"), "{why}");
    assert_eq!(fleet.status(0, "sliding", 0, false).await.limit_remaining, 60);
}

/// Another replica knows its refusal until the window ends, unless it is told as well. That of a
/// bucket lasts for a second.
#[tokio::test(start_paused = true)]
async fn another_replica_learns_it_by_the_store_or_by_a_call_of_its_own() {
    let fleet = Fleet::new(2, &settings());
    for key in ["minute", "bucket"] {
        for replica in 0..2 {
            while fleet.ask(replica, key, 1).await {}
        }
        fleet.clear(0, key).await.unwrap();
        let is_known = key == "minute";
        if !is_known {
            fleet.pass(Duration::from_secs(1)).await;
        }
        assert_eq!(fleet.ask(1, key, 1).await, !is_known, "{key}");
        fleet.clear(1, key).await.unwrap();
        assert!(fleet.ask(1, key, 1).await, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn hits_that_the_store_was_not_told_are_cleared_and_an_outage_is_said() {
    let fleet = Fleet::new(1, &settings());
    fleet.ask(0, "minute", 1).await;
    fleet.store.fails.store(true, SeqCst);
    for _ in 0..20 {
        assert!(fleet.ask(0, "minute", 1).await);
        fleet.pass(20 * MILLI).await;
    }
    assert!(fleet.clear(0, "minute").await.unwrap_err().starts_with("the store does not answer"));
    fleet.store.fails.store(false, SeqCst);
    while fleet.replicas[0].shared.is_away() {
        fleet.pass(20 * MILLI).await;
    }
    fleet.clear(0, "minute").await.unwrap();
    fleet.pass(Duration::from_secs(1)).await;
    assert_eq!(fleet.status(0, "minute", 0, false).await.limit_remaining, 100);
}
