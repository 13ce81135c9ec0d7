//! The proxy over an upstream whose body the test ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a request once the proxy listens.
fn ask(address: &str) -> BufReader<TcpStream> {
    let begun = Instant::now();
    loop {
        if let Ok(mut stream) = TcpStream::connect(address) {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            return BufReader::new(stream);
        }
        assert!(begun.elapsed() < PATIENCE, "the proxy does not listen");
    }
}

fn head(connection: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(connection.read_line(&mut head).unwrap(), 0, "{head}");
    }
    head
}

/// Half of a body. pingora collects smaller parts before it sends the head.
const HALF: usize = 1 << 20;

#[test]
fn a_place_is_held_until_the_body_has_ended_or_the_client_has_left() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let address = upstream.local_addr().unwrap().to_string();
    let mut program = Command::new(env!("CARGO_BIN_EXE_tollgate-pingora-example"));
    let _proxy = Process(program.args([&free, &address, "1"]).stdout(Stdio::null()).spawn().unwrap());
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for connection in upstream.incoming() {
            let mut connection = BufReader::new(connection.unwrap());
            head(&mut connection);
            if sender.send(connection).is_err() {
                return;
            }
        }
    });
    // Asks until there is a place: a client may see the end before the proxy drops its state.
    let admitted = || {
        let begun = Instant::now();
        loop {
            let mut client = ask(&free);
            client.get_ref().set_nonblocking(true).unwrap();
            while client.get_ref().peek(&mut [0]).is_err() {
                assert!(begun.elapsed() < PATIENCE, "no place is free");
                if let Ok(held) = requests.try_recv() {
                    client.get_ref().set_nonblocking(false).unwrap();
                    return (client, held);
                }
            }
            client.get_ref().set_nonblocking(false).unwrap();
            assert!(head(&mut client).starts_with("HTTP/1.1 503"));
        }
    };
    let refused = || {
        let told = head(&mut ask(&free)).to_lowercase();
        assert!(told.starts_with("http/1.1 503") && told.contains("retry-after: 1"), "{told}");
        assert!(requests.try_recv().is_err());
    };
    for leaves in [false, true, false] {
        let (mut client, mut held): (_, BufReader<TcpStream>) = admitted();
        refused();
        let length = 2 * HALF;
        let start = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        held.get_mut().write_all(start.as_bytes()).unwrap();
        held.get_mut().write_all(&[b'a'; HALF]).unwrap();
        assert!(head(&mut client).starts_with("HTTP/1.1 200"));
        refused();
        if leaves {
            drop(client);
            let _ = held.read_to_end(&mut Vec::new());
        } else {
            held.get_mut().write_all(&[b'a'; HALF]).unwrap();
            client.read_exact(&mut vec![0; length]).unwrap();
        }
    }
}
