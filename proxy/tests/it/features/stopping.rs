//! Signals, health, and exit codes.

use std::process::Command;

use super::websocket::{echo_upstream, talk};
use crate::support::{Certificate, Folder, GET, Http2, OK, Proxy, Reloaded, UPGRADE, block_on, get, spawn};

#[test]
fn a_hangup_without_a_file_is_not_death() {
    let proxy = Proxy::start("--limit 2/h");
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(proxy.reload(), [""; 0]);
    assert_eq!(proxy.statuses("/"), [200, 429]);
}

#[test]
fn readiness_ends_with_the_signal_and_requests_do_not() {
    let proxy = Proxy::start("--limit none --lame-duck 1h");
    let health = |path| {
        let reply = proxy.ask_admin("GET", path, "");
        (reply.status, reply.body)
    };
    assert_eq!(health("/readyz"), (200, "ready\n".to_owned()));
    assert_eq!(health("/healthz"), (200, "ok\n".to_owned()));
    let mut client = proxy.connect();
    assert_eq!(client.get("/").status, 200);
    proxy.signal("-TERM");
    proxy.line_with("accepting for another 1h");
    assert_eq!(health("/readyz"), (503, "stopping\n".to_owned()));
    assert_eq!(health("/healthz"), (200, "ok\n".to_owned()));
    // The connections are an old one and a new one, and may stay open.
    for mut client in [client, proxy.connect()] {
        for _ in 0..2 {
            let reply = client.get("/");
            assert_eq!((reply.status, reply.header("connection")), (200, None));
        }
    }
    assert_eq!(proxy.stop("-TERM"), Some(0));
}

#[test]
fn readiness_stays_ended_while_requests_are_drained() {
    let (upstream, proxy) = Proxy::held("--drain 1h");
    let mut client = proxy.write(GET);
    let held = upstream.next();
    proxy.signal("-INT");
    proxy.line_with("draining");
    assert_eq!(proxy.ask_admin("GET", "/readyz", "").status, 503);
    assert_eq!(proxy.ask_admin("GET", "/metrics", "").status, 200);
    held.answer(OK);
    assert_eq!(client.read().status, 200);
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn a_second_signal_ends_at_once_and_the_code_tells_of_cut_requests() {
    for (lame_duck, line) in [("0s", "draining"), ("1h", "accepting")] {
        for (under_way, code) in [(true, 1), (false, 0)] {
            let (upstream, proxy) = Proxy::held(&format!("--drain 1h --lame-duck {lame_duck}"));
            let _client = proxy.write(if under_way { GET } else { "" });
            let _held = under_way.then(|| upstream.next());
            proxy.signal("-INT");
            proxy.line_with(line);
            assert_eq!(proxy.stop("-INT"), Some(code), "{lame_duck} {under_way}");
        }
    }
}

#[test]
fn a_drain_that_is_too_short_is_exit_code_1() {
    let (upstream, proxy) = Proxy::held("--drain 10ms");
    let _client = proxy.write(GET);
    let _held = upstream.next();
    assert_eq!(proxy.stop("-TERM"), Some(1));
}

#[test]
fn silent_connections_are_no_requests() {
    let proxy = Proxy::start("--limit none --drain 1h");
    let _silent = proxy.connect();
    let mut kept_alive = proxy.connect();
    assert_eq!(kept_alive.get("/").status, 200);
    let http2 = Http2::connect(proxy.address);
    assert_eq!(http2.get("/").status, 200);
    assert_eq!(proxy.stop("-TERM"), Some(0));
}

/// The client of such a handshake may be a scanner that never sends a byte.
#[test]
fn a_handshake_that_does_not_begin_does_not_hold_up_the_end() {
    let (folder, certificate) = (Folder::new(), Certificate::new());
    let proxy = Proxy::start(&format!("--limit none --drain 1h {}", certificate.options(&folder)));
    let _silent = proxy.connect();
    let mut client = certificate.connect(proxy.address).expect("the proxy has this certificate");
    assert_eq!(client.get("/").status, 200);
    assert_eq!(proxy.stop("-TERM"), Some(0));
}

#[test]
fn streams_of_http2_are_answered_to_the_end() {
    let (upstream, proxy) = Proxy::held("--drain 1h");
    let client = Http2::connect(proxy.address);
    let streams = [(); 3].map(|()| spawn(client.ask(get("/"))));
    let first = upstream.next();
    proxy.signal("-TERM");
    proxy.line_with("draining");
    first.answer(OK);
    (0..2).for_each(|_| upstream.next().answer(OK));
    for stream in streams {
        assert_eq!(block_on(stream).expect("no panic").expect("a response").status, 200);
    }
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn a_websocket_is_served_while_the_proxy_drains() {
    for (drain, code) in [("1h", 0), ("10ms", 1)] {
        let proxy = Proxy::over(&echo_upstream(), &format!("--drain {drain}"));
        let mut client = proxy.write(&format!("{UPGRADE}early\n"));
        talk(&mut client);
        proxy.signal("-TERM");
        proxy.line_with("draining");
        if code == 0 {
            client.write("still\n");
            assert_eq!(client.line().as_deref(), Some("still"));
            drop(client);
        }
        assert_eq!(proxy.exit_code(), Some(code), "{drain}");
    }
}

/// A pipe has no writer, and its open would wait for one for ever.
#[test]
fn a_pipe_in_place_of_the_file_is_refused_and_holds_up_no_later_reload() {
    let proxy = Reloaded::start("limit = \"1/h burst 1\"\n");
    std::fs::remove_file(proxy.file()).expect("it is there");
    assert!(Command::new("mkfifo").arg(proxy.file()).status().expect("mkfifo runs").success());
    let told = proxy.try_reload().expect_err("a mistake");
    assert!(told.contains("it is a named pipe, and no file; all settings stay as they were"), "{told}");
    std::fs::remove_file(proxy.file()).expect("it is there");
    let lines = proxy.read("limit = \"2/h burst 2\"\n");
    assert!(lines.iter().any(|line| line == "limit: 2/h burst 2, was 1/h burst 1"), "{lines:?}");
    assert_eq!(proxy.stop("-TERM"), Some(0));
}
