//! Frames of HTTP/2: those of a request, and the outcome of it.

use std::net::SocketAddr;

use super::bytes;
use super::client::Client;

const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RESET: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GONE: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes fields, without compression and without an index (RFC 7541, 6.2.2).
pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            let text = bytes(text);
            length(text.len(), &mut block);
            block.extend(text);
        }
    }
    block
}

/// Encodes a number after a bit that is 0 (RFC 7541, 5.1).
pub(super) fn length(mut number: usize, block: &mut Vec<u8>) {
    if number < 127 {
        return block.push(number as u8);
    }
    block.push(127);
    number -= 127;
    while number >= 128 {
        block.push((number % 128) as u8 | 128);
        number /= 128;
    }
    block.push(number as u8);
}

/// Returns a request on the first stream: its fields, in frames of up to 16 KB.
pub(super) fn head(fields: &[(&str, &str)], flags: u8) -> Vec<u8> {
    let block = block(fields);
    let mut parts = block.chunks(16_384).peekable();
    let mut frames = Vec::new();
    let mut kind = HEADERS;
    while let Some(part) = parts.next() {
        let end = if parts.peek().is_none() { END_HEADERS } else { 0 };
        let flags = if kind == HEADERS { flags | end } else { end };
        frames.extend(frame(kind, flags, 1, part));
        kind = CONTINUATION;
    }
    frames
}

/// Returns the pseudo headers of a method and a path, and other fields.
pub(super) fn fields<'a>(
    method: &'a str,
    path: &'a str,
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let pseudo = [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)];
    [&pseudo, more].concat()
}

/// Returns a request without other headers.
pub(super) fn bare(method: &str, path: &str) -> Vec<u8> {
    head(&fields(method, path, &[]), END_STREAM)
}

/// The outcome of the request on the first stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A response with the status 200, and its body.
    Answered(String),
    /// Another status, the end of the stream, or the end of the connection.
    Refused,
}

/// Sends the frames, and waits for the outcome. If the client leaves, it waits only until the
/// frames are read.
pub(super) fn ask(address: SocketAddr, frames: &[u8], leaves: bool) -> Result<Outcome, String> {
    let mut client = Client::connect(address);
    let ping = frame(PING, 0, 0, b"smuggled");
    client.write(&[bytes(PREFACE), frame(SETTINGS, 0, 0, b""), frames.to_vec(), ping].concat());
    let mut is_good = false;
    let mut body = String::new();
    loop {
        let Some(Frame { kind, flags, stream, payload }) = next(&mut client)? else {
            return Ok(Outcome::Refused);
        };
        match (kind, stream) {
            (PING, 0) if flags & ACK != 0 && leaves => return Ok(Outcome::Refused),
            (GONE, 0) | (RESET, 1) => return Ok(Outcome::Refused),
            // The first field is the status. A status of 200 has a number of its own.
            (HEADERS, 1) => is_good |= payload.first() == Some(&0x88),
            (DATA, 1) => body += &super::text(&payload),
            _ => continue,
        }
        if flags & END_STREAM != 0 {
            return Ok(if is_good { Outcome::Answered(body) } else { Outcome::Refused });
        }
    }
}

pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

/// Reads the next frame. Returns `None` if the connection has ended.
pub(super) fn next(client: &mut Client) -> Result<Option<Frame>, String> {
    loop {
        if let [a, b, c, kind, flags, stream @ ..] = client.unread(0)
            && let Some((stream, rest)) = stream.split_first_chunk()
        {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if let Some(payload) = rest.get(..length) {
                let (kind, flags, stream) = (*kind, *flags, u32::from_be_bytes(*stream));
                let frame = Frame { kind, flags, stream, payload: payload.to_vec() };
                client.unread(9 + length);
                return Ok(Some(frame));
            }
        }
        if !client.more()? {
            return Ok(None);
        }
    }
}
