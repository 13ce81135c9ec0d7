//! Five callers a second at a bucket of two tokens a second, which is a row of a database: SQL
//! fills it at intervals, in a stored procedure where the database has them.
//!
//! ```text
//! cargo run -p tollgate-distributed --example requester
//! ```

use std::error::Error;
use std::time::Duration;

use rusqlite::Connection;
use tollgate_distributed::{SqliteStore, TokenRequester};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join("tollgate-requester.db");
    let requester = TokenRequester::new(SqliteStore::open(&path)?);
    requester.migrate().await?;
    // The application's own SQL. A day without a call fills no more than the capacity.
    Connection::open(&path)?.execute(
        "INSERT INTO token_buckets (id, available, capacity, refill_seconds, last_refill_at)
         VALUES ('reports', 2, 2, 1, 1000000 * unixepoch()) ON CONFLICT DO NOTHING",
        [],
    )?;
    for second in 1..=3 {
        let mut granted = 0;
        for _ in 0..5 {
            granted += u32::from(requester.request_token("reports").await?);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        println!("second {second}: {granted} of 5 granted");
    }
    Ok(())
}
