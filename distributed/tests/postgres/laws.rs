//! The laws of all SQL stores.

use tollgate_distributed::{PostgresOptions, PostgresStore};

use crate::sql::world::{Rows, Stored, World, setting};
use crate::sql::{clean, intervals, keys, measure, skew, walk};
use crate::world::{Intervals, Server, client, patient};

#[tokio::test]
async fn each_step_and_each_row_is_the_step_of_the_law() {
    let Some(mut server) = Server::start(patient()).await else { return };
    walk::walk(&mut server, setting("TOLLGATE_STEPS", 100_000)).await;
}

#[tokio::test]
async fn a_connection_of_the_caller_keeps_the_law() {
    let Some(mut server) = Server::start(PostgresOptions { unlogged: true, ..patient() }).await else {
        return;
    };
    server.store = PostgresStore::with_client(client(&server.server).await);
    walk::walk(&mut server, 2_000).await;
    let unlogged = "SELECT relpersistence = 'u' FROM pg_class WHERE relname = 'tollgate_buckets'";
    assert!(server.other.query_one(unlogged, &[]).await.unwrap().get::<_, bool>(0));
}

#[tokio::test]
async fn a_step_back_of_the_clock_mints_nothing_and_stalls_a_second() {
    let Some(mut server) = Server::start(patient()).await else { return };
    skew::a_step_back_mints_nothing_and_stalls_a_second(&mut server).await;
}

#[tokio::test]
async fn a_clean_up_deletes_only_rows_that_decide_nothing() {
    let Some(mut server) = Server::start(patient()).await else { return };
    let clean_up = async |store: &PostgresStore, time| store.clean_up(time).await.unwrap();
    clean::only_rows_that_decide_nothing_are_deleted(&mut server, clean_up).await;
}

#[tokio::test]
async fn tokens_at_intervals_keep_the_law() {
    let Some(mut table) = Intervals::start().await else { return };
    intervals::the_law_of_intervals(&mut table).await;
}

#[tokio::test]
async fn twice_the_capacity_is_granted_in_the_time_of_an_interval() {
    let Some(mut table) = Intervals::start().await else { return };
    intervals::twice_the_capacity_in_the_time_of_an_interval(&mut table).await;
}

#[tokio::test]
async fn ids_with_different_bytes_have_different_buckets() {
    let Some(mut table) = Intervals::start().await else { return };
    intervals::ids_with_different_bytes_have_different_buckets(&mut table).await;
}

#[tokio::test]
async fn each_key_has_its_own_bucket() {
    let Some(server) = Server::start(patient()).await else { return };
    keys::each_key_has_its_own_bucket(server.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn figures() {
    for (unlogged, synchronous_commit) in [(false, false), (true, false), (false, true)] {
        println!("unlogged {unlogged}, synchronous_commit {synchronous_commit}");
        let options = PostgresOptions { unlogged, synchronous_commit, ..patient() };
        let Some(mut server) = Server::start(options.clone()).await else { return };
        measure::measure(&[std::sync::Arc::new(crate::world::store(&server.server, options))]).await;
        server.other.batch_execute("TRUNCATE tollgate_buckets").await.unwrap();
        let rows: Rows = (0..100_000).map(|row| (format!("user:{row:07}").into_bytes(), ROW)).collect();
        server.put(&rows).await;
        let sizes = "SELECT pg_relation_size('tollgate_buckets'), pg_relation_size('tollgate_buckets_pkey')";
        let sizes = server.other.query_one(sizes, &[]).await.unwrap();
        let (rows, keys): (i64, i64) = (sizes.get(0), sizes.get(1));
        println!("{} + {} bytes a row and key with a key of 12 bytes", rows / 100_000, keys / 100_000);
    }
}

/// A usual row.
const ROW: Stored = Stored {
    credits: 90_000_000,
    last_us: 1_800_000_000_000_000,
    unit: 1_000_000,
    full_us: 1_800_000_200_000_000,
};
