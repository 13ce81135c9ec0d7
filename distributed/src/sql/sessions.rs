//! A few connections. Each is made when it is needed, and replaced when it has ended.
//!
//! A task makes the connection. It goes on if its caller gives up, and later callers wait for the
//! same task.

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

enum State<S> {
    None,
    Making(watch::Receiver<Option<Made<S>>>),
    Made(Arc<S>),
}

struct Slot<S>(Mutex<State<S>>);

impl<S> Slot<S> {
    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connections of a store.
pub(crate) struct Sessions<S> {
    slots: Vec<Arc<Slot<S>>>,
    next: AtomicUsize,
    connect: Connect<S>,
}

impl<S: Session> Sessions<S> {
    pub(crate) fn new(count: usize, connect: Connect<S>) -> Sessions<S> {
        let slots = (0..count.max(1)).map(|_| Arc::new(Slot(Mutex::new(State::None)))).collect();
        Sessions { slots, next: AtomicUsize::new(0), connect }
    }

    /// Returns the next connection, in turns. Waits while it is being made.
    pub(crate) async fn session(&self) -> Result<Arc<S>, Fault> {
        // The number is below the count.
        let slot = &self.slots[self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len()];
        let mut made = {
            let mut state = slot.state();
            match &*state {
                State::Made(session) if !session.is_closed() => return Ok(Arc::clone(session)),
                State::Making(made) => made.clone(),
                State::Made(_) | State::None => {
                    let made = make(Arc::clone(slot), (self.connect)());
                    *state = State::Making(made.clone());
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

/// Starts a task that makes a connection for a slot.
fn make<S: Session>(slot: Arc<Slot<S>>, making: Making<S>) -> watch::Receiver<Option<Made<S>>> {
    let (sender, made) = watch::channel(None);
    tokio::spawn(async move {
        let session = making.await.map(Arc::new);
        *slot.state() = session.as_ref().map_or(State::None, |session| State::Made(Arc::clone(session)));
        sender.send_replace(Some(session));
    });
    made
}

fn ended() -> Fault {
    Fault::new(StoreErrorKind::Permanent, "the runtime of the store has ended")
}
