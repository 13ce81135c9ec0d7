//! Requests that come back to the proxy.

use std::iter;
use std::net::{SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::support::{GET, Proxy};

/// Returns an address for a proxy that has to be known before the proxy starts.
///
/// The system gives such a port to no other test: it is below the ports that the system chooses.
fn free() -> SocketAddr {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let candidates = iter::repeat_with(|| 20_000 + (process::id() + TAKEN.fetch_add(1, Relaxed)) % 10_000);
    let addresses = candidates.map(|port| SocketAddr::from(([127, 0, 0, 1], port as u16)));
    addresses.take(100).find(|address| TcpListener::bind(address).is_ok()).expect("a free port")
}

fn on(listen: SocketAddr, upstream: &str, options: &str) -> Proxy {
    let fixed = "--limit none --admin 127.0.0.1:0";
    Proxy::on(&listen.to_string(), &format!("{fixed} --upstream {upstream} {options}"))
}

fn assert_loops(proxy: &Proxy) {
    for (count, request) in [
        (1, GET),
        (2, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"),
        (3, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
    ] {
        assert_eq!(proxy.connect().send(request).status, 508, "{request:?}");
        proxy.assert_counts(&[("request_loops", count)]);
    }
}

#[test]
fn a_proxy_that_is_its_own_upstream_is_a_508() {
    // Its own address is refused at the start, and a name is not resolved for that.
    let address = free();
    let url = format!("http://localhost:{}", address.port());
    assert_loops(&on(address, &url, "--in-flight 4 --in-flight-per-key 4"));
}

#[test]
fn two_proxies_that_are_each_others_upstream_are_a_508() {
    let (one, another) = (free(), free());
    let first = on(one, &format!("http://{another}"), "");
    let second = on(another, &format!("http://{one}"), "");
    assert_loops(&first);
    second.assert_counts(&[]);
    // Each proxy has a name of its own.
    assert_eq!(second.connect().get("/").status, 508);
    second.assert_counts(&[("request_loops", 1)]);
}

#[test]
fn only_its_own_name_in_via_is_a_loop() {
    let (_, proxy) = Proxy::answered("--via edge");
    for (via, status) in [
        ("1.1 tollgate", 200),
        ("1.1 edge-2", 200),
        ("1.1 a (edge)", 200),
        ("1.1 edge", 508),
        ("HTTP/1.1 edge (comment)", 508),
        ("1.0 a, 2.0 edge, 1.1 b", 508),
    ] {
        assert_eq!(proxy.connect().get_with("/", &format!("Via: {via}\r\n")).status, status, "{via}");
    }
    // A proxy without a name of its own accepts any name of others.
    let (_, proxy) = Proxy::answered("");
    assert_eq!(proxy.connect().get_with("/", "Via: 1.1 tollgate\r\nVia: 1.1 edge\r\n").status, 200);
    proxy.assert_counts(&[]);
}
