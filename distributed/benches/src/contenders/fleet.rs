//! The limiters of a contender.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::limit::{Failure, Limit};
use crate::load::{Lap, Load, run};

/// Limiters of a contender, as many as there are processes.
pub const PROCESSES: usize = 4;

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

pub(super) async fn fleet<L: Limit, F>(make: impl Fn() -> F) -> Result<Box<dyn Fleet>, Failure>
where
    F: Future<Output = Result<L, Failure>>,
{
    let mut limits = Vec::new();
    for _ in 0..PROCESSES {
        limits.push(Arc::new(make().await?));
    }
    Ok(Box::new(limits))
}
