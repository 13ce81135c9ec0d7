//! A client of tonic that waits for the time that the server names. See `grpc_server`.
//!
//! ```text
//! cargo run --release --manifest-path examples/web/Cargo.toml --bin grpc_client -- http://127.0.0.1:8080
//! ```

use std::error::Error;

use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

const CALLS: u32 = 5;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let mut client = HealthClient::new(Endpoint::from_shared(url)?.connect().await?);
    for call in 1..=CALLS {
        while let Err(status) = client.check(HealthCheckRequest::default()).await {
            let wait = status.get_details_retry_info().and_then(|info| info.retry_delay);
            match (status.code(), wait) {
                (Code::ResourceExhausted, Some(wait)) => {
                    println!("call {call}: {}, again in {wait:?}", status.message());
                    tokio::time::sleep(wait).await;
                }
                _ => return Err(status.into()),
            }
        }
        println!("call {call}: served");
    }
    Ok(())
}
