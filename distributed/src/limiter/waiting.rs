//! A request that waits for an answer of the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::slot::{Decided, Slot};

/// The part of a waiting request that its caller holds. A drop gives back a grant that is on its
/// way.
pub(crate) struct Waiting<'a> {
    slot: &'a Arc<Slot>,
    n: u64,
    queue: &'a UnboundedSender<Arc<Slot>>,
    receiver: oneshot::Receiver<Decided>,
}

impl<'a> Waiting<'a> {
    /// Adds a request to those of its slot.
    pub(crate) fn new(slot: &'a Arc<Slot>, n: u64, queue: &'a UnboundedSender<Arc<Slot>>) -> Waiting<'a> {
        Waiting { slot, n, queue, receiver: slot.wait(n) }
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

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(Ok(_)) = self.close() {
            self.slot.put_back(self.n, self.queue);
        }
    }
}
