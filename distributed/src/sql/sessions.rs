//! A few connections. Each is made when it is needed, and replaced when it has ended.
//!
//! A task makes the connection. It goes on if its caller gives up, and later callers wait for the
//! same task.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::fault::Fault;
use crate::store::error::StoreErrorKind;

/// A connection that is ready for calls.
pub(crate) trait Session: Send + Sync + 'static {
    /// Tells whether the connection must be replaced.
    fn is_closed(&self) -> bool;
}

type Made<S> = Result<Arc<S>, Fault>;
type Making<S> = Pin<Box<dyn Future<Output = Result<S, Fault>> + Send>>;

/// Makes a connection that is ready for calls.
pub(crate) type Connect<S> = Arc<dyn Fn() -> Making<S> + Send + Sync>;

enum Stage<S> {
    None,
    Making(watch::Receiver<Option<Made<S>>>),
    Made(Arc<S>),
}

/// One of the connections, at its stage.
struct Entry<S>(Mutex<Stage<S>>);

impl<S> Entry<S> {
    fn stage(&self) -> MutexGuard<'_, Stage<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connections of a store.
pub(crate) struct Sessions<S> {
    entries: Vec<Arc<Entry<S>>>,
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
        let entries = (0..count.max(1)).map(|_| Arc::new(Entry(Mutex::new(Stage::None)))).collect();
        Sessions { entries, next: AtomicUsize::new(0), connect }
    }

    /// Returns the next connection, in turns. Waits while it is being made.
    pub(crate) async fn session(&self) -> Result<Arc<S>, Fault> {
        // The number is below the count.
        let entry = &self.entries[self.next.fetch_add(1, Ordering::Relaxed) % self.entries.len()];
        let mut made = {
            let mut stage = entry.stage();
            match &*stage {
                Stage::Made(session) if !session.is_closed() => return Ok(Arc::clone(session)),
                Stage::Making(made) => made.clone(),
                Stage::Made(_) | Stage::None => {
                    let made = make(Arc::clone(entry), (self.connect)());
                    *stage = Stage::Making(made.clone());
                    made
                }
            }
        };
        match made.wait_for(Option::is_some).await {
            Ok(made) => made.clone().unwrap_or_else(|| Err(ended())),
            Err(_) => Err(ended()),
        }
    }
}

/// Starts a task that makes a connection for an entry.
fn make<S: Session>(entry: Arc<Entry<S>>, making: Making<S>) -> watch::Receiver<Option<Made<S>>> {
    let (sender, made) = watch::channel(None);
    tokio::spawn(async move {
        // A client panics for TLS that is not compiled in.
        let made = tokio::spawn(making).await.unwrap_or_else(|panic| Err(permanent(panic)));
        let session = made.map(Arc::new);
        *entry.stage() = session.as_ref().map_or(Stage::None, |session| Stage::Made(Arc::clone(session)));
        sender.send_replace(Some(session));
    });
    made
}

fn ended() -> Fault {
    permanent("the runtime of the store has ended")
}

fn permanent(why: impl Into<Box<dyn Error + Send + Sync>>) -> Fault {
    Fault::new(StoreErrorKind::Permanent, why)
}
