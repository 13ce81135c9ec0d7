//! A few connections. Each is made when it is needed, and replaced when it has ended.
//!
//! A task makes the connection. It goes on if its caller gives up, and later callers wait for the
//! same task.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::fault::Fault;
use crate::store::error::StoreErrorKind;
use crate::store::single::Single;

/// A connection that is ready for calls.
pub(crate) trait Session: Send + Sync + 'static {
    /// Tells whether the connection must be replaced.
    fn is_closed(&self) -> bool;
}

type Making<S> = Pin<Box<dyn Future<Output = Result<S, Fault>> + Send>>;

/// Makes a connection that is ready for calls.
pub(crate) type Connect<S> = Arc<dyn Fn() -> Making<S> + Send + Sync>;

/// One of the connections: the last one that was made, and the task that makes the next one.
struct Entry<S> {
    made: Option<Arc<S>>,
    next: Single<Arc<S>, Fault>,
}

/// The connections of a store.
pub(crate) struct Sessions<S> {
    entries: Vec<Arc<Mutex<Entry<S>>>>,
    next: AtomicUsize,
    connect: Connect<S>,
}

impl<S> fmt::Debug for Sessions<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("connections", &self.entries.len()).finish_non_exhaustive()
    }
}

impl<S: Session> Sessions<S> {
    pub(crate) fn new(count: usize, connect: Connect<S>) -> Sessions<S> {
        let entry = |_| Arc::new(Mutex::new(Entry { made: None, next: Single::default() }));
        let entries = (0..count.max(1)).map(entry).collect();
        Sessions { entries, next: AtomicUsize::new(0), connect }
    }

    /// Returns the next connection, in turns. Waits while it is being made.
    pub(crate) async fn session(&self) -> Result<Arc<S>, Fault> {
        // The number is below the count.
        let entry = &self.entries[self.next.fetch_add(1, Ordering::Relaxed) % self.entries.len()];
        let next = {
            let mut locked = entry.lock().unwrap_or_else(PoisonError::into_inner);
            match &locked.made {
                Some(session) if !session.is_closed() => return Ok(Arc::clone(session)),
                _ => locked.next.join(|| make(Arc::clone(entry), (self.connect)())),
            }
        };
        next.result().await
    }
}

/// Makes a connection for an entry.
async fn make<S: Session>(entry: Arc<Mutex<Entry<S>>>, making: Making<S>) -> Result<Arc<S>, Fault> {
    // A client panics for TLS that is not compiled in.
    let panicked = |panic| Err(Fault::new(StoreErrorKind::Permanent, panic));
    let made = tokio::spawn(making).await.unwrap_or_else(panicked).map(Arc::new);
    let mut locked = entry.lock().unwrap_or_else(PoisonError::into_inner);
    locked.next.end();
    locked.made = made.as_ref().ok().cloned();
    made
}
