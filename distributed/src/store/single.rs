//! A result that one task makes for many callers.

use std::future::Future;
use std::io;

use tokio::sync::watch;

/// The task that is under way, if one is.
///
/// The task goes on without its callers: a caller with a short deadline does not stop it.
pub(crate) struct Single<T, E>(Option<Pending<T, E>>);

/// A result that is being made.
pub(crate) struct Pending<T, E>(watch::Receiver<Option<Result<T, E>>>);

impl<T, E> Default for Single<T, E> {
    fn default() -> Single<T, E> {
        Single(None)
    }
}

impl<T, E> Single<T, E>
where
    T: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + From<io::Error> + 'static,
{
    /// Returns the result of the task that is under way, or starts one.
    ///
    /// The task must call [`end`](Single::end) before it returns.
    pub(crate) fn join<F>(&mut self, task: impl FnOnce() -> F) -> Pending<T, E>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        // A task whose runtime has ended is not under way.
        if let Some(Pending(pending)) = self.0.as_ref().filter(|pending| pending.0.has_changed().is_ok()) {
            return Pending(pending.clone());
        }
        let (done, pending) = watch::channel(None);
        self.0 = Some(Pending(pending.clone()));
        let task = task();
        tokio::spawn(async move { done.send(Some(task.await)) });
        Pending(pending)
    }

    /// Forgets the task: a later caller starts another one.
    pub(crate) fn end(&mut self) {
        self.0 = None;
    }
}

impl<T: Clone, E: Clone + From<io::Error>> Pending<T, E> {
    pub(crate) async fn result(mut self) -> Result<T, E> {
        let ended = || E::from(io::Error::other("the runtime of a connection has ended"));
        let made = self.0.wait_for(Option::is_some).await.map_err(|_| ended())?;
        made.clone().unwrap_or_else(|| Err(ended()))
    }
}
