//! Errors of statements before and after the commit.

use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tollgate_test_servers::mariadb::{MariaDb, mariadb_is_installed};

use super::session::MySqlSession;
use super::statements::Statements;
use crate::store::error::StoreErrorKind;

#[tokio::test]
async fn an_error_behind_the_commit_has_an_unknown_effect() {
    if !mariadb_is_installed() {
        return;
    }
    let server = MariaDb::start(&[]).unwrap();
    let mut other = Conn::from_url(server.url()).await.unwrap();
    other.query_drop("CREATE TABLE t (n INT)").await.unwrap();
    let connection = Conn::from_url(server.url()).await.unwrap();
    let session = MySqlSession::set_up(connection, Duration::from_secs(3)).await.unwrap();
    let insert = "START TRANSACTION; INSERT INTO t VALUES (1)";
    for (sql, kind, stored) in [
        (format!("{insert}; SELECT wrong; COMMIT; SELECT 1"), StoreErrorKind::Permanent, 0),
        (format!("{insert}; COMMIT; SELECT wrong"), StoreErrorKind::Unknown, 1),
    ] {
        let commit = sql.split(';').position(|statement| statement.trim() == "COMMIT").unwrap();
        assert_eq!(session.ask(Statements { sql, commit }).await.unwrap_err().kind, kind);
        assert_eq!(other.query_first::<u32, _>("SELECT COUNT(*) FROM t").await.unwrap(), Some(stored));
    }
    assert_eq!(
        session.ask(Statements::of("SELECT wrong")).await.unwrap_err().kind,
        StoreErrorKind::Permanent
    );
    assert_eq!(session.ask(Statements::of("SELECT 7")).await.unwrap().len(), 1);
}
