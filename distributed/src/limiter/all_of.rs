//! Several shared limits, all or nothing.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;

use tollgate::{Denied, Granted, ToKey};

use super::distributed_limiter::DistributedLimiter;
use super::shared::Decision;
use super::shared_rule::SharedRule;
use super::sourced::Sourced;
use crate::key::StoreKey;
use crate::store::op::Store;

/// A request for tokens of one shared limit, for [`all_of`]; from [`DistributedLimiter::request`].
#[derive(Clone)]
pub struct Request(Arc<dyn Ask>);

trait Ask: Send + Sync {
    fn take(&self) -> Decision;
    fn ask(&self) -> Pin<Box<dyn Future<Output = Decision> + Send + '_>>;
    fn give_back(&self);
}

struct Of<K, S, R> {
    limiter: DistributedLimiter<K, S, R>,
    key: K,
    n: u64,
}

impl<K, S, R> Ask for Of<K, S, R>
where
    K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    S: Store,
    R: SharedRule,
{
    fn take(&self) -> Decision {
        self.limiter.key(&self.key).n(self.n).try_acquire_local()
    }

    fn ask(&self) -> Pin<Box<dyn Future<Output = Decision> + Send + '_>> {
        Box::pin(self.limiter.key(&self.key).n(self.n).ask())
    }

    fn give_back(&self) {
        self.limiter.refund(&self.key, self.n);
    }
}

impl<K, S, R> DistributedLimiter<K, S, R>
where
    K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    S: Store,
    R: SharedRule,
{
    /// Returns a request for `n` tokens of a key, as one of several for [`all_of`].
    pub fn request<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Request {
        Request(Arc::new(Of { limiter: self.clone(), key: key.to_key(), n }))
    }
}

/// The refusal of one of several shared limits. The tokens of the others were given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct AllDenied {
    which: usize,
    denied: Sourced<Denied>,
}

impl AllDenied {
    /// Returns the index of the request that was refused.
    #[must_use]
    pub fn which(&self) -> usize {
        self.which
    }

    /// Returns the refusal.
    pub fn denied(&self) -> Sourced<Denied> {
        self.denied
    }
}

impl fmt::Display for AllDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit {}: {}", self.which, self.denied)
    }
}

impl Error for AllDenied {}

/// Takes the tokens of all requests, or of none, from those at hand, without a wait.
///
/// The requests are decided in order. A refusal gives the tokens of the earlier ones back, as
/// [`refund`](DistributedLimiter::refund) does. So the keys may be in several stores, and on
/// several nodes of a cluster. Returns the grant with the fewest tokens left; `None` without
/// requests.
///
/// # Errors
///
/// [`AllDenied`] names the request that was refused.
pub fn all_of(requests: &[Request]) -> Result<Option<Sourced<Granted>>, AllDenied> {
    let mut taken = Taken { requests, count: 0, tightest: None };
    for request in requests {
        taken.note(request.0.take())?;
    }
    Ok(taken.keep())
}

/// Takes the tokens of all requests, or of none, by calls of the store where they are not at hand;
/// see [`all_of`]. The calls follow one after the other. A future that is dropped before its end
/// gives back the tokens that it has taken.
///
/// # Errors
///
/// [`AllDenied`] names the request that was refused.
pub async fn ask_all_of(requests: &[Request]) -> Result<Option<Sourced<Granted>>, AllDenied> {
    let mut taken = Taken { requests, count: 0, tightest: None };
    for request in requests {
        taken.note(request.0.ask().await)?;
    }
    Ok(taken.keep())
}

/// The first `count` requests, which were granted. A drop gives their tokens back.
struct Taken<'a> {
    requests: &'a [Request],
    count: usize,
    tightest: Option<Sourced<Granted>>,
}

impl Taken<'_> {
    fn note(&mut self, decision: Decision) -> Result<(), AllDenied> {
        let granted = decision.map_err(|denied| AllDenied { which: self.count, denied })?;
        self.count += 1;
        if self.tightest.is_none_or(|other| granted.remaining() < other.remaining()) {
            self.tightest = Some(granted);
        }
        Ok(())
    }

    /// Keeps the tokens. Returns the grant with the fewest tokens left.
    fn keep(mut self) -> Option<Sourced<Granted>> {
        self.count = 0;
        self.tightest
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.requests.iter().take(self.count).for_each(|request| request.0.give_back());
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").finish_non_exhaustive()
    }
}
