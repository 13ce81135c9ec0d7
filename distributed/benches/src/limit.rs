//! The trait that every contender implements.

use std::error::Error;
use std::future::Future;

use redis::aio::MultiplexedConnection;
use tollgate::Quota;

/// Any failure of a server or of its client.
pub type Failure = Box<dyn Error + Send + Sync>;

/// One limiter, as a process has it.
pub trait Limit: Send + Sync + 'static {
    /// Decides on one token of a key. A failure is a refusal.
    fn ask(&self, key: &str) -> impl Future<Output = bool> + Send;

    /// Returns the round trips to the server, and the keys in them.
    fn calls(&self) -> [u64; 2];
}

/// The limit of a case, and the place of its keys.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Quota of each key, whose burst is that of one period.
    pub quota: Quota,
    /// Address of the server.
    pub url: String,
    /// Start of each key in the server.
    pub name: String,
}

impl Setup {
    /// Connects to the server, which is Redis.
    pub(crate) async fn redis(&self) -> Result<MultiplexedConnection, Failure> {
        Ok(redis::Client::open(&*self.url)?.get_multiplexed_async_connection().await?)
    }
}
