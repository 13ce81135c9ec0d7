//! The laws of all SQL stores.

use std::sync::Arc;

use mysql_async::Pool;
use mysql_async::prelude::Queryable;
use tollgate_distributed::{MySqlOptions, MySqlStore};

use crate::sql::world::{Rows, Stored, World, setting};
use crate::sql::{clean, intervals, keys, measure, skew, walk};
use crate::world::{Intervals, Server};

#[tokio::test]
async fn each_step_and_each_row_is_the_step_of_the_law() {
    let Some(mut server) = Server::start(&[], MySqlOptions::default()).await else { return };
    walk::walk(&mut server, setting("TOLLGATE_STEPS", 30_000)).await;
}

/// A session sets its own mode and time zone, and no statement depends on the order of assignments.
#[tokio::test]
async fn a_server_with_other_modes_keeps_the_law() {
    let modes = "--sql-mode=ORACLE,SIMULTANEOUS_ASSIGNMENT,NO_UNSIGNED_SUBTRACTION,TIME_ROUND_FRACTIONAL";
    let arguments = [modes, "--default-time-zone=-07:30", "--transaction-isolation=SERIALIZABLE"];
    let Some(mut server) = Server::start(&arguments, MySqlOptions::default()).await else { return };
    walk::walk(&mut server, 3_000).await;
}

/// The settings that a program gives its connections, or a server all sessions.
#[tokio::test]
async fn a_session_with_other_settings_keeps_the_law() {
    let Some(mut server) = Server::start(&[], MySqlOptions::default()).await else { return };
    let settings = "SET time_zone = '+05:45', timestamp = 1000000, autocommit = 0, sql_safe_updates = 1,
        tx_isolation = 'SERIALIZABLE', sql_select_limit = 0, completion_type = 'RELEASE',
        sql_mode = 'ORACLE,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES', div_precision_increment = 0,
        check_constraint_checks = 0, character_set_connection = latin1";
    server.store = MySqlStore::connect_with(server.opts().init(vec![settings]), MySqlOptions::default());
    walk::walk(&mut server, 3_000).await;
}

#[tokio::test]
async fn connections_of_a_pool_keep_the_law() {
    let Some(mut server) = Server::start(&[], MySqlOptions::default()).await else { return };
    let pool = Pool::new(server.opts());
    server.store = MySqlStore::with_pool(pool.clone());
    walk::walk(&mut server, 3_000).await;
    pool.get_conn().await.unwrap().query_drop("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_step_back_of_the_clock_mints_nothing_and_stalls_a_second() {
    let Some(mut server) = Server::start(&[], MySqlOptions::default()).await else { return };
    skew::a_step_back_mints_nothing_and_stalls_a_second(&mut server).await;
}

#[tokio::test]
async fn a_clean_up_deletes_only_rows_that_decide_nothing() {
    let Some(mut server) = Server::start(&[], MySqlOptions::default()).await else { return };
    let clean_up = async |store: &MySqlStore, time| store.clean_up(time).await.unwrap();
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
async fn each_key_has_its_own_bucket() {
    let Some(server) = Server::start(&[], MySqlOptions::default()).await else { return };
    keys::each_key_has_its_own_bucket(server.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn figures() {
    for flush in ["1", "2"] {
        println!("innodb_flush_log_at_trx_commit = {flush}");
        let argument = format!("--innodb-flush-log-at-trx-commit={flush}");
        let Some(mut server) = Server::start(&[&argument], MySqlOptions::default()).await else { return };
        measure::measure(&[Arc::new(crate::world::store(&server.server, MySqlOptions::default()))]).await;
        server.other.query_drop("TRUNCATE tollgate_buckets").await.unwrap();
        let rows: Rows = (0..100_000).map(|row| (format!("user:{row:07}").into_bytes(), ROW)).collect();
        server.put(&rows).await;
        let size = "SELECT FILE_SIZE FROM information_schema.INNODB_SYS_TABLESPACES
            WHERE NAME = 'tests/tollgate_buckets'";
        let size: Option<u64> = server.other.query_first(size).await.unwrap();
        println!("{} bytes a row with a key of 12 bytes", size.unwrap() / 100_000);
    }
}

/// A usual row.
const ROW: Stored = Stored {
    credits: 90_000_000,
    last_us: 1_800_000_000_000_000,
    unit: 1_000_000,
    full_us: 1_800_000_200_000_000,
};
