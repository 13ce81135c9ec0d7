//! A limit of this process in front of the one that a fleet shares: a flood is refused here, and
//! costs the store no call.
//!
//! ```text
//! cargo run -p tollgate-distributed --example local_first
//! ```

use std::error::Error;

use tollgate::Quota;
use tollgate_distributed::{DistributedLimiter, SqliteStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The fleet grants a client 100 a day, and each process no more than 5 at once.
    let limiter = DistributedLimiter::<String, _>::builder(Quota::per_day(100), SqliteStore::in_memory()?)
        .name("clients")
        .local_first(Quota::per_second(5))
        .exact()
        .build()?;
    let mut granted = 0;
    for _ in 0..1_000 {
        granted += u64::from(limiter.ask("ada").await.is_ok());
    }
    let stats = limiter.stats();
    println!("{granted} of 1,000 granted, {} refused in this process,", stats.by_local);
    println!("and {} calls of the store", stats.calls_answered);
    limiter.shutdown().await;
    Ok(())
}
