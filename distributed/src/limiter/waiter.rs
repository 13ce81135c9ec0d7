//! A request that waits for an answer of the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tollgate::{Denied, Granted};

use super::slot::Slot;

/// The answer to a waiting request; `None` if no call decided it.
pub(crate) type Decided = Option<Result<Granted, Denied>>;

/// The part of a waiting request that its slot holds.
pub(crate) struct Waiter {
    pub(crate) n: u64,
    sender: oneshot::Sender<Decided>,
}

impl Waiter {
    /// Answers the request. Returns whether it still waited.
    pub(crate) fn answer(self, decided: Decided) -> bool {
        self.sender.send(decided).is_ok()
    }
}

/// The part of a waiting request that its caller holds. A drop gives back a grant that is on its
/// way.
pub(crate) struct Waiting {
    slot: Arc<Slot>,
    n: u64,
    receiver: oneshot::Receiver<Decided>,
}

impl Waiting {
    pub(crate) fn new(slot: &Arc<Slot>, n: u64) -> (Waiter, Waiting) {
        let (sender, receiver) = oneshot::channel();
        (Waiter { n, sender }, Waiting { slot: slot.clone(), n, receiver })
    }

    /// Waits for the answer, up to the deadline.
    pub(crate) async fn wait(mut self, deadline: Duration) -> Decided {
        match timeout(deadline, &mut self.receiver).await {
            Ok(decided) => decided.unwrap_or(None),
            Err(_) => self.close(),
        }
    }

    /// Ends the wait, and returns an answer that is there by now.
    fn close(&mut self) -> Decided {
        self.receiver.close();
        self.receiver.try_recv().unwrap_or(None)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(Ok(_)) = self.close() {
            self.slot.lease.put(self.n);
        }
    }
}
