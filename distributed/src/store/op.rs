//! One call on one bucket, and the trait of stores.

use std::future::Future;

use super::error::StoreError;
use crate::credits::bucket::{Amount, Answer};
use crate::credits::spec::Spec;

/// A call on the bucket of one key.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    /// The key, as it is stored: at most [`MAX_KEY`] bytes.
    pub key: &'a [u8],
    /// The quota.
    pub spec: Spec,
    /// The tokens asked for.
    pub amount: Amount,
    /// The answer, which the store fills in.
    pub answer: Answer,
}

/// The longest key that a store takes, in bytes. A limiter stores a digest of a longer one.
pub const MAX_KEY: usize = 255;

impl<'a> Op<'a> {
    /// Returns a call without an answer.
    #[must_use]
    pub fn new(key: &'a [u8], spec: Spec, amount: Amount) -> Op<'a> {
        Op { key, spec, amount, answer: Answer::default() }
    }
}

/// Shared buckets, in a server or a file.
///
/// A store keeps the law of [`Bucket::step`](crate::Bucket::step) on its own clock. A key that is
/// not stored is a full bucket.
pub trait Store: Send + Sync + 'static {
    /// Decides all calls in one round trip, and fills in their answers.
    ///
    /// No two calls have the same key. Each call is atomic. The calls together are not, and their
    /// order is free. A call that changes nothing writes nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`] tells whether calls may have taken effect.
    fn acquire(&self, ops: &mut [Op<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Several limiters may share a store.
impl<S: Store> Store for std::sync::Arc<S> {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        (**self).acquire(ops).await
    }
}
