//! Connections of one address.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::PATIENCE;
use super::process::{Client, Message, Proxy, url};
use super::watched::{
    GET, answering, assert_counts, await_count, connect_from, is_closed, over, upgrading, websocket,
};

const HERE: [u8; 4] = [127, 0, 0, 1];
const ELSEWHERE: [u8; 4] = [127, 0, 0, 2];

/// Opens a connection, and checks that it is served.
fn served(proxy: &Proxy, from: [u8; 4]) -> Client {
    let mut client = connect_from(from, proxy.address);
    assert_eq!(client.send(GET).status, 200);
    client
}

/// Opens connections until one is served: a place comes back some time after its connection has
/// ended.
fn served_at_last(proxy: &Proxy, from: [u8; 4]) -> Client {
    let begin = Instant::now();
    loop {
        let mut client = connect_from(from, proxy.address);
        // The proxy may have closed the connection.
        let _ = client.0.get_ref().write_all(GET.as_bytes());
        if Message::read_head(&mut client.0).is_some_and(|head| head.status == 200) {
            return client;
        }
        assert!(begin.elapsed() < PATIENCE, "no connection is taken any more");
    }
}

#[test]
fn an_address_has_as_many_as_it_may_and_another_has_its_own() {
    let proxy = over(answering().0, "--connections-per-address 3");
    let mut clients = Vec::from([HERE; 3].map(|from| served(&proxy, from)));
    assert!(is_closed(&mut connect_from(HERE, proxy.address)), "the fourth");
    assert_counts(&proxy, &[("connections_refused", 1)]);
    let _others = [ELSEWHERE; 3].map(|from| served(&proxy, from));
    assert!(is_closed(&mut connect_from(ELSEWHERE, proxy.address)));

    clients.pop();
    let _again = served_at_last(&proxy, HERE);
    assert!(is_closed(&mut connect_from(HERE, proxy.address)));
    // The connections that were accepted first are still served.
    clients.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
}

#[test]
fn a_trusted_network_has_no_such_bound() {
    let proxy = over(answering().0, "--connections-per-address 3 --trust-proxy 127.0.0.2/32");
    let _trusted: Vec<Client> = (0..10).map(|_| served(&proxy, ELSEWHERE)).collect();
    let _others = [HERE; 3].map(|from| served(&proxy, from));
    assert!(is_closed(&mut connect_from(HERE, proxy.address)));
    assert_counts(&proxy, &[("connections_refused", 1)]);
}

/// Behind a PROXY header, the address is the one in the header.
#[test]
fn the_clients_behind_a_proxy_header_are_told_apart() {
    let options = "--connections-per-address 3 --trust-proxy 127.0.0.1 --proxy-protocol";
    let proxy = over(answering().0, options);
    let connect = |source: &str| {
        let mut client = proxy.connect();
        client.write(&format!("PROXY TCP4 {source} 127.0.0.1 1 80\r\n{GET}"));
        client
    };
    let clients: Vec<Client> = (0..6)
        .map(|number| {
            let mut client = connect(["203.0.113.1", "203.0.113.2"][number % 2]);
            assert_eq!(client.read().status, 200);
            client
        })
        .collect();
    assert!(is_closed(&mut connect("203.0.113.1")));
    assert_counts(&proxy, &[("connections_refused", 1)]);
    drop(clients);
}

/// An upgraded connection still counts as a connection.
#[test]
fn a_websocket_is_a_connection() {
    let proxy = over(upgrading(), "--connections-per-address 3");
    let sockets = [(); 3].map(|()| websocket(&proxy));
    assert!(is_closed(&mut proxy.connect()), "the fourth");
    assert_counts(&proxy, &[("connections_refused", 1), ("requests_under_way", 3), ("upgrades", 3)]);
    drop(sockets);
    await_count(&proxy, "requests_under_way", 0);
    served_at_last(&proxy, HERE);
}

/// A proxy whose limit on open files leaves room for 63 connections.
struct Small {
    child: Child,
    address: SocketAddr,
}

impl Small {
    fn start(options: &str) -> Small {
        let upstream = url(answering().0);
        let script = format!(
            "ulimit -n 100 && exec \"$0\" proxy --listen 127.0.0.1:0 --limit none --upstream {upstream} {options}"
        );
        let mut sh = Command::new("sh");
        let child = sh.args(["-c", &script, env!("CARGO_BIN_EXE_tollgate")]);
        let child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("text");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        Small { child, address: address.unwrap_or_else(|| panic!("no address in {line:?}")) }
    }

    /// Opens a connection and asks, and returns the status of the answer.
    fn ask(&self, from: [u8; 4]) -> (Option<u16>, Client) {
        let mut client = connect_from(from, self.address);
        let _ = client.0.get_ref().write_all(GET.as_bytes());
        let status = Message::read_head(&mut client.0).map(|head| head.status);
        if status.is_some() {
            client.0.read_exact(&mut [0; 2]).expect("the body is `ok`");
        }
        (status, client)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // The call fails only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Each of five addresses opens connections until it is refused, and asks nothing on them.
#[test]
fn a_few_addresses_leave_some_of_all_connections_to_others() {
    let proxy = Small::start("");
    let mut silent = Vec::new();
    for last in 1..=5 {
        let open = || -> Option<Client> {
            let (status, client) = proxy.ask([127, 0, 0, last]);
            status.map(|_| client)
        };
        let before = silent.len();
        silent.extend(std::iter::from_fn(open).take(100));
        assert!(silent.len() - before < 45, "{} of 127.0.0.{last}", silent.len() - before);
        // An address of its own each time: the proxy may not have seen yet that the last connection
        // is closed, and an address has one place while all are taken.
        assert_eq!(proxy.ask([127, 0, 1, last]).0, Some(200), "beside {} silent ones", silent.len());
    }
}

/// The network of a trusted proxy has no share of its own, so it takes all.
#[test]
fn a_newcomer_takes_the_place_of_the_connection_that_was_idle_for_longest() {
    let proxy = Small::start("--trust-proxy 127.0.0.1");
    let mut silent: Vec<Client> = (0..200).map(|_| proxy.ask(HERE).1).collect();
    assert_eq!(proxy.ask(ELSEWHERE).0, Some(200));
    let open: Vec<bool> = silent
        .iter_mut()
        .map(|client| {
            client.0.get_ref().set_nonblocking(true).expect("it is open");
            client.0.fill_buf().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        })
        .collect();
    let closed = open.iter().filter(|open| !**open).count();
    assert_eq!(closed, 200 - 63 + 1);
    assert!(open[..closed].iter().all(|open| !open), "the first are closed: {open:?}");
}
