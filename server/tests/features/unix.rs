//! Unix sockets of clients and of upstreams.

use std::io::{BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::thread;

use super::process::{Message, Proxy};
use super::support::{Folder, read};
use super::{NO_LIMIT, PATIENCE};

fn ask(path: &str, request: &str) -> Message {
    let mut stream = UnixStream::connect(path).expect("the proxy listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream.write_all(request.as_bytes()).expect("the proxy reads");
    read(&mut BufReader::new(stream))
}

#[test]
fn clients_of_a_unix_socket_are_one_address() {
    let folder = Folder::new();
    let path = folder.path("in");
    let mut proxy = Proxy::start_on(&format!("unix:{path}"), &["--limit", "2/h burst 2"]);
    let request = "GET /p HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let reply = ask(&path, request);
    assert_eq!(reply.status, 200);
    for line in ["x-forwarded-for: 127.0.0.1\n", "x-forwarded-port: 80\n", "x-forwarded-proto: http\n"] {
        assert!(reply.body.contains(line), "{reply:?}");
    }
    assert_eq!([0; 2].map(|_| ask(&path, request).status), [200, 429]);

    let curl = Command::new("curl").args(["-s", "--unix-socket", &path, "http://localhost/"]).output();
    match curl {
        Ok(output) => assert!(output.stdout.starts_with(b"Too many requests"), "{output:?}"),
        Err(_) => eprintln!("not tested: this host has no curl"),
    }
    proxy.signal("-TERM");
    assert_eq!(proxy.exit_code(), Some(0));
    assert!(!Path::new(&path).exists(), "the file of the socket goes with the proxy");
}

#[test]
fn a_trusted_peer_on_a_unix_socket_names_the_client() {
    let folder = Folder::new();
    let path = folder.path("in");
    let options = ["--limit", "1/h burst 1", "--trust-proxy", "127.0.0.1"];
    let _proxy = Proxy::start_on(&format!("unix:{path}"), &options);
    for (client, status) in [(1, 200), (1, 429), (2, 200)] {
        let header = format!("X-Forwarded-For: 203.0.113.{client}");
        let reply = ask(&path, &format!("GET / HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n"));
        assert_eq!(reply.status, status, "{client}");
    }
}

#[test]
fn an_upstream_on_a_unix_socket() {
    let folder = Folder::new();
    let path = folder.path("out");
    let listener = UnixListener::bind(&path).expect("a new path");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            thread::spawn(move || {
                let mut connection = BufReader::new(stream);
                while let Some(request) = Message::read_head(&mut connection) {
                    let host = request.header("host").expect("a host");
                    let (length, response) = (host.len(), "HTTP/1.1 200 OK\r\nContent-Length:");
                    let response = format!("{response} {length}\r\n\r\n{host}");
                    connection.get_mut().write_all(response.as_bytes()).expect("the proxy reads");
                }
            });
        }
    });
    let upstream = format!("unix:{path}");
    let proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &upstream]);
    let mut client = proxy.connect();
    for _ in 0..2 {
        let reply = client.get("/");
        assert_eq!((reply.status, &*reply.body), (200, "localhost"));
    }
    let missing = format!("unix:{}", folder.path("missing"));
    let proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &missing]);
    assert_eq!(proxy.connect().get("/").status, 502);
}
