//! The buckets at intervals: ids, and the settings of the sessions that call the procedure.

use mysql_async::prelude::Queryable;
use tollgate_test_servers::mariadb::MariaDb;

use super::engine::{Intervals, client, literal};
use crate::engine::now_us;
use crate::suite::intervals::{Interval, Table, drain, full};

const PROCEDURE: &str = include_str!("../../../migrations/mysql/request_token.sql");

/// The table of the first versions, in which ids were compared with padding.
const PADDED: &str = "CREATE TABLE token_buckets (
    id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    available INT NOT NULL, capacity INT NOT NULL, refill_seconds INT NOT NULL, last_refill_at DATETIME(6) NOT NULL)";

/// README has the statements for such a table.
const README: &str = include_str!("../../../README.md");

#[tokio::test]
async fn a_table_with_padding_shares_no_bucket_and_is_altered_in_place() {
    let Some(mut table) = Intervals::start().await else { return };
    table.other.query_drop(format!("DROP TABLE token_buckets; {PADDED}")).await.unwrap();
    table.put("acme", full(4)).await;
    assert_eq!(drain(&table, "acme  ").await, 0);
    let statements = README.split("```").find(|block| block.contains("ALTER TABLE token_buckets")).unwrap();
    let statements = statements.trim_start_matches("sql");
    table.other.query_drop(statements).await.unwrap();
    table.requester().migrate().await.unwrap();
    table.put("acme  ", full(2)).await;
    assert_eq!((drain(&table, "acme  ").await, drain(&table, "acme").await), (2, 4));
}

/// A database of any collation, and a procedure that was created in any mode.
#[tokio::test]
async fn the_collation_of_the_database_and_the_mode_of_the_creation_change_nothing() {
    let Some(mut table) = Intervals::start().await else { return };
    let long = "x".repeat(255);
    for collation in ["utf8mb4_bin", "utf8mb4_nopad_bin", "utf8mb4_unicode_ci", "latin1_swedish_ci"] {
        let create = format!("ALTER DATABASE tests COLLATE {collation}; DROP PROCEDURE request_token");
        table.other.query_drop(create).await.unwrap();
        let mut other = client(&table.server).await;
        other.query_drop("SET sql_mode = 'SIMULTANEOUS_ASSIGNMENT,PIPES_AS_CONCAT'").await.unwrap();
        other.query_drop(PROCEDURE).await.unwrap();
        for id in ["acme", "\u{e9}", long.as_str()] {
            table.put(id, full(2)).await;
            assert_eq!(drain(&table, &format!("{id} ")).await, 0, "{collation}");
            assert_eq!(drain(&table, id).await, 2, "{collation}");
        }
    }
}

/// A session of an application calls the procedure. The row is then that of the law, so no later
/// call of another session waits.
#[tokio::test]
async fn no_setting_of_a_session_changes_a_decision() {
    let Some(mut table) = Intervals::start().await else { return };
    let settings = [
        "time_zone = '+02:00'",
        "time_zone = '-11:30'",
        "time_zone = '+13:00', timestamp = 1000000",
        "timestamp = 2000000000",
        "sql_mode = ''",
        "sql_mode = 'ORACLE,PAD_CHAR_TO_FULL_LENGTH,TIME_ROUND_FRACTIONAL,SIMULTANEOUS_ASSIGNMENT'",
        "tx_isolation = 'SERIALIZABLE'",
        "sql_safe_updates = 1",
        "sql_select_limit = 0",
        "NAMES latin1 COLLATE latin1_german2_ci",
        "collation_connection = utf8mb4_bin",
        "div_precision_increment = 0, old_mode = 'NO_DUP_KEY_WARNINGS_WITH_IGNORE'",
    ];
    for setting in settings {
        let mut session = session(&table.server, setting).await;
        // Three intervals and a half since the refill, then half of one, then a refill to come.
        for tenths in [35, 5, -5] {
            let last_us = now_us() as i64 - tenths * 100_000_000;
            let before = Interval { available: 1, capacity: 3, refill_seconds: 1_000, last_us };
            table.put("k\u{e9}y", before).await;
            let mut law = before;
            let mut model = || i64::from(law.take(now_us() as i64));
            let expected = [model(), model(), model(), model()];
            for granted in expected {
                let call = format!("CALL request_token(_utf8mb4 {})", literal("k\u{e9}y".as_bytes()));
                let answer: Option<i64> = session.query_first(call).await.unwrap();
                assert_eq!(answer, Some(granted), "{setting}, {tenths} tenths");
            }
            assert_eq!(table.row("k\u{e9}y").await, law, "{setting}, {tenths} tenths");
        }
    }
}

async fn session(server: &MariaDb, setting: &str) -> mysql_async::Conn {
    let opts = mysql_async::Opts::from_url(&server.url()).unwrap();
    let opts = mysql_async::OptsBuilder::from_opts(opts).client_found_rows(true);
    let mut session = mysql_async::Conn::new(opts).await.unwrap();
    session.query_drop(format!("SET {setting}")).await.unwrap();
    session
}
