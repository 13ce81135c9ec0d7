//! The laws of all SQL stores.

use std::sync::Arc;
use std::time::Duration;

use crate::sql::world::{Stored, World, setting};
use crate::sql::{bound, clean, intervals, keys, measure, skew, walk};
use crate::world::{File, Intervals};
use tollgate_distributed::SqliteStore;

/// A usual row.
const ROW: Stored = Stored {
    credits: 90_000_000,
    last_us: 1_800_000_000_000_000,
    unit: 1_000_000,
    full_us: 1_800_000_200_000_000,
};

#[tokio::test]
async fn each_step_and_each_row_is_the_step_of_the_law() {
    walk::walk(&mut File::open(), setting("TOLLGATE_STEPS", 100_000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_token_is_lost_or_made_under_load() {
    let file = File::open();
    let stores: Vec<_> = (0..4).map(|_| Arc::new(SqliteStore::open(&file.path).unwrap())).collect();
    let time = Duration::from_secs(setting("TOLLGATE_SECONDS", 2));
    let mut run = bound::begin(&file.store, b"hot").await;
    run.add(bound::load(&stores, 64, b"hot", time).await);
    assert_eq!(run.failed, 0);
    bound::no_token_is_lost_or_made(&file.store, b"hot", &run).await;
    println!("{} calls, {} granted, in {time:?}", run.calls, run.granted());
}

#[tokio::test]
async fn a_step_back_of_the_clock_mints_nothing_and_stalls_a_second() {
    skew::a_step_back_mints_nothing_and_stalls_a_second(&mut File::open()).await;
}

#[tokio::test]
async fn a_clean_up_deletes_only_rows_that_decide_nothing() {
    let clean_up = async |store: &SqliteStore, time| store.clean_up(time).await.unwrap();
    clean::only_rows_that_decide_nothing_are_deleted(&mut File::open(), clean_up).await;
}

#[tokio::test]
async fn tokens_at_intervals_keep_the_law() {
    intervals::the_law_of_intervals(&mut Intervals::open().await).await;
}

#[tokio::test]
async fn twice_the_capacity_is_granted_in_the_time_of_an_interval() {
    intervals::twice_the_capacity_in_the_time_of_an_interval(&mut Intervals::open().await).await;
}

#[tokio::test]
async fn ids_with_different_bytes_have_different_buckets() {
    let mut table = Intervals::open().await;
    intervals::ids_with_different_bytes_have_different_buckets(&mut table).await;
}

#[tokio::test]
async fn each_key_has_its_own_bucket() {
    let file = File::open();
    keys::each_key_has_its_own_bucket(file.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn figures() {
    let mut file = File::open();
    measure::measure(&[Arc::new(SqliteStore::open(&file.path).unwrap())]).await;
    println!("in memory");
    measure::measure(&[Arc::new(SqliteStore::in_memory().unwrap())]).await;
    let rows = (0..100_000).map(|row| (format!("user:{row:07}").into_bytes(), ROW)).collect();
    let path = file.path.clone();
    let size = || std::fs::metadata(&path).unwrap().len();
    file.other
        .execute_batch("DELETE FROM tollgate_buckets; VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    let empty = size();
    file.put(&rows).await;
    file.other.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    println!("{} bytes a row with a key of 12 bytes", (size() - empty) / 100_000);
}
