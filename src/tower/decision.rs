//! What the layer decided, for those behind it.

use std::sync::Arc;

use crate::word::decision::{Denied, Granted};

/// What a [`RateLimitLayer`](super::RateLimitLayer) decided on a request: an extension of each that it passes on.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::tower::Decision;
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
#[derive(Clone, Debug)]
pub struct Decision {
    pub(crate) result: Result<Granted, Denied>,
    pub(crate) cost: u64,
    /// The limiters that have counted the request.
    pub(crate) counted: Arc<[u64]>,
}

impl Decision {
    /// What the limit said that has the least left, or refused.
    ///
    /// # Errors
    ///
    /// It was refused. A request that was passed on all the same is one of shadow mode, or of those that are not enforced.
    pub fn result(&self) -> Result<Granted, Denied> {
        self.result
    }

    /// The tokens that were asked for.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }
}
