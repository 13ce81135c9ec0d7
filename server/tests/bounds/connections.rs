//! Connections of one address.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::PATIENCE;
use super::process::{Client, Message, Proxy};
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

/// One address cannot take all connections, however few there may be in all.
#[test]
fn an_address_leaves_some_of_all_connections_to_others() {
    let script = "ulimit -n 100 && exec \"$0\" proxy --listen 127.0.0.1:0 --limit none";
    let mut sh = Command::new("sh");
    let child =
        sh.args(["-c", script, env!("CARGO_BIN_EXE_tollgate")]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = child.spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("text");
    let address = line.split("http://").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    let address = address.unwrap_or_else(|| panic!("no address in {line:?}"));
    let connect = |from| {
        let mut client = connect_from(from, address);
        let _ = client.0.get_ref().write_all(GET.as_bytes());
        let status = Message::read_head(&mut client.0).map(|head| head.status);
        (status, client)
    };
    let mut taken = Vec::new();
    let (mut status, mut client) = connect(HERE);
    while status.is_some() && taken.len() < 100 {
        taken.push(client);
        (status, client) = connect(HERE);
    }
    assert!((50..100).contains(&taken.len()), "{} connections", taken.len());
    // The connection is refused at once. It does not wait for a place that is left to others.
    assert!(is_closed(&mut client));
    assert_eq!(connect(ELSEWHERE).0, Some(200));
    // The call fails only if the process has already ended.
    let _ = child.kill();
    let _ = child.wait();
}
