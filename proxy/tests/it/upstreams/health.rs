//! Upstreams that are down, and come back.

use std::io;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::support::{Down, OK, PATIENCE, Proxy, Reloaded, Upstream, refusing, serve, until};

fn series(url: &str) -> String {
    format!("tollgate_upstream_up{{name=\"{url}\"}}")
}

/// Asks until an upstream is up or down.
fn until_it_is(proxy: &Proxy, url: &str, up: u64) {
    until("the state of the upstream", || {
        assert_eq!(proxy.get("/").status, 200);
        proxy.metric(&series(url)) == up
    });
}

#[test]
fn an_upstream_that_is_down_is_logged_once_and_asked_again() {
    let (socket, answering) = (Down::bound(), Upstream::answering(OK));
    let (down, up) = (socket.url.clone(), answering.url());
    let proxy = Proxy::over_all(&[&down, &up], "");
    for _ in 0..50 {
        assert_eq!(proxy.get("/").status, 200);
    }
    proxy.await_metric(&series(&down), 0);
    proxy.await_metric(&series(&up), 1);
    assert!(proxy.count("upstream_retries") <= 3, "few requests ask it");
    let event = proxy.event();
    assert_eq!(event["down"], serde_json::json!([down]), "{event}");

    socket.listen(|mut connection| {
        while connection.request().is_some() {
            connection.write(OK);
        }
    });
    until_it_is(&proxy, &down, 1);
    let lines = proxy.last_words();
    let [gone, back] = &lines[..] else { panic!("{lines:?}") };
    assert!(gone.contains("ERROR the upstream is down") && gone.contains("refused"), "{gone}");
    assert!(back.contains("INFO the upstream answers again"), "{back}");
}

#[test]
fn the_upstream_that_is_due_first_is_asked_if_all_are_down() {
    let urls = [(); 2].map(|()| refusing());
    let proxy = Proxy::over_all(&[&urls[0], &urls[1]], "");
    for _ in 0..20 {
        assert_eq!(proxy.get("/").status, 502);
    }
    assert_eq!(proxy.count("upstream_errors"), 20);
    let lines = proxy.last_words();
    assert_eq!(lines.iter().filter(|line| line.contains("the upstream is down")).count(), 2, "{lines:?}");
}

/// One slow path among others that are answered takes no upstream away.
#[test]
fn an_upstream_that_answers_nothing_in_time_is_down() {
    let (sender, is_asked) = mpsc::channel();
    let sender = Mutex::new(sender);
    let url = serve(move |mut connection| {
        while let Some(request) = connection.request() {
            match request.start.contains("/fast") {
                true => connection.write(OK),
                false => sender.lock().expect("no panic").send(()).expect("the test goes on"),
            }
        }
    });
    let proxy = Proxy::over(&url, "--timeout response_head=2s");
    let mut slow = proxy.write("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    is_asked.recv_timeout(PATIENCE).expect("it is under way");
    assert_eq!(proxy.get("/fast").status, 200);
    assert_eq!(slow.read().status, 504);
    proxy.await_metric(&series(&url), 1);
    for (path, status, up) in [("/slow", 504, 0), ("/fast", 200, 1)] {
        assert_eq!(proxy.get(path).status, status);
        proxy.await_metric(&series(&url), up);
    }
}

#[test]
fn a_reload_keeps_what_is_known_of_an_upstream() {
    let (down, up) = (refusing(), Upstream::answering(OK));
    let upstreams = format!("upstream = [\"{down}\", \"{}\"]\n", up.url());
    let proxy = Reloaded::start(&upstreams);
    until_it_is(&proxy, &down, 0);
    proxy.read(&format!("{upstreams}limit = \"1000000/s\"\n"));
    proxy.await_metric(&series(&down), 0);
}

/// The upload that asks the upstream after an outage never ends, and the upstream waits for it.
#[test]
fn a_slow_upload_keeps_no_upstream_out() {
    let (socket, answering) = (Down::bound(), Upstream::answering(OK));
    let (down, up) = (socket.url.clone(), answering.url());
    let proxy = Proxy::over_all(&[&down, &up], "--least-rate none --timeout request_body=1h");
    until_it_is(&proxy, &down, 0);
    let (sender, is_asked) = mpsc::channel();
    let sender = Mutex::new(sender);
    socket.listen(move |mut connection| {
        while let Some(head) = connection.try_head() {
            if head.start.starts_with("POST") {
                let _ = sender.lock().expect("no panic").send(());
                let _ = io::copy(&mut connection, &mut io::sink());
                return;
            }
            connection.write(OK);
        }
    });
    let mut uploads = Vec::new();
    until("an upload that asks the upstream", || {
        uploads.push(proxy.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1"));
        is_asked.recv_timeout(Duration::from_millis(100)).is_ok()
    });
    until_it_is(&proxy, &down, 1);
}
