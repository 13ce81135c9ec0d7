// promise: layer
//! The program of README.md, as it is there: it limits each client by itself, and says so if it
//! cannot. With feature `tracing` it would say so by an event.

#![cfg(not(feature = "tracing"))]

use std::io::Read;
use std::process::{Command, Stdio};

use support::{Client, Server, says, status};
use tokio::net::TcpSocket;

#[path = "../it/support.rs"]
#[expect(dead_code, reason = "the other tests need the rest")]
mod support;

/// Connects from another address of this host, as `127.0.0.2`.
async fn connect_from(from: &str, address: &str) -> Client {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    Client::over(socket.connect(address.parse().unwrap()).await.unwrap()).await
}

#[tokio::test]
async fn two_clients_of_the_readmes_program_are_limited_each_by_itself() {
    let server = Server::start(env!("CARGO_BIN_EXE_readme"));
    for client in ["127.0.0.1", "127.0.0.2"] {
        let mut client = connect_from(client, &server.address).await;
        // Requests until one is refused. The first two are granted, and more if tokens come back
        // meanwhile.
        let mut granted = 0;
        let refused = loop {
            let response = client.get("/").await;
            if status(&response) != 200 {
                break response;
            }
            assert_eq!(response.body().as_ref(), b"hello\n");
            granted += 1;
        };
        assert!(granted >= 2, "{granted}");
        assert_eq!((status(&refused), says(&refused, "retry-after")), (429, Some("1")));
    }
}

#[tokio::test]
async fn without_connect_info_each_request_is_answered_with_500_and_stderr_says_why_once() {
    let program = env!("CARGO_BIN_EXE_readme_without_connect_info");
    let (server, mut stderr) = Server::start_with_stderr(program);
    for client in ["127.0.0.1", "127.0.0.2"] {
        let mut client = connect_from(client, &server.address).await;
        for _ in 0..4 {
            assert_eq!(status(&client.get("/").await), 500);
        }
    }
    drop(server);
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in
        ["no-peer", "into_make_service_with_connect_info", ".silence(Check::NoPeer)", "docs/checks.md"]
    {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_closed_stderr_fails_no_request() {
    // A write to a pipe without a reader is an error.
    let program = env!("CARGO_BIN_EXE_readme_without_connect_info");
    let mut process = Command::new(program).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(process.stderr.take());
    let server = Server::of(process);
    let client = async {
        let mut client = connect_from("127.0.0.1", &server.address).await;
        [status(&client.get("/").await), status(&client.get("/").await)]
    };
    assert_eq!(tokio::runtime::Runtime::new().unwrap().block_on(client), [500, 500]);
}
