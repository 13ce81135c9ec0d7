//! Tokens from buckets that are refilled at intervals.

use std::future::Future;

use crate::store::error::StoreError;

/// Takes tokens from buckets that are refilled to their capacity at intervals.
///
/// The buckets are the rows of a table `token_buckets (id, available, capacity, refill_seconds,
/// last_refill_at)`. The application inserts them, by SQL. `last_refill_at` is a `timestamptz` in
/// PostgreSQL, a `DATETIME(6)` in UTC in MariaDB, and microseconds since 1970 in SQLite.
///
/// A call that comes `k >= 1` whole intervals after `last_refill_at` fills the bucket, and moves
/// `last_refill_at` by `k` intervals. So no call shifts the phase of the intervals.
///
/// # The bound
///
/// In `t` seconds at most `capacity * (1 + floor(t / refill_seconds) + 1)` tokens are granted. Up
/// to twice the capacity is granted in any time of one interval: at the end of one interval, and
/// at the start of the next. A [`Store`](crate::Store) keeps the bound of a bucket that is refilled
/// evenly: one capacity at once, and the rate from then on.
#[derive(Clone, Debug)]
pub struct TokenRequester<S> {
    store: S,
}

/// A store with a table of buckets that are refilled at intervals.
pub trait TokenTable: Send + Sync {
    /// Creates the table and its procedures if they are missing.
    fn create_token_table(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Takes a token, and returns whether there was one.
    fn take_token(&self, id: &str) -> impl Future<Output = Result<bool, StoreError>> + Send;
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

    /// Takes a token, and returns whether there was one. There is none in a bucket that is not in
    /// the table. A call that takes none writes nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`] tells whether the call may have taken a token.
    pub async fn request_token(&self, id: &str) -> Result<bool, StoreError> {
        self.store.take_token(id).await
    }
}
