//! Servers of SQL start, end, and come back with their data.

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use tollgate_test_servers::mariadb::{MariaDb, mariadb_is_installed};
use tollgate_test_servers::postgres::{Postgres, postgres_is_installed};
use tollgate_test_servers::program::wait_until;

fn answers(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// A process of a killed server may hold its port for a moment longer.
fn is_gone(port: u16) -> bool {
    wait_until(Duration::from_secs(10), || !answers(port))
}

#[test]
fn a_server_of_postgres_takes_connections_until_it_is_dropped() {
    if !postgres_is_installed() {
        return;
    }
    let mut server = Postgres::start(&["-c", "max_connections=20"]).unwrap();
    let port = server.port();
    assert!(answers(port));
    server.process().kill();
    assert!(is_gone(port));
    server.restart().unwrap();
    assert!(answers(port));
    let process = server.process().id();
    drop(server);
    assert!(is_gone(port) && !Path::new(&format!("/proc/{process}")).exists());
}

#[test]
fn a_server_of_mariadb_takes_connections_until_it_is_dropped() {
    if !mariadb_is_installed() {
        return;
    }
    let mut server = MariaDb::start(&["--max-connections=20"]).unwrap();
    let port = server.port();
    assert!(answers(port));
    server.process().kill();
    assert!(is_gone(port));
    server.restart().unwrap();
    assert!(answers(port));
    drop(server);
    assert!(is_gone(port));
}

#[test]
fn a_server_that_does_not_start_tells_the_reason() {
    if !postgres_is_installed() {
        return;
    }
    let error = Postgres::start(&["-c", "no_such_setting=1"]).unwrap_err();
    assert!(error.to_string().contains("no_such_setting"), "{error}");
}
