//! The law under the settings of a server, of a session and of a pool.

use mysql_async::Pool;
use mysql_async::prelude::Queryable;
use tollgate_distributed::{MySqlOptions, MySqlStore};

use super::engine::MySql;
use crate::engine::Engine;
use crate::suite::walk;

/// A session sets its own mode and time zone, and no statement depends on the order of assignments.
#[tokio::test]
async fn a_server_with_other_modes_keeps_the_law() {
    let modes = "--sql-mode=ORACLE,SIMULTANEOUS_ASSIGNMENT,NO_UNSIGNED_SUBTRACTION,TIME_ROUND_FRACTIONAL";
    let arguments = [modes, "--default-time-zone=-07:30", "--transaction-isolation=SERIALIZABLE"];
    let Some(mut server) = MySql::start_with(&arguments).await else { return };
    let store = MySqlStore::connect(&server.server.url()).unwrap();
    walk::walk(&mut server, &store, 3_000).await;
}

/// The settings that a program gives its connections, or a server all sessions.
#[tokio::test]
async fn a_session_with_other_settings_keeps_the_law() {
    let Some(mut server) = MySql::start().await else { return };
    let settings = "SET time_zone = '+05:45', timestamp = 1000000, autocommit = 0, sql_safe_updates = 1,
        tx_isolation = 'SERIALIZABLE', sql_select_limit = 0, completion_type = 'RELEASE',
        sql_mode = 'ORACLE,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES', div_precision_increment = 0,
        check_constraint_checks = 0, character_set_connection = latin1";
    let store = MySqlStore::connect_with(server.opts().init(vec![settings]), MySqlOptions::default());
    walk::walk(&mut server, &store, 3_000).await;
}

#[tokio::test]
async fn connections_of_a_pool_keep_the_law() {
    let Some(mut server) = MySql::start().await else { return };
    let pool = Pool::new(server.opts());
    let store = MySqlStore::with_pool(pool.clone());
    walk::walk(&mut server, &store, 3_000).await;
    pool.get_conn().await.unwrap().query_drop("SELECT 1").await.unwrap();
}
