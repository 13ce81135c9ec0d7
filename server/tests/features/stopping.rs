//! Signals, health, and exit codes.

use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::process::{Message, Proxy, read_line, tollgate, upstream, url, write};
use super::support::{Certificate, Folder, Http2, block_on, spawn};
use super::websocket::{UPGRADE, echo_upstream, talk};
use super::{NO_LIMIT, PATIENCE};

/// Starts an upstream that tells of each request, and answers it when the test allows it.
fn held_upstream() -> (String, Receiver<()>, Sender<()>) {
    let (asked, is_asked) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let may_go_on = Arc::new(Mutex::new(may_go_on));
    let address = upstream(move |mut connection| {
        while Message::read_head(&mut connection).is_some() {
            let _ = asked.send(());
            let may_go_on = may_go_on.lock().expect("nothing panics under it");
            if may_go_on.recv_timeout(PATIENCE).is_err() {
                return;
            }
            write(&connection, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
        }
    });
    (url(address), is_asked, go_on)
}

const ASK: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_hangup_without_a_file_is_not_death() {
    let proxy = Proxy::start(&["--limit", "2/h burst 2"]);
    assert_eq!(proxy.connect().get("/").status, 200);
    assert_eq!(proxy.reload(), [""; 0]);
    assert_eq!([0; 2].map(|_| proxy.connect().get("/").status), [200, 429]);
}

#[test]
fn readiness_ends_with_the_signal_and_requests_do_not() {
    let mut proxy = Proxy::start(&["--limit", NO_LIMIT, "--admin", "127.0.0.1:0", "--lame-duck", "1h"]);
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
    proxy.signal("-TERM");
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn readiness_stays_ended_while_requests_are_drained() {
    let (upstream, is_asked, go_on) = held_upstream();
    let options = ["--limit", NO_LIMIT, "--upstream", &upstream, "--admin", "127.0.0.1:0", "--drain", "1h"];
    let mut proxy = Proxy::start(&options);
    let mut client = proxy.connect();
    client.write(ASK);
    is_asked.recv_timeout(PATIENCE).expect("the request is under way");
    proxy.signal("-INT");
    proxy.line_with("draining");
    assert_eq!(proxy.ask_admin("GET", "/readyz", "").status, 503);
    assert_eq!(proxy.ask_admin("GET", "/metrics", "").status, 200);
    go_on.send(()).expect("the upstream waits");
    assert_eq!(client.read().status, 200);
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn a_second_signal_ends_at_once_and_the_code_tells_of_cut_requests() {
    for lame_duck in ["0s", "1h"] {
        for (under_way, code) in [(true, 1), (false, 0)] {
            let (upstream, is_asked, _go_on) = held_upstream();
            let options = ["--limit", NO_LIMIT, "--drain", "1h", "--lame-duck", lame_duck];
            let mut proxy = Proxy::start(&[&options[..], &["--upstream", &upstream]].concat());
            let mut client = proxy.connect();
            if under_way {
                client.write(ASK);
                is_asked.recv_timeout(PATIENCE).expect("the request is under way");
            }
            proxy.signal("-INT");
            if lame_duck == "0s" {
                proxy.line_with("draining");
            } else {
                proxy.line_with("accepting");
            }
            proxy.signal("-INT");
            assert_eq!(proxy.exit_code(), Some(code), "{lame_duck} {under_way}");
        }
    }
}

#[test]
fn a_drain_that_is_too_short_is_exit_code_1() {
    let (upstream, is_asked, _go_on) = held_upstream();
    let mut proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &upstream, "--drain", "10ms"]);
    let mut client = proxy.connect();
    client.write(ASK);
    is_asked.recv_timeout(PATIENCE).expect("the request is under way");
    proxy.signal("-TERM");
    assert_eq!(proxy.exit_code(), Some(1));
}

#[test]
fn silent_connections_are_no_requests() {
    let mut proxy = Proxy::start(&["--limit", NO_LIMIT, "--drain", "1h"]);
    let _silent = proxy.connect();
    let mut kept_alive = proxy.connect();
    assert_eq!(kept_alive.get("/").status, 200);
    let http2 = Http2::connect(proxy.address);
    assert_eq!(http2.get("http://a.example/", &[]).status, 200);
    proxy.signal("-TERM");
    assert_eq!(proxy.exit_code(), Some(0));
}

/// The client of such a handshake may be a scanner that never sends a byte.
#[test]
fn a_handshake_that_does_not_begin_does_not_hold_up_the_end() {
    let (folder, certificate) = (Folder::new(), Certificate::new());
    let (chain, key) = certificate.write(&folder);
    let options = ["--limit", NO_LIMIT, "--drain", "1h", "--tls-cert", &chain, "--tls-key", &key];
    let mut proxy = Proxy::start(&options);
    let _silent = proxy.connect();
    let mut client = certificate.connect(proxy.address).expect("the proxy has this certificate");
    assert_eq!(client.get("/").status, 200);
    proxy.signal("-TERM");
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn streams_of_http2_are_answered_to_the_end() {
    let (upstream, is_asked, go_on) = held_upstream();
    let mut proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &upstream, "--drain", "1h"]);
    let client = Http2::connect(proxy.address);
    let streams = [0; 3].map(|_| {
        let stream = client.start(hyper::Method::GET, "http://a.example/", &[], "");
        spawn(stream)
    });
    is_asked.recv_timeout(PATIENCE).expect("a request is under way");
    proxy.signal("-TERM");
    proxy.line_with("draining");
    (0..3).for_each(|_| go_on.send(()).expect("the upstream waits"));
    for stream in streams {
        assert_eq!(block_on(stream).expect("no panic").expect("a response").status, 200);
    }
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn a_websocket_is_served_while_the_proxy_drains() {
    for (drain, code) in [("1h", 0), ("10ms", 1)] {
        let upstream = url(echo_upstream());
        let mut proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &upstream, "--drain", drain]);
        let mut client = proxy.connect();
        client.write(&format!("{UPGRADE}early\n"));
        talk(&mut client.0);
        proxy.signal("-TERM");
        proxy.line_with("draining");
        if code == 0 {
            client.write("still\n");
            assert_eq!(read_line(&mut client.0).as_deref(), Some("still"));
            drop(client);
        }
        assert_eq!(proxy.exit_code(), Some(code), "{drain}");
    }
}

/// A read that hangs, of a file or of a name server, must not outlive the proxy.
#[test]
fn a_file_that_cannot_be_read_to_its_end_does_not_hold_up_the_end() {
    let folder = Folder::new();
    let config = folder.write("hangs.toml", "limit = \"1/h burst 1\"\n");
    let mut proxy = Proxy::start(&["--config", &config]);
    std::fs::remove_file(&config).expect("it is there");
    assert!(Command::new("mkfifo").arg(&config).status().expect("mkfifo runs").success());
    proxy.signal("-HUP");
    assert_eq!(proxy.connect().get("/").status, 200);
    let begin = Instant::now();
    proxy.signal("-TERM");
    assert_eq!(proxy.exit_code(), Some(0));
    assert!(begin.elapsed() < PATIENCE);
}

#[test]
fn a_proxy_that_cannot_start_is_exit_code_2() {
    let folder = Folder::new();
    let config = folder.write("bad.toml", "limit = \"fast\"\n");
    assert_eq!(tollgate(&["proxy", "--config", &config]).status.code(), Some(2));
}
