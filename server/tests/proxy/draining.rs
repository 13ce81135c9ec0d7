//! Signals to stop the proxy.

use std::io::Read;
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;

use super::process::{Client, Message, Proxy, upstream, url, write};
use super::{NO_LIMIT, PATIENCE};

#[test]
fn a_signal_drains() {
    for signal in ["-TERM", "-INT"] {
        let (asked, is_asked) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = std::sync::Mutex::new(may_go_on);
        let upstream = upstream(move |mut connection| {
            Message::read_head(&mut connection);
            asked.send(()).expect("the test is still there");
            may_go_on.lock().expect("one connection").recv_timeout(PATIENCE).expect("the proxy drains");
            write(&connection, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
        });
        let mut proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url(upstream)]);
        let mut client = proxy.connect();
        client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        is_asked.recv_timeout(PATIENCE).expect("the request is under way");

        proxy.signal(signal);
        proxy.line_with("draining");
        assert!(TcpStream::connect(proxy.address).is_err(), "a new client is not taken");
        go_on.send(()).expect("the upstream waits");
        let reply = client.read();
        assert_eq!((reply.status, &*reply.body), (200, "done"));
        assert_eq!(proxy.exit_code(), Some(0));
    }
}

/// Checks that the connection ends without another byte. A reset would be an error.
fn assert_closed(mut client: Client) {
    assert_eq!(client.0.read(&mut [0]).map_err(|error| error.kind()), Ok(0));
}

/// Some requests wait at a slow upstream. Others are on their way, over connections that the proxy
/// may not have accepted yet.
#[test]
fn all_who_have_asked_are_answered_after_sigterm() {
    const UNDER_WAY: usize = 40;
    let (asked, is_asked) = mpsc::channel();
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let upstream = {
        let gate = gate.clone();
        upstream(move |mut connection| {
            while Message::read_head(&mut connection).is_some() {
                let _ = asked.send(());
                let closed = gate.0.lock().expect("nothing panics under it");
                drop(gate.1.wait_while(closed, |open| !*open).expect("nothing panics under it"));
                write(&connection, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
            }
        })
    };
    let mut proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url(upstream)]);
    let ask = |_| {
        let mut client = proxy.connect();
        client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client
    };
    let mut clients: Vec<Client> = (0..UNDER_WAY).map(ask).collect();
    for _ in 0..UNDER_WAY {
        is_asked.recv_timeout(PATIENCE).expect("they are under way");
    }
    clients.extend((0..UNDER_WAY).map(ask));
    proxy.signal("-TERM");
    proxy.line_with("draining");
    *gate.0.lock().expect("nothing panics under it") = true;
    gate.1.notify_all();
    for mut client in clients {
        let reply = client.read();
        assert_eq!((reply.status, &*reply.body, reply.header("connection")), (200, "done", Some("close")));
        assert_closed(client);
    }
    assert_eq!(proxy.exit_code(), Some(0));
}

/// Clients send requests without a pause, over connections that are kept alive.
#[test]
fn no_connection_is_reset_by_sigterm_under_load() {
    let mut proxy = Proxy::start(&["--limit", NO_LIMIT]);
    let (warm, is_warm) = mpsc::channel();
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let (mut client, warm) = (proxy.connect(), warm.clone());
            thread::spawn(move || {
                for request in 1.. {
                    let reply = client.get("/");
                    assert_eq!(reply.status, 200);
                    if reply.header("connection") == Some("close") {
                        assert_closed(client);
                        return request;
                    }
                    if request == 50 {
                        warm.send(()).expect("the test is still there");
                    }
                }
                unreachable!("there are requests enough")
            })
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
