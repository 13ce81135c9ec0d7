//! HTTP/2 frame by frame: the frames of a request, and a client that controls the flow.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tollgate_testing::wire::{Connection, bytes};

use super::until;

pub const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GONE: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// The setting `SETTINGS_HEADER_TABLE_SIZE`. If it is 0, fields do not refer to earlier ones.
const TABLE: u16 = 1;
/// The setting `SETTINGS_INITIAL_WINDOW_SIZE`.
pub const INITIAL_WINDOW: u16 = 4;

/// The longest payload of a frame.
pub const LONGEST: usize = 16_384;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes fields, without compression and without an index (RFC 7541, 6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
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
fn length(mut number: usize, block: &mut Vec<u8>) {
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

/// Returns the pseudo headers of a method and a path, and other fields.
pub fn fields<'a>(method: &'a str, path: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let pseudo = [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)];
    [&pseudo, more].concat()
}

/// Returns the head of a request: its fields, in frames of up to 16 KB.
pub fn head(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    let block = block(fields);
    let mut parts = block.chunks(LONGEST).peekable();
    let (mut frames, mut kind, mut flags) = (Vec::new(), HEADERS, flags);
    while let Some(part) = parts.next() {
        let last = if parts.peek().is_none() { END_HEADERS } else { 0 };
        frames.extend(frame(kind, flags | last, stream, part));
        (kind, flags) = (CONTINUATION, 0);
    }
    frames
}

/// Returns the status, which is the first field of a response.
fn status(block: &[u8]) -> u16 {
    match block {
        // A change of the size of the table.
        [0x20..=0x3f, rest @ ..] => status(rest),
        [first @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(first - 0x88)],
        // The name `:status`, and three digits, in the code of Huffman or not.
        [0x08 | 0x48, 3, a, b, c, ..] => {
            [a, b, c].iter().fold(0, |status, digit| status * 10 + u16::from(**digit - b'0'))
        }
        [0x08 | 0x48, length, rest @ ..] if *length & 0x80 != 0 => {
            let bits: String =
                rest[..usize::from(length & 0x7f)].iter().map(|byte| format!("{byte:08b}")).collect();
            let (mut bits, mut status) = (&*bits, 0);
            for _ in 0..3 {
                let (digit, length) =
                    match bits.get(..5).map(|code| u16::from_str_radix(code, 2).expect("bits")) {
                        Some(digit @ 0..=2) => (digit, 5),
                        _ => (u16::from_str_radix(&bits[..6], 2).expect("bits") - 0b011001 + 3, 6),
                    };
                (status, bits) = (status * 10 + digit, &bits[length..]);
            }
            status
        }
        _ => panic!("no status first: {block:?}"),
    }
}

/// A connection of HTTP/2. The test controls the flow: no window opens by itself.
pub struct Frames {
    pub client: Connection,
    /// Bytes that the proxy accepts on this connection.
    pub window: u32,
    /// The status and the data of each stream, and whether the data is whole.
    streams: BTreeMap<u32, (u16, Vec<u8>, bool)>,
}

impl Frames {
    pub fn connect(address: SocketAddr, settings: &[(u16, u32)]) -> Frames {
        let client = Connection::connect(address);
        let mut frames = Frames { client, window: 65_535, streams: BTreeMap::new() };
        let settings = [(TABLE, 0)].iter().chain(settings);
        let payload: Vec<u8> = settings
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        frames.write(&[PREFACE.as_bytes(), &frame(SETTINGS, 0, 0, &payload)].concat());
        frames
    }

    /// Writes bytes. An error is a connection that the proxy has closed.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.client.try_write(bytes)
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.try_write(bytes).expect("the proxy reads");
    }

    pub fn get(&mut self, stream: u32, path: &str) {
        self.write(&head(stream, END_STREAM, &fields("GET", path, &[])));
    }

    pub fn ask(&mut self, stream: u32, others: &[(&str, &str)]) {
        self.write(&head(stream, END_STREAM, &fields("GET", "/", others)));
    }

    /// Sends the head of a request with a body.
    pub fn post(&mut self, stream: u32) {
        self.write(&head(stream, 0, &fields("POST", "/", &[])));
    }

    pub fn data(&mut self, stream: u32, flags: u8, data: &[u8]) {
        self.write(&frame(DATA, flags, stream, data));
    }

    pub fn open_window(&mut self, stream: u32, bytes: u32) {
        self.write(&frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes()));
    }

    pub fn reset(&mut self, stream: u32) {
        self.write(&frame(RESET, 0, stream, &8_u32.to_be_bytes()));
    }

    /// Reads a frame, or returns `None` at the end of the connection. The proxy may give a reason
    /// for the end.
    pub fn next(&mut self) -> Option<(u8, u8, u32)> {
        let mut head = [0; 9];
        if let Err(error) = self.client.read_exact(&mut head) {
            let ends = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
            assert!(ends.contains(&error.kind()), "the connection stays open: {error}");
            return None;
        }
        let [a, b, c, kind, flags, ref stream @ ..] = head;
        let stream = u32::from_be_bytes(*stream);
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.client.read_exact(&mut payload).ok()?;
        let (of, data, end) = self.streams.entry(stream).or_default();
        match kind {
            HEADERS if *of == 0 => *of = status(&payload),
            DATA => data.extend_from_slice(&payload),
            _ => (),
        }
        *end |= matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0;
        match kind {
            SETTINGS if flags & ACK == 0 => drop(self.try_write(&frame(SETTINGS, ACK, 0, b""))),
            WINDOW_UPDATE if stream == 0 => {
                self.window += u32::from_be_bytes(payload.try_into().expect("four bytes"));
            }
            PING if flags & ACK == 0 => drop(self.try_write(&frame(PING, ACK, 0, &payload))),
            _ => (),
        }
        Some((kind, flags, stream))
    }

    /// Reads each frame that comes within `time`. Returns `false` at the end of the connection.
    pub fn read_for(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            if !self.client.is_quiet(left) && self.next().is_none() {
                return false;
            }
        }
        true
    }

    /// Reads until the proxy has seen all frames up to here.
    pub fn ping(&mut self) {
        self.write(&frame(PING, 0, 0, &[0; 8]));
        while !matches!(self.next().expect("the connection stays open"), (PING, ACK, 0)) {}
    }

    /// Returns the status of a stream, and the data so far. A stream without a head has the status
    /// 0.
    pub fn seen(&self, stream: u32) -> (u16, &[u8]) {
        self.streams.get(&stream).map_or((0, b""), |stream| (stream.0, &stream.1))
    }

    /// Reads until the response of this stream is whole, or was reset. The status of a reset is 0.
    pub fn response(&mut self, stream: u32) -> (u16, Vec<u8>) {
        loop {
            if let Some((status, data, true)) = self.streams.get(&stream) {
                return (*status, data.clone());
            }
            match self.next().expect("the connection stays open") {
                (RESET, _, of) if of == stream => return (0, Vec::new()),
                (GONE, ..) => panic!("the proxy goes away"),
                _ => (),
            }
        }
    }

    /// Reads until the given number of streams have a status.
    pub fn statuses(&mut self, count: usize) -> Vec<u16> {
        loop {
            let statuses = self.streams.values().map(|stream| stream.0).filter(|status| *status > 0);
            let statuses: Vec<u16> = statuses.collect();
            if statuses.len() >= count {
                return statuses;
            }
            self.next().expect("the connection stays open");
        }
    }

    /// Reads until the given number of bytes of the stream's data have come.
    pub fn part(&mut self, stream: u32, length: usize) {
        while self.seen(stream).1.len() < length {
            self.next().expect("the connection stays open");
        }
    }

    /// Reads until the proxy ends the connection.
    pub fn end(mut self) {
        until("the end of the connection", || self.next().is_none());
    }
}
