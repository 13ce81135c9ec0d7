// promise: layer
//! The program of README.md, as it is there: it limits each client by itself, and says so if it
//! cannot.

use std::io::Read;
use std::process::{Command, Stdio};

use http::Request;
// Beside the crates `http` and `tower`: the prelude has no modules of their names.
use tollgate::prelude::*;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{Client, Server, says, status};

#[tokio::test]
async fn two_clients_of_the_readmes_program_are_limited_each_by_itself() {
    let server = Server::start(env!("CARGO_BIN_EXE_readme"));
    for client in ["127.0.0.1", "127.0.0.2"] {
        let mut client = Client::connect_from(client, &server.address).await;
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
        let mut client = Client::connect_from(client, &server.address).await;
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
    // What is written to a pipe without a reader is an error.
    let program = env!("CARGO_BIN_EXE_readme_without_connect_info");
    let mut process = Command::new(program).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(process.stderr.take());
    let server = Server::of(process);
    let client = async {
        let mut client = Client::connect_from("127.0.0.1", &server.address).await;
        [status(&client.get("/").await), status(&client.get("/").await)]
    };
    assert_eq!(tokio::runtime::Runtime::new().unwrap().block_on(client), [500, 500]);
}

#[tokio::test]
async fn the_prelude_goes_with_the_crates_http_and_tower() {
    let limiter = RateLimiter::new(Quota::per_hour(1));
    let layer = RateLimitLayer::builder(limiter).key(key_fn(|head| Some(head.uri.path().to_owned()))).build();
    let inner = service_fn(async |_| Ok::<_, std::convert::Infallible>(http::Response::new(String::new())));
    let mut service = layer.layer(inner);
    let mut ask = async || {
        let service = ServiceExt::<Request<()>>::ready(&mut service).await.unwrap();
        service.call(Request::get("/a").body(()).unwrap()).await.unwrap().status().as_u16()
    };
    assert_eq!([ask().await, ask().await], [200, 429]);
}
