//! The body of a request, in the room that the service has for long messages.
//!
//! The first bytes of each message are free. A body waits for no room: it would keep the window of
//! its connection from the others, so it ends with an error, and the request is refused.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// The bytes of each message that take no room.
const FREE: usize = 4 << 10;
/// The bytes of gRPC before a message.
const PREFIX: usize = 5;

/// The body of a request. It keeps its room until it is dropped.
pub(super) struct Roomed<B> {
    body: B,
    read: usize,
    most: usize,
    room: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl<B> Roomed<B> {
    pub(super) fn new(body: B, most: usize, room: &Arc<Semaphore>) -> Roomed<B> {
        Roomed { body, read: 0, most, room: room.clone(), held: None }
    }

    /// Takes room for bytes. The error is a status `OutOfRange`.
    fn take(&mut self, bytes: usize) -> Result<(), Status> {
        self.read += bytes;
        if self.read <= FREE {
            return Ok(());
        }
        let most = self.most;
        if self.read > most + PREFIX {
            return Err(Status::out_of_range(format!("a message is longer than {most} bytes")));
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let more = self.room.clone().try_acquire_many_owned(bytes);
        let more = more.map_err(|_| Status::out_of_range("there is no more room for long messages"))?;
        match &mut self.held {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

impl<B: Body<Data = Bytes, Error = hyper::Error> + Unpin> Body for Roomed<B> {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose()?;
        if let Some(data) = frame.as_ref().and_then(Frame::data_ref) {
            self.take(data.len())?;
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
