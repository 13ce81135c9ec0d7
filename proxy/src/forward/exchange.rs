//! One request over one connection of HTTP/1, to the head of its response.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, Response};

use super::bodies::Sent;
use super::connect::Failure;

/// The failure of an attempt, and the request if it was not sent.
pub(crate) type Unanswered = (Failure, Option<Box<Request<Sent>>>);

pub(super) fn unanswered(mut error: TrySendError<Request<Sent>>) -> Unanswered {
    let unsent = error.take_message().map(Box::new);
    (Failure::of(error.into_error()), unsent)
}

/// Sends a request. Returns its response, and the connection unless that has closed.
///
/// A request that enters the queue of a connection at the moment at which the connection ends is
/// neither taken nor returned: the queue lives on with its sender. So the sender is dropped once
/// the connection has ended, and the queue returns the request.
pub(crate) async fn exchange(
    mut sender: SendRequest<Sent>,
    request: Request<Sent>,
) -> Result<(Response<Incoming>, Option<SendRequest<Sent>>), Unanswered> {
    let mut answer = pin!(sender.try_send_request(request));
    let before_end = poll_fn(|context| {
        if let Poll::Ready(answer) = answer.as_mut().poll(context) {
            return Poll::Ready(Some(answer));
        }
        match sender.poll_ready(context) {
            Poll::Ready(Err(_)) => Poll::Ready(None),
            // It is about to take the request, and registers no wish to be woken.
            Poll::Ready(Ok(())) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    });
    match before_end.await {
        Some(answer) => Ok((answer.map_err(unanswered)?, Some(sender))),
        None => {
            drop(sender);
            Ok((answer.await.map_err(unanswered)?, None))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::spin_loop;
    use std::time::Duration;

    use bytes::Bytes;
    use http_body_util::{Either, Full};
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;

    use super::*;

    /// The connection ends on another thread, at about the moment at which the request comes.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_request_comes_back_from_a_connection_that_ends() {
        for round in 0..10_000 {
            let (link, upstream) = tokio::io::duplex(64);
            let (mut sender, connection) = http1::handshake(TokioIo::new(link)).await.unwrap();
            tokio::spawn(connection);
            sender.ready().await.unwrap();
            let ends = tokio::spawn(async { drop(upstream) });
            (0..round % 500).for_each(|_| spin_loop());
            let request = Request::new(Either::Left(Full::<Bytes>::default()));
            let answer = tokio::time::timeout(Duration::from_secs(20), exchange(sender, request)).await;
            assert!(answer.expect("an answer").is_err());
            ends.await.unwrap();
        }
    }
}
