//! A result that one task makes for many callers.

use std::future::Future;
use std::io;

use redis::{RedisError, RedisResult};
use tokio::sync::watch;

/// The task that is under way, if one is.
///
/// The task goes on without its callers: a caller with a short deadline does not stop it.
pub(crate) struct Single<T>(Option<watch::Receiver<Option<RedisResult<T>>>>);

/// A result that is being made.
pub(crate) struct Pending<T>(watch::Receiver<Option<RedisResult<T>>>);

impl<T> Default for Single<T> {
    fn default() -> Single<T> {
        Single(None)
    }
}

impl<T: Clone + Send + Sync + 'static> Single<T> {
    /// Returns the result of the task that is under way, or starts one.
    ///
    /// The task must call [`end`](Single::end) before it returns.
    pub(crate) fn join<F>(&mut self, task: impl FnOnce() -> F) -> Pending<T>
    where
        F: Future<Output = RedisResult<T>> + Send + 'static,
    {
        // A task whose runtime has ended is not under way.
        if let Some(pending) = self.0.as_ref().filter(|pending| pending.has_changed().is_ok()) {
            return Pending(pending.clone());
        }
        let (done, pending) = watch::channel(None);
        self.0 = Some(pending.clone());
        let task = task();
        tokio::spawn(async move { done.send(Some(task.await)) });
        Pending(pending)
    }

    /// Forgets the task: a later caller starts another one.
    pub(crate) fn end(&mut self) {
        self.0 = None;
    }
}

impl<T: Clone> Pending<T> {
    pub(crate) async fn result(mut self) -> RedisResult<T> {
        let ended = || RedisError::from(io::Error::other("the runtime of a connection has ended"));
        let made = self.0.wait_for(Option::is_some).await.map_err(|_| ended())?;
        made.clone().unwrap_or_else(|| Err(ended()))
    }
}
