//! Servers of Redis start, stop, freeze and come back, and leave nothing behind.

use std::fs;
use std::io;
use std::net::TcpStream;

use tollgate_test_servers::program::wait_until;
use tollgate_test_servers::redis::{Cluster, Data, Pair, Redis, redis_is_installed};
use tollgate_test_servers::wire::Reply;

const SECONDS: std::time::Duration = std::time::Duration::from_secs(5);

#[test]
fn a_server_comes_back_on_its_port_with_or_without_its_data() -> io::Result<()> {
    if !redis_is_installed() {
        return Ok(());
    }
    let mut server = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"])?;
    let port = server.port();
    server.command(&["SET", "key", "value"])?;
    server.process().kill();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    server.restart(Data::Kept)?;
    assert_eq!(server.command(&["GET", "key"])?.text(), "value");
    server.restart(Data::Empty)?;
    assert_eq!((server.port(), server.command(&["GET", "key"])?), (port, Reply::Nil));
    server.process().stop();
    assert!(!server.process().is_running());
    Ok(())
}

#[test]
fn a_frozen_server_answers_when_it_is_thawed() -> io::Result<()> {
    if !redis_is_installed() {
        return Ok(());
    }
    let mut server = Redis::start(&[])?;
    server.process().freeze()?;
    let state = format!("/proc/{}/stat", server.process().id());
    assert!(wait_until(SECONDS, || fs::read_to_string(&state).is_ok_and(|stat| stat.contains(") T "))));
    server.process().thaw()?;
    assert_eq!(server.command(&["PING"])?.text(), "PONG");
    Ok(())
}

#[test]
fn a_dropped_server_leaves_neither_process_nor_data() -> io::Result<()> {
    if !redis_is_installed() {
        return Ok(());
    }
    let mut server = Redis::start(&[])?;
    let folder = server.command(&["CONFIG", "GET", "dir"])?;
    let Reply::List(words) = folder else { panic!("{folder:?}") };
    let (folder, id) = (words[1].text().to_owned(), server.process().id());
    assert!(fs::exists(&folder)? && fs::exists(format!("/proc/{id}"))?);
    drop(server);
    assert!(!fs::exists(&folder)? && !fs::exists(format!("/proc/{id}"))?);
    Ok(())
}

#[test]
fn a_replica_refuses_writes_until_it_is_promoted() -> io::Result<()> {
    if !redis_is_installed() {
        return Ok(());
    }
    let pair = Pair::start(&[])?;
    let refused = pair.replica.command(&["SET", "key", "value"]).unwrap_err();
    assert!(refused.to_string().starts_with("READONLY"), "{refused}");
    pair.promote()?;
    pair.replica.command(&["SET", "key", "value"]).map(drop)
}

#[test]
fn a_cluster_moves_a_slot_with_its_keys() -> io::Result<()> {
    if !redis_is_installed() {
        return Ok(());
    }
    let cluster = Cluster::start(1, &[])?;
    // The slot of "a" is 15495, of the last third.
    cluster.nodes[2].command(&["SET", "a", "value"])?;
    assert!(cluster.nodes[0].command(&["GET", "a"]).is_err());
    cluster.migrate(15_495, 2, 0)?;
    assert_eq!(cluster.nodes[0].command(&["GET", "a"])?.text(), "value");
    Ok(())
}
