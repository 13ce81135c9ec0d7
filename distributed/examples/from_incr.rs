//! A fleet that moves from a script of `INCR` to a shared window: the process of the first deploy
//! asks both, and that of the second the window alone.
//!
//! ```text
//! cargo run -p tollgate-distributed --features redis --example from_incr
//! ```
//!
//! `REDIS_URL` names the server.

use std::env;
use std::error::Error;

use redis::aio::MultiplexedConnection;
use tollgate::Window;
use tollgate_distributed::{DistributedLimiter, RedisStore};

const LIMIT: u64 = 5;

/// The script so far: a counter that expires an hour after its first call.
const SCRIPT: &str = "
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('EXPIRE', KEYS[1], 3600) end
return count";

async fn by_script(redis: &MultiplexedConnection, user: &str) -> redis::RedisResult<bool> {
    let mut call = redis::cmd("EVAL");
    call.arg(SCRIPT).arg(1).arg(format!("limit:{user}"));
    let count: u64 = call.query_async(&mut redis.clone()).await?;
    Ok(count <= LIMIT)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or("redis://localhost".into());
    let redis = redis::Client::open(&*url)?.get_multiplexed_async_connection().await?;
    let store = RedisStore::connect(&url).await?;
    let window = Window::per_hour(LIMIT);
    let limiter = DistributedLimiter::<String, _>::builder(window, store);
    let limiter = limiter.name("users").build()?;

    // The first deploy. Older processes ask the script alone, so it counts all grants.
    for request in 1..=7 {
        let granted = by_script(&redis, "ada").await? && limiter.ask("ada").await.is_ok();
        println!("{request}: both, granted: {granted}");
    }
    // The second deploy. The window has counted all grants of the first one.
    match limiter.ask("ada").await {
        Ok(granted) => println!("alone, {} left", granted.remaining()),
        Err(denied) => println!("alone, {denied}"),
    }
    limiter.shutdown().await;
    Ok(())
}
