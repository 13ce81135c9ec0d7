//! The stream of a discovery service: gRPC in both directions, alone on a connection of HTTP/2.
//!
//! It holds one message at a time, of a bounded length: the next one is read once the answer to it
//! is sent.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::{pending, poll_fn};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::{Builder, SendRequest};
use h2::{Ping, PingPong, RecvStream, SendStream};
use hyper::{Request, StatusCode};
use prost::Message;
use tokio::time::{sleep, timeout};
use tollgate_common::net::io::Io;
use tonic::{Code, Status};

use super::messages::{DiscoveryRequest, DiscoveryResponse};

/// The bytes that the server may send ahead.
const WINDOW: u32 = 1 << 20;
/// The most bytes of a head.
const HEAD: u32 = 64 << 10;
/// The bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// From one ping to the next, and for its answer. Servers of gRPC close a connection that pings
/// more often than each 5 minutes, unless they are told otherwise. A host that is gone is noticed
/// sooner, by the probes of TCP.
const PING: Duration = Duration::from_secs(330);
const PONG: Duration = Duration::from_secs(30);
/// For the next part of a message that has begun, and until the server takes an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Opens HTTP/2. Returns the sender of requests, the pings, and the work of the connection, which
/// never ends: the end of a connection is one of its streams, which have the reason.
pub(super) async fn open(
    io: impl Io,
) -> Result<(SendRequest<Bytes>, PingPong, impl Future<Output = Infallible>), String> {
    let mut builder = Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
    builder.max_header_list_size(HEAD).enable_push(false);
    let (sender, mut connection) = builder.handshake::<_, Bytes>(io).await.map_err(told)?;
    let pings = connection.ping_pong().ok_or("the pings are taken")?;
    let drive = async {
        let _ = connection.await;
        pending().await
    };
    Ok((sender, pings, drive))
}

fn told(error: impl Display) -> String {
    error.to_string()
}

/// Pings at each interval. It returns once there is no answer.
pub(super) async fn keep_alive(mut pings: PingPong) -> Result<Infallible, String> {
    loop {
        sleep(PING).await;
        ping(&mut pings).await?;
    }
}

/// Returns once the server has answered a ping.
pub(super) async fn ping(pings: &mut PingPong) -> Result<(), String> {
    match timeout(PONG, pings.ping(Ping::opaque())).await {
        Ok(answered) => answered.map(drop).map_err(told),
        Err(_) => Err(format!("a ping was not answered within {PONG:?}")),
    }
}

/// A call whose messages go in both directions.
pub(super) struct DiscoveryCall {
    up: SendStream<Bytes>,
    down: RecvStream,
    /// The bytes that came, and are no whole message yet.
    buffer: BytesMut,
}

impl DiscoveryCall {
    /// Sends the first request, and waits for the head of the answer.
    pub(super) async fn begin(
        sender: SendRequest<Bytes>,
        head: Request<()>,
        first: &DiscoveryRequest,
    ) -> Result<DiscoveryCall, String> {
        let mut sender = sender.ready().await.map_err(told)?;
        let (response, mut up) = sender.send_request(head, false).map_err(told)?;
        send(&mut up, first).await?;
        let (head, down) = response.await.map_err(told)?.into_parts();
        if let Some(status) = Status::from_header_map(&head.headers) {
            return Err(ended(&status));
        }
        if head.status != StatusCode::OK {
            return Err(format!("it answers with the status {} of HTTP", head.status.as_u16()));
        }
        Ok(DiscoveryCall { up, down, buffer: BytesMut::new() })
    }

    pub(super) async fn send(&mut self, request: &DiscoveryRequest) -> Result<(), String> {
        send(&mut self.up, request).await
    }

    /// Returns the next response, of a bounded length. The error is the end of the stream.
    pub(super) async fn next(&mut self, most: usize) -> Result<DiscoveryResponse, String> {
        if let Some(message) = next(&mut self.down, &mut self.buffer, most).await? {
            let response = DiscoveryResponse::decode(message);
            return response.map_err(|why| format!("a response cannot be read: {why}"));
        }
        let trailers = self.down.trailers().await.map_err(told)?.unwrap_or_default();
        let status = Status::from_header_map(&trailers);
        Err(status.map_or_else(|| "the stream ended without a status".to_owned(), |status| ended(&status)))
    }
}

fn ended(status: &Status) -> String {
    match (status.code(), status.message()) {
        (Code::Ok, _) => "it ended the stream".to_owned(),
        (code, "") => format!("it ended the stream: {code:?}"),
        (code, why) => format!("it ended the stream: {code:?}: {why}"),
    }
}

/// Returns a message as gRPC sends it.
pub(super) fn framed(message: &impl Message) -> Result<Bytes, String> {
    let length = u32::try_from(message.encoded_len()).map_err(told)?;
    let mut bytes = BytesMut::with_capacity(PREFIX + message.encoded_len());
    bytes.put_u8(0);
    bytes.put_u32(length);
    message.encode(&mut bytes).map_err(told)?;
    Ok(bytes.freeze())
}

/// Sends a message, as the server takes its bytes.
async fn send(up: &mut SendStream<Bytes>, message: &impl Message) -> Result<(), String> {
    let mut bytes = framed(message)?;
    while !bytes.is_empty() {
        up.reserve_capacity(bytes.len());
        let room = timeout(PATIENCE, poll_fn(|context| up.poll_capacity(context))).await;
        let room = room.map_err(|_| format!("it did not take a request within {PATIENCE:?}"))?;
        let room = room.ok_or("the stream is closed")?.map_err(told)?;
        up.send_data(bytes.split_to(room.min(bytes.len())), false).map_err(told)?;
    }
    Ok(())
}

/// Returns the next message, or `None` at the end of the stream.
async fn next(body: &mut RecvStream, buffer: &mut BytesMut, most: usize) -> Result<Option<Bytes>, String> {
    loop {
        if let Some(length) = length_of(buffer, most)?
            && buffer.len() >= PREFIX + length
        {
            buffer.advance(PREFIX);
            let message = buffer.split_to(length).freeze();
            // The memory of a long message does not outlive it.
            *buffer = BytesMut::from(&buffer[..]);
            return Ok(Some(message));
        }
        let part = match buffer.is_empty() {
            true => body.data().await,
            false => timeout(PATIENCE, body.data())
                .await
                .map_err(|_| format!("a part of a message came, and no more of it within {PATIENCE:?}"))?,
        };
        let Some(part) = part else {
            let is_whole = buffer.is_empty();
            return if is_whole { Ok(None) } else { Err("the stream ended in a message".to_owned()) };
        };
        let part = part.map_err(told)?;
        body.flow_control().release_capacity(part.len()).map_err(told)?;
        buffer.extend_from_slice(&part);
    }
}

/// Returns the length of the message that begins, once its prefix is there.
fn length_of(buffer: &[u8], most: usize) -> Result<Option<usize>, String> {
    let Some(&[is_compressed, a, b, c, d]) = buffer.first_chunk() else { return Ok(None) };
    if is_compressed != 0 {
        return Err("a message is compressed, which was not asked for".to_owned());
    }
    match u32::from_be_bytes([a, b, c, d]) as usize {
        length if length > most => Err(format!(
            "a message has {length} bytes, the most is {most} by XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"
        )),
        length => Ok(Some(length)),
    }
}
