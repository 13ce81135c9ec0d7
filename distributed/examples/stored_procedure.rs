//! Five callers a second at a bucket of two tokens a second: a row of MariaDB, from which the
//! stored procedure `request_token` takes them.
//!
//! ```text
//! cargo run -p tollgate-distributed --features mysql --example stored_procedure
//! ```
//!
//! `DATABASE_URL` names the database. The account may create a table and a procedure.

use std::env;
use std::error::Error;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use tollgate_distributed::{MySqlStore, TokenRequester};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("DATABASE_URL").unwrap_or("mysql://root@localhost/test".into());
    let requester = TokenRequester::new(MySqlStore::connect(&url)?);
    requester.migrate().await?;
    // The application's own SQL. Any client of the database may call the procedure.
    let mut application = mysql_async::Conn::from_url(&url).await?;
    let row = "INSERT IGNORE INTO token_buckets VALUES ('reports', 2, 2, 1, UTC_TIMESTAMP(6))";
    application.query_drop(row).await?;
    application.disconnect().await?;
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
