//! Tokens from buckets that are refilled at intervals.

use std::future::Future;
use std::sync::Arc;

use crate::store::error::StoreError;

/// Takes tokens from buckets that are refilled to their capacity at intervals.
///
/// The buckets are the rows of a table `token_buckets (id, available, capacity, refill_seconds,
/// last_refill_at)`. The application inserts them, by SQL. `last_refill_at` is a `timestamptz` in
/// PostgreSQL, a `DATETIME(6)` in UTC in MariaDB, and microseconds since 1970 in SQLite.
///
/// A call `k >= 1` whole intervals after `last_refill_at` fills the bucket, and adds `k` intervals
/// to `last_refill_at`. So no call shifts the phase of the intervals.
///
/// # The bound
///
/// In `t` seconds at most `capacity * (2 + floor(t / refill_seconds))` tokens are granted. Twice
/// the capacity may be granted within a moment: at the end of one interval and at the start of the
/// next. A [`Store`](crate::Store) is refilled evenly: it grants one capacity at once, and the rate
/// from then on.
#[derive(Clone, Debug)]
pub struct TokenRequester<S> {
    store: S,
}

/// A store with a table `token_buckets`.
pub trait TokenTable: Send + Sync {
    /// Creates the table and its procedures if they are missing.
    fn create_token_table(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Takes a token, and returns whether there was one.
    fn take_token(&self, id: &str) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// The table of a store in an `Arc`.
impl<S: TokenTable> TokenTable for Arc<S> {
    async fn create_token_table(&self) -> Result<(), StoreError> {
        (**self).create_token_table().await
    }

    async fn take_token(&self, id: &str) -> Result<bool, StoreError> {
        (**self).take_token(id).await
    }
}

impl<S: TokenTable> TokenRequester<S> {
    /// Returns a requester on the table of a store.
    pub fn new(store: S) -> TokenRequester<S> {
        TokenRequester { store }
    }

    /// Creates the table and its procedures if they are missing.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store refuses.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.store.create_token_table().await
    }

    /// Takes a token, and returns whether there was one. A bucket that is not in the table has
    /// none. A call that takes none writes nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`] tells whether the call may have taken a token.
    pub async fn request_token(&self, id: &str) -> Result<bool, StoreError> {
        self.store.take_token(id).await
    }
}
