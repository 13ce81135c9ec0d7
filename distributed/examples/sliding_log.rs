//! At most five calls of a client in any minute, by a sliding log in Redis. While the server does
//! not answer, each call is granted.
//!
//! ```text
//! cargo run -p tollgate-distributed --features redis --example sliding_log
//! ```
//!
//! `REDIS_URL` names the server. The program also runs without one.

use std::env;
use std::error::Error;
use std::time::Duration;

use tollgate_distributed::{OnOutage, RedisStore, SlidingLog, Source};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or("redis://localhost".into());
    // `lazy` connects at the first call: the program also starts without the server.
    let store = RedisStore::builder().lazy(&url)?;
    let log = SlidingLog::builder::<String>(&store, 5, Duration::from_secs(60))?
        .name("calls")
        .on_outage(OnOutage::Allow)
        .build()?;
    for call in 1..=7 {
        match log.ask("ada").await {
            Ok(granted) if granted.source() == Source::FailOpen => {
                println!("{call}: granted, as {url} does not answer");
            }
            Ok(granted) => println!("{call}: granted, {} left in this minute", granted.remaining()),
            Err(denied) => println!("{call}: {denied}"),
        }
    }
    log.shutdown().await;
    Ok(())
}
