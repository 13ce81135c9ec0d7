//! The proxy over an upstream whose body the test ends.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tollgate_testing::upstream::{Held, Upstream};
use tollgate_testing::wire::Connection;

const PATIENCE: Duration = Duration::from_secs(60);

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a request once the proxy listens.
fn ask(address: &str) -> Connection {
    let begun = Instant::now();
    loop {
        if let Ok(stream) = TcpStream::connect(address) {
            let mut connection = Connection::of(stream);
            connection.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            return connection;
        }
        assert!(begun.elapsed() < PATIENCE, "the proxy does not listen");
    }
}

/// Half of a body. pingora collects smaller parts before it sends the head.
const HALF: usize = 1 << 20;

#[test]
fn a_place_is_held_until_the_body_has_ended_or_the_client_has_left() {
    let upstream = Upstream::holding();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut program = Command::new(env!("CARGO_BIN_EXE_tollgate-pingora-example"));
    let program = program.args([&free, &upstream.address.to_string(), "1"]).stdout(Stdio::null());
    let _proxy = Process(program.spawn().unwrap());
    // Asks until there is a place: a client may see the end before the proxy drops its state.
    let admitted = || -> (Connection, Held) {
        let begun = Instant::now();
        loop {
            let mut client = ask(&free);
            while client.is_quiet(Duration::from_millis(2)) {
                assert!(begun.elapsed() < PATIENCE, "no place is free");
                if let Some(held) = upstream.try_next() {
                    return (client, held);
                }
            }
            assert_eq!(client.head().status, 503);
        }
    };
    let refused = || {
        let told = ask(&free).head();
        assert_eq!((told.status, told.header("retry-after")), (503, Some("1")), "{told:?}");
        assert!(upstream.try_next().is_none());
    };
    for leaves in [false, true, false] {
        let (mut client, mut held) = admitted();
        refused();
        let (length, half) = (2 * HALF, "a".repeat(HALF));
        held.write(&format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"));
        held.write(&half);
        assert_eq!(client.head().status, 200);
        refused();
        if leaves {
            drop(client);
            held.rest();
        } else {
            held.write(&half);
            client.exactly(length);
        }
    }
}
