//! Signals to stop the proxy.

use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;

use crate::support::{Connection, GET, OK, PATIENCE, Proxy};

#[test]
fn a_signal_drains() {
    for signal in ["-TERM", "-INT"] {
        let (upstream, proxy) = Proxy::held("");
        let mut client = proxy.write(GET);
        let held = upstream.next();
        proxy.signal(signal);
        proxy.line_with("draining");
        assert!(TcpStream::connect(proxy.address).is_err(), "a new client is not taken");
        held.answer(OK);
        let reply = client.read();
        assert_eq!((reply.status, &*reply.body), (200, "ok"));
        assert_eq!(proxy.exit_code(), Some(0));
    }
}

/// Some requests wait at a slow upstream. Others are on their way, over connections that the proxy
/// may not have accepted yet.
#[test]
fn all_who_have_asked_are_answered_after_sigterm() {
    const UNDER_WAY: usize = 40;
    let (upstream, proxy) = Proxy::held("");
    let mut clients: Vec<Connection> = (0..UNDER_WAY).map(|_| proxy.write(GET)).collect();
    let held: Vec<_> = (0..UNDER_WAY).map(|_| upstream.next()).collect();
    clients.extend((0..UNDER_WAY).map(|_| proxy.write(GET)));
    proxy.signal("-TERM");
    proxy.line_with("draining");
    held.into_iter().for_each(|held| held.answer(OK));
    (0..UNDER_WAY).for_each(|_| upstream.next().answer(OK));
    for mut client in clients {
        let reply = client.read();
        assert_eq!((reply.status, &*reply.body, reply.header("connection")), (200, "ok", Some("close")));
        client.assert_closed();
    }
    assert_eq!(proxy.exit_code(), Some(0));
}

/// Clients send requests without a pause, over connections that are kept alive.
#[test]
fn no_connection_is_reset_by_sigterm_under_load() {
    let proxy = Proxy::start("--limit 1000000/s");
    let (warm, is_warm) = mpsc::channel();
    let ask = |mut client: Connection, warm: mpsc::Sender<()>| {
        for request in 1.. {
            let reply = client.get("/");
            assert_eq!(reply.status, 200);
            if reply.header("connection") == Some("close") {
                client.assert_closed();
                return request;
            }
            if request == 50 {
                warm.send(()).expect("the test is still there");
            }
        }
        unreachable!("there are requests enough")
    };
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let (client, warm) = (proxy.connect(), warm.clone());
            thread::spawn(move || ask(client, warm))
        })
        .collect();
    for _ in &clients {
        is_warm.recv_timeout(PATIENCE).expect("they are served");
    }
    proxy.signal("-TERM");
    for client in clients {
        assert!(client.join().expect("all its requests were answered") > 50);
    }
    assert_eq!(proxy.exit_code(), Some(0));
}
