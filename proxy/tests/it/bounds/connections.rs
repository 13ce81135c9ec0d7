//! Connections of one address.

use std::io::ErrorKind;
use std::process::Command;

use super::upstreams::{answering, upgrading, websocket};
use crate::support::{Connection, GET, PROGRAM, Proxy, until};

const HERE: [u8; 4] = [127, 0, 0, 1];
const ELSEWHERE: [u8; 4] = [127, 0, 0, 2];

/// Opens a connection, and checks that it is served.
fn served(proxy: &Proxy, from: [u8; 4]) -> Connection {
    let mut client = proxy.connect_from(from);
    assert_eq!(client.send(GET).status, 200);
    client
}

/// Opens a connection and asks, and returns the status of the answer. The proxy may close the
/// connection.
fn ask(proxy: &Proxy, from: [u8; 4]) -> (Option<u16>, Connection) {
    let mut client = proxy.connect_from(from);
    let _ = client.try_write(GET);
    let reply = client.reply("GET").expect("a response or the end");
    (reply.map(|(reply, _)| reply.status), client)
}

/// Opens connections until one is served: a place comes back some time after its connection has
/// ended.
fn served_at_last(proxy: &Proxy, from: [u8; 4]) -> Connection {
    let mut served = None;
    until("taken any more", || {
        let (status, client) = ask(proxy, from);
        served = (status == Some(200)).then_some(client);
        served.is_some()
    });
    served.expect("it is")
}

#[test]
fn an_address_has_as_many_as_it_may_and_another_has_its_own() {
    let (_, proxy) = Proxy::answered("--connections-per-address 3");
    let mut clients = Vec::from([HERE; 3].map(|from| served(&proxy, from)));
    assert!(proxy.connect_from(HERE).is_closed(), "the fourth");
    proxy.assert_counts(&[("connections_refused", 1)]);
    let _others = [ELSEWHERE; 3].map(|from| served(&proxy, from));
    assert!(proxy.connect_from(ELSEWHERE).is_closed());

    clients.pop();
    let _again = served_at_last(&proxy, HERE);
    assert!(proxy.connect_from(HERE).is_closed());
    // The connections that were accepted first are still served.
    clients.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
}

#[test]
fn a_trusted_network_has_no_such_bound() {
    let (_, proxy) = Proxy::answered("--connections-per-address 3 --trust-proxy 127.0.0.2/32");
    let _trusted: Vec<Connection> = (0..10).map(|_| served(&proxy, ELSEWHERE)).collect();
    let _others = [HERE; 3].map(|from| served(&proxy, from));
    assert!(proxy.connect_from(HERE).is_closed());
    proxy.assert_counts(&[("connections_refused", 1)]);
}

/// Behind a PROXY header, the address is the one in the header.
#[test]
fn the_clients_behind_a_proxy_header_are_told_apart() {
    let options = "--connections-per-address 3 --trust-proxy 127.0.0.1 --proxy-protocol";
    let (_, proxy) = Proxy::answered(options);
    let connect = |source: &str| proxy.write(&format!("PROXY TCP4 {source} 127.0.0.1 1 80\r\n{GET}"));
    let clients: Vec<Connection> = (0..6)
        .map(|number| {
            let mut client = connect(["203.0.113.1", "203.0.113.2"][number % 2]);
            assert_eq!(client.read().status, 200);
            client
        })
        .collect();
    assert!(connect("203.0.113.1").is_closed());
    proxy.assert_counts(&[("connections_refused", 1)]);
    drop(clients);
}

/// An upgraded connection still counts as a connection.
#[test]
fn a_websocket_is_a_connection() {
    let proxy = Proxy::over(&upgrading(), "--connections-per-address 3");
    let sockets = [(); 3].map(|()| websocket(&proxy));
    assert!(proxy.connect().is_closed(), "the fourth");
    proxy.assert_counts(&[("connections_refused", 1), ("requests_under_way", 3), ("upgrades", 3)]);
    drop(sockets);
    proxy.await_under_way(0);
    served_at_last(&proxy, HERE);
}

/// Starts a proxy whose limit on open files leaves room for 63 connections.
fn small(options: &str) -> Proxy {
    let fixed = "--listen 127.0.0.1:0 --limit none --upstream";
    let script = format!("ulimit -n 100 && exec \"$0\" {fixed} {} {options}", answering());
    Proxy::of(Command::new("sh").args(["-c", &script, PROGRAM]))
}

/// Each of five addresses opens connections until it is refused, and asks nothing on them.
#[test]
fn a_few_addresses_leave_some_of_all_connections_to_others() {
    let proxy = small("");
    let mut silent = Vec::new();
    for last in 1..=5 {
        let open = || -> Option<Connection> {
            let (status, client) = ask(&proxy, [127, 0, 0, last]);
            status.map(|_| client)
        };
        let before = silent.len();
        silent.extend(std::iter::from_fn(open).take(100));
        assert!(silent.len() - before < 45, "{} of 127.0.0.{last}", silent.len() - before);
        // An address of its own each time: the proxy may not have seen yet that the last connection
        // is closed, and an address has one place while all are taken.
        assert_eq!(ask(&proxy, [127, 0, 1, last]).0, Some(200), "beside {} silent ones", silent.len());
    }
}

/// The network of a trusted proxy has no share of its own, so it takes all.
#[test]
fn a_newcomer_takes_the_place_of_the_connection_that_was_idle_for_longest() {
    let proxy = small("--trust-proxy 127.0.0.1");
    let mut silent: Vec<Connection> = (0..200).map(|_| ask(&proxy, HERE).1).collect();
    assert_eq!(ask(&proxy, ELSEWHERE).0, Some(200));
    let open: Vec<bool> = silent
        .iter_mut()
        .map(|client| {
            client.stream.set_nonblocking(true).expect("it is open");
            client.stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        })
        .collect();
    let closed = open.iter().filter(|open| !**open).count();
    assert_eq!(closed, 200 - 63 + 1);
    assert!(open[..closed].iter().all(|open| !open), "the first are closed: {open:?}");
}
