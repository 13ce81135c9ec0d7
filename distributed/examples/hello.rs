//! Seven requests of one client under a quota of five, on a file that processes share.
//!
//! ```text
//! cargo run -p tollgate-distributed --example hello
//! ```

use tollgate::Quota;
use tollgate_distributed::{DistributedLimiter, SqliteStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = SqliteStore::open(std::env::temp_dir().join("tollgate-readme.db"))?;
    let builder = DistributedLimiter::<String, _>::builder(Quota::per_second(5), store);
    let limiter = builder.name("hello").build()?;
    for request in 1..=7 {
        match limiter.ask("ada").await {
            Ok(granted) => println!("{request}: granted, {} left", granted.remaining()),
            Err(denied) => println!("{request}: {denied}"),
        }
    }
    limiter.shutdown().await;
    Ok(())
}
