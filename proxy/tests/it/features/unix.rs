//! Unix sockets of clients and of upstreams.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::support::{Connection, Folder, Message, PATIENCE, Proxy};

fn ask(path: &str, headers: &str) -> Message {
    let stream = UnixStream::connect(path).expect("the proxy listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    Connection::over(stream).get_with("/", headers)
}

#[test]
fn clients_of_a_unix_socket_are_one_address() {
    let folder = Folder::new();
    let path = folder.text("in");
    let proxy = Proxy::on(&format!("unix:{path}"), "--limit 2/h");
    let reply = ask(&path, "");
    assert_eq!(reply.status, 200);
    for line in ["x-forwarded-for: 127.0.0.1\n", "x-forwarded-port: 80\n", "x-forwarded-proto: http\n"] {
        assert!(reply.body.contains(line), "{reply:?}");
    }
    assert_eq!([0; 2].map(|_| ask(&path, "").status), [200, 429]);

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
    let path = folder.text("in");
    let _proxy = Proxy::on(&format!("unix:{path}"), "--limit 1/h --trust-proxy 127.0.0.1");
    for (client, status) in [(1, 200), (1, 429), (2, 200)] {
        let reply = ask(&path, &format!("X-Forwarded-For: 203.0.113.{client}\r\n"));
        assert_eq!(reply.status, status, "{client}");
    }
}

#[test]
fn an_upstream_on_a_unix_socket() {
    let folder = Folder::new();
    let path = folder.text("out");
    let listener = UnixListener::bind(&path).expect("a new path");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            thread::spawn(move || {
                let mut connection = Connection::over(stream);
                while let Some(request) = connection.request() {
                    let host = request.header("host").expect("a host");
                    let (length, response) = (host.len(), "HTTP/1.1 200 OK\r\nContent-Length:");
                    let response = format!("{response} {length}\r\n\r\n{host}");
                    connection.write(&response);
                }
            });
        }
    });
    let proxy = Proxy::over(&format!("unix:{path}"), "");
    let mut client = proxy.connect();
    for _ in 0..2 {
        let reply = client.get("/");
        assert_eq!((reply.status, &*reply.body), (200, "localhost"));
    }
    let missing = format!("unix:{}", folder.text("missing"));
    assert_eq!(Proxy::over(&missing, "").get("/").status, 502);
}
