//! Upstreams that are down, and come back.

use std::net::SocketAddr;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Instant;

use tokio::net::TcpSocket;

use super::process::{Message, Proxy, read_chunk, recording_upstream, refusing, upstream, url, write};
use super::support::{Folder, await_metric, block_on, count};
use super::{NO_LIMIT, PATIENCE};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn proxy(upstreams: &[SocketAddr], options: &[&str]) -> Proxy {
    let urls: Vec<String> = upstreams.iter().copied().map(url).collect();
    let upstreams: Vec<&str> = urls.iter().flat_map(|url| ["--upstream", url]).collect();
    Proxy::start(&[&["--limit", NO_LIMIT, "--admin", "127.0.0.1:0"], &*upstreams, options].concat())
}

fn metric(upstream: SocketAddr, up: u8) -> String {
    format!("tollgate_upstream_up{{name=\"http://{upstream}\"}} {up}")
}

/// Asks until the metrics have a line.
fn until(proxy: &Proxy, line: &str) {
    let begin = Instant::now();
    while proxy.ask_admin("GET", "/metrics", "").body.lines().all(|own| own != line) {
        assert!(begin.elapsed() < PATIENCE, "no {line}");
        assert_eq!(proxy.connect().get("/").status, 200);
    }
}

#[test]
fn an_upstream_that_is_down_is_logged_once_and_asked_again() {
    let socket = block_on(async { TcpSocket::new_v4() }).expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let down = socket.local_addr().expect("it has an address");
    let (up, _requests) = recording_upstream(OK);
    let proxy = proxy(&[down, up], &[]);
    for _ in 0..50 {
        assert_eq!(proxy.connect().get("/").status, 200);
    }
    await_metric(&proxy, &metric(down, 0));
    await_metric(&proxy, &metric(up, 1));
    assert!(count(&proxy, "upstream_retries") <= 3, "few requests ask it");
    let mut page = proxy.admin();
    page.write(&format!("GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.admin));
    Message::read_head(&mut page.0).expect("a response");
    let event = read_chunk(&mut page.0);
    assert!(event.contains(&format!("\"down\":[\"http://{down}\"]")), "{event}");

    let listener = block_on(async { socket.listen(64) }).expect("the port is its own");
    let listener = listener.into_std().expect("it is registered");
    listener.set_nonblocking(false).expect("it is open");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut connection = std::io::BufReader::new(stream.expect("a connection"));
            thread::spawn(move || {
                while Message::read_head(&mut connection).is_some() {
                    write(&connection, OK);
                }
            });
        }
    });
    until(&proxy, &metric(down, 1));
    let lines = proxy.last_words();
    let [gone, back] = &lines[..] else { panic!("{lines:?}") };
    assert!(gone.contains("ERROR the upstream is down") && gone.contains("refused"), "{gone}");
    assert!(back.contains("INFO the upstream answers again"), "{back}");
}

#[test]
fn the_upstream_that_is_due_first_is_asked_if_all_are_down() {
    let proxy = proxy(&[refusing(), refusing()], &[]);
    for _ in 0..20 {
        assert_eq!(proxy.connect().get("/").status, 502);
    }
    assert_eq!(count(&proxy, "upstream_errors"), 20);
    let lines = proxy.last_words();
    assert_eq!(lines.iter().filter(|line| line.contains("the upstream is down")).count(), 2, "{lines:?}");
}

/// One slow path among others that are answered takes no upstream away.
#[test]
fn an_upstream_that_answers_nothing_in_time_is_down() {
    let (sender, is_asked) = mpsc::channel();
    let sender = Mutex::new(sender);
    let silent = upstream(move |mut connection| {
        while let Some(request) = Message::read_head(&mut connection) {
            match request.start.contains("/fast") {
                true => write(&connection, OK),
                false => sender.lock().expect("no panic").send(()).expect("the test goes on"),
            }
        }
    });
    let proxy = proxy(&[silent], &["--timeout", "response_head=2s"]);
    let mut slow = proxy.connect();
    slow.write("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    is_asked.recv_timeout(PATIENCE).expect("it is under way");
    assert_eq!(proxy.connect().get("/fast").status, 200);
    assert_eq!(slow.read().status, 504);
    await_metric(&proxy, &metric(silent, 1));
    assert_eq!(proxy.connect().get("/slow").status, 504);
    await_metric(&proxy, &metric(silent, 0));
    assert_eq!(proxy.connect().get("/fast").status, 200);
    await_metric(&proxy, &metric(silent, 1));
}

#[test]
fn a_reload_keeps_what_is_known_of_an_upstream() {
    let (folder, down, (up, _requests)) = (Folder::new(), refusing(), recording_upstream(OK));
    let upstreams = format!("upstream = [\"http://{down}\", \"http://{up}\"]\n");
    let config = folder.write("proxy.toml", &upstreams);
    let proxy = Proxy::start(&["--config", &config, "--admin", "127.0.0.1:0"]);
    until(&proxy, &metric(down, 0));
    folder.write("proxy.toml", &format!("{upstreams}limit = \"1000000/s\"\n"));
    proxy.reload();
    await_metric(&proxy, &metric(down, 0));
}
