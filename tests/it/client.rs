//! `examples/client.rs` from the outside: its process, and an upstream that counts.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use crate::basic::run_example;

/// Tokens a second of the quota that these tests wait for, and its burst.
const RATE: f64 = 50.0;
const BURST: f64 = 5.0;
const LIMIT: &str = "50/s burst 5";

#[test]
fn who_waits_sends_all_and_never_too_soon() {
    let upstream = Upstream::start();
    let start = Instant::now();
    let output = run(&["--limit", LIMIT, "--requests", "30", "--mode", "wait", "--url", &upstream.url()]);
    let most = BURST + RATE * start.elapsed().as_secs_f64();
    assert_eq!(counts(&output), (30, 0));
    assert_eq!(upstream.requests(), 30);
    assert!(30.0 <= most, "30 requests arrived where at most {most} may");
}

#[test]
fn who_is_refused_sends_nothing() {
    let upstream = Upstream::start();
    let start = Instant::now();
    let output = run(&["--limit", LIMIT, "--requests", "200", "--mode", "refuse", "--url", &upstream.url()]);
    let most = BURST + RATE * start.elapsed().as_secs_f64();
    let (sent, refused) = counts(&output);
    assert_eq!(sent + refused, 200);
    assert_eq!(upstream.requests(), sent);
    assert!((BURST..=most).contains(&(sent as f64)), "{sent} requests arrived where at most {most} may");

    // No token comes in the time of the run, so exactly the burst is sent.
    let upstream = Upstream::start();
    let output = run(&["--limit", "3/h", "--requests", "20", "--mode", "refuse", "--url", &upstream.url()]);
    assert_eq!(counts(&output), (3, 17));
    assert_eq!(upstream.requests(), 3);
}

#[test]
fn it_brings_its_own_upstream() {
    assert_eq!(counts(&run(&["--limit", "1000/s burst 10", "--requests", "50"])), (50, 0));
}

#[test]
fn a_bad_option_is_one_line_and_exit_code_2() {
    for (args, part) in [
        (&["--limit", "fast"][..], "fast"),
        (&["--limit", "0/s burst 1"], "--limit"),
        (&["--limit", "1/50000d"], "no room"),
        (&["--requests", "0"], "--requests"),
        (&["--requests", "many"], "many"),
        (&["--url", "127.0.0.1:3000"], "http://"),
        (&["--url", "http://a/path"], "http://"),
        (&["--url", "https://a"], "https"),
        (&["--mode", "maybe"], "`refuse`"),
        (&["--nonsense"], "--nonsense"),
    ] {
        fails(args, 2, part);
    }
    // A socket that does not listen keeps the port, and refuses connections.
    let refusing = tokio::net::TcpSocket::new_v4().expect("a socket");
    refusing.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let closed = refusing.local_addr().expect("it has an address");
    fails(&["--requests", "1", "--url", &format!("http://{closed}/")], 1, "cannot reach");
}

fn fails(args: &[&str], code: i32, part: &str) {
    let output = run(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.contains(part), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?}");
}

/// Returns the sent and the refused requests of the one line that the example prints.
fn counts(output: &Output) -> (u64, u64) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.lines().count() == 1, "{output:?}");
    let number = |name| -> u64 {
        let after = stdout.split_once(name).unwrap_or_else(|| panic!("no {name:?} in {stdout:?}")).1;
        after.split(',').next().expect("a first part").parse().expect("a number")
    };
    (number("sent "), number("refused "))
}

/// Runs the example to its end.
fn run(args: &[&str]) -> Output {
    run_example("client", args)
}

/// A server that answers every request, and counts them.
struct Upstream {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
}

impl Upstream {
    /// Serves until the test process ends.
    fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let requests = Arc::new(AtomicU64::new(0));
        let counter = requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, counter) = (stream.expect("a connection"), counter.clone());
                thread::spawn(move || serve(&stream, &counter));
            }
        });
        Upstream { address, requests }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: &TcpStream, requests: &AtomicU64) {
    // A request without a body ends with an empty line, and a connection at its end.
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if line.is_empty() {
            requests.fetch_add(1, Ordering::SeqCst);
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    }
}
