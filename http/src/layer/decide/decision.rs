//! The decision of a layer, for the service inside.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::request::key::Head;
use tollgate::{Denied, Granted};

/// The decision of a [`RateLimitLayer`](crate::RateLimitLayer): an extension of requests passed on.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate_http::Decision;
///
/// fn handle(request: &Request<()>) -> String {
///     match request.extensions().get::<Decision>().map(Decision::result) {
///         Some(Ok(granted)) => format!("{} left", granted.remaining()),
///         Some(Err(denied)) => format!("let through all the same: {denied}"),
///         None => "not limited".to_owned(),
///     }
/// }
/// # assert_eq!(handle(&Request::new(())), "not limited");
/// ```
#[derive(Clone)]
pub struct Decision {
    pub(crate) result: Result<Granted, Denied>,
    pub(crate) cost: u64,
    pub(crate) counted: LimiterIds,
    /// In nanoseconds: a longer one than 584 years is cut.
    pub(crate) delay: Duration,
}

/// Returns the limiters that counted the request in outer layers.
#[inline]
pub(super) fn counted_before(head: Head<'_>) -> &[usize] {
    head.extensions.get::<Decision>().map_or(&[][..], |decision| decision.counted.as_slice())
}

/// The limiters that have counted a request.
#[derive(Clone, Debug)]
pub(crate) enum LimiterIds {
    /// A layer of one limit adds no count of references to a request.
    One(usize),
    Several(Arc<[usize]>),
}

impl LimiterIds {
    pub(crate) fn as_slice(&self) -> &[usize] {
        match self {
            LimiterIds::One(id) => std::slice::from_ref(id),
            LimiterIds::Several(ids) => ids,
        }
    }
}

impl From<Vec<usize>> for LimiterIds {
    fn from(ids: Vec<usize>) -> LimiterIds {
        match ids[..] {
            [id] => LimiterIds::One(id),
            _ => LimiterIds::Several(ids.into()),
        }
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("result", &self.result)
            .field("cost", &self.cost)
            .field("delay", &self.delay())
            .finish_non_exhaustive()
    }
}

impl Decision {
    /// Returns the answer of the limit that refused, else of the limit with the fewest tokens left.
    ///
    /// Of several refusals, the one with the longest wait counts.
    ///
    /// # Errors
    ///
    /// A limit refused the request. In the request's extensions this means that the layer passed it
    /// on, because the layer or that limit does not
    /// [enforce](crate::LayerBuilder::enforce) refusals for its key. A hook sees the other refusals
    /// as well.
    pub fn result(&self) -> Result<Granted, Denied> {
        self.result
    }

    /// Returns the tokens that the request cost.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the time that the request waited for its turn, by
    /// a [`DelayLayer`](crate::DelayLayer); zero if it did not wait.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }
}
