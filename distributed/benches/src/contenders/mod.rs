//! The shared limits that are compared, a file each.

mod check_then_count;
mod compare_and_set;
mod counter;
mod gcra;
mod log;
mod ours;

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use tollgate::Quota;

use crate::load::{Lap, Load, run};

pub use self::ours::Ours;

/// Limiters of a contender, as many as there are processes.
pub const PROCESSES: usize = 4;

/// The contenders on Redis. The first two are ours.
pub const ON_REDIS: [&str; 7] =
    ["leased", "exact", "compare-and-set", "check, then count", "sliding log", "GCRA", "counter"];

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

type Lapping<'a> = Pin<Box<dyn Future<Output = Lap> + 'a>>;

/// The limiters of a contender, under load.
pub trait Fleet {
    /// Loads the limiters.
    fn lap<'a>(&'a self, load: &'a Load) -> Lapping<'a>;

    /// Returns the round trips of all limiters so far, and the keys in them.
    fn calls(&self) -> [u64; 2];
}

impl<L: Limit> Fleet for Vec<Arc<L>> {
    fn lap<'a>(&'a self, load: &'a Load) -> Lapping<'a> {
        Box::pin(run(self, load))
    }

    fn calls(&self) -> [u64; 2] {
        let calls = self.iter().map(|limit| limit.calls());
        calls.fold([0, 0], |[trips, keys], [more, others]| [trips + more, keys + others])
    }
}

async fn fleet<L: Limit, F>(make: impl Fn() -> F) -> Result<Box<dyn Fleet>, Failure>
where
    F: Future<Output = Result<L, Failure>>,
{
    let mut limits = Vec::new();
    for _ in 0..PROCESSES {
        limits.push(Arc::new(make().await?));
    }
    Ok(Box::new(limits))
}

/// Makes a contender on Redis.
///
/// # Errors
///
/// The server does not answer.
pub async fn on_redis(name: &str, setup: &Setup) -> Result<Box<dyn Fleet>, Failure> {
    match name {
        "compare-and-set" => fleet(|| compare_and_set::CompareAndSet::new(setup)).await,
        "check, then count" => fleet(|| check_then_count::CheckThenCount::new(setup)).await,
        "sliding log" => fleet(|| log::Log::new(setup)).await,
        "GCRA" => fleet(|| gcra::Gcra::new(setup)).await,
        "counter" => fleet(|| counter::Counter::new(setup)).await,
        _ => ours(name, setup).await,
    }
}

/// Makes our limiters in a mode, `leased` or `exact`, on the store of any URL.
///
/// # Errors
///
/// There is no such store.
pub async fn ours(mode: &str, setup: &Setup) -> Result<Box<dyn Fleet>, Failure> {
    fleet(|| Ours::new(mode, setup)).await
}

async fn connect(url: &str) -> Result<MultiplexedConnection, Failure> {
    Ok(redis::Client::open(url)?.get_multiplexed_async_connection().await?)
}
