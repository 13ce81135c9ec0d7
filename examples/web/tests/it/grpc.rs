// promise: layer
//! A refusal as a client of tonic sees it.

use std::time::{Duration, Instant};

use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

use crate::support::{PATIENCE, Server, output};

#[tokio::test]
async fn a_refusal_is_resource_exhausted_with_the_time_to_wait() {
    let server = Server::start(env!("CARGO_BIN_EXE_grpc_server"));
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let begun = Instant::now();
    // 2 each second, and a client that does not wait.
    let refused = loop {
        match client.check(HealthCheckRequest::default()).await {
            Ok(_) => assert!(begun.elapsed() < PATIENCE),
            Err(refused) => break refused,
        }
    };
    let told = Instant::now();
    assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, "rate limit exceeded"));
    let details = refused.get_error_details();
    let wait = details.retry_info().expect("it has one").retry_delay.expect("it is not for ever");
    assert!(wait > Duration::ZERO && wait <= Duration::from_millis(500), "{wait:?}");
    assert_eq!(refused.get_details_retry_info().unwrap().retry_delay, Some(wait));
    let pushback: u128 =
        refused.metadata().get("grpc-retry-pushback-ms").unwrap().to_str().unwrap().parse().unwrap();
    assert_eq!(pushback, wait.as_nanos().div_ceil(1_000_000));
    // A client that is alone and waits for that time is served.
    tokio::time::sleep_until((told + wait).into()).await;
    client.check(HealthCheckRequest::default()).await.unwrap();
    drop(client);
    assert!(server.stop().await.success());
}

#[test]
fn the_client_waits_as_it_is_told() {
    let server = Server::start(env!("CARGO_BIN_EXE_grpc_server"));
    let told = output(env!("CARGO_BIN_EXE_grpc_client"), &format!("http://{}", server.address));
    assert_eq!(told.lines().filter(|line| line.ends_with("served")).count(), 5, "{told}");
    // Of 5 calls 2 are there at once.
    assert!(told.contains("rate limit exceeded, again in "), "{told}");
}
