//! HTTP/2 frame by frame, and clients that misuse it.

use std::collections::BTreeMap;
use std::io::{BufRead, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use super::PATIENCE;
use super::process::{Client, Proxy};
use super::watched::{GET, Holding, answering, assert_counts, await_count, over};

pub(super) const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The setting `SETTINGS_HEADER_TABLE_SIZE`. If it is 0, fields do not refer to earlier ones.
const TABLE: u16 = 1;
/// The setting `SETTINGS_INITIAL_WINDOW_SIZE`.
pub(super) const INITIAL_WINDOW: u16 = 4;

/// The longest payload of a frame.
const LONGEST: usize = 16_384;

/// A connection of HTTP/2. The test controls the flow: no window opens by itself.
pub(super) struct Http2 {
    pub(super) client: Client,
    /// Bytes that the proxy accepts on this connection.
    window: u32,
    /// The status and the data of each stream, and whether the data is whole.
    streams: BTreeMap<u32, (u16, Vec<u8>, bool)>,
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns a block of fields without compression, of which the first is the method.
pub(super) fn fields(method: &str, path: &str, others: &[(&str, &str)]) -> Vec<u8> {
    let first = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "a")];
    let mut block = Vec::new();
    for (name, value) in first.iter().chain(others) {
        block.push(0);
        for text in [name, value] {
            let length = text.len();
            match length.checked_sub(127) {
                None => block.push(length as u8),
                Some(mut more) => {
                    block.push(127);
                    while more >= 128 {
                        block.push((more % 128 + 128) as u8);
                        more /= 128;
                    }
                    block.push(more as u8);
                }
            }
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
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

impl Http2 {
    pub(super) fn connect(proxy: &Proxy, settings: &[(u16, u32)]) -> Http2 {
        let mut http2 = Http2 { client: proxy.connect(), window: 65_535, streams: BTreeMap::new() };
        let payload: Vec<u8> = [(TABLE, 0)]
            .iter()
            .chain(settings)
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        http2.write(&[PREFACE.as_bytes(), &frame(SETTINGS, 0, 0, &payload)].concat());
        http2
    }

    /// Writes bytes. An error is a connection that the proxy has closed.
    pub(super) fn try_write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.client.0.get_ref().write_all(bytes)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.try_write(bytes).expect("the proxy reads");
    }

    pub(super) fn headers(&mut self, stream: u32, flags: u8, block: &[u8]) {
        let mut parts = block.chunks(LONGEST).peekable();
        let (mut kind, mut flags) = (HEADERS, flags);
        while let Some(part) = parts.next() {
            let last = if parts.peek().is_none() { END_HEADERS } else { 0 };
            self.write(&frame(kind, flags | last, stream, part));
            (kind, flags) = (CONTINUATION, 0);
        }
    }

    pub(super) fn get(&mut self, stream: u32, path: &str) {
        self.headers(stream, END_STREAM, &fields("GET", path, &[]));
    }

    pub(super) fn ask(&mut self, stream: u32, others: &[(&str, &str)]) {
        self.headers(stream, END_STREAM, &fields("GET", "/", others));
    }

    /// Sends the head of a request with a body.
    pub(super) fn post(&mut self, stream: u32) {
        self.headers(stream, 0, &fields("POST", "/", &[]));
    }

    pub(super) fn data(&mut self, stream: u32, flags: u8, data: &[u8]) {
        self.write(&frame(DATA, flags, stream, data));
    }

    pub(super) fn open_window(&mut self, stream: u32, bytes: u32) {
        self.write(&frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes()));
    }

    pub(super) fn reset(&mut self, stream: u32) {
        self.write(&frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }

    /// Reads a frame, or returns `None` at the end of the connection. The proxy may give a reason
    /// for the end.
    fn read(&mut self) -> Option<(u8, u8, u32)> {
        let mut head = [0; 9];
        if let Err(error) = self.client.0.read_exact(&mut head) {
            let ends = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
            assert!(ends.contains(&error.kind()), "the connection stays open: {error}");
            return None;
        }
        let [a, b, c, kind, flags, ref stream @ ..] = head;
        let stream = u32::from_be_bytes(*stream);
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.client.0.read_exact(&mut payload).ok()?;
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
    pub(super) fn read_for(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.client.0.get_ref().set_read_timeout(Some(left)).expect("not zero");
            let arrived = self.client.0.fill_buf().map(|bytes| bytes.len());
            self.client.0.get_ref().set_read_timeout(Some(PATIENCE)).expect("not zero");
            let is_quiet = matches!(&arrived, Err(error) if error.kind() == ErrorKind::WouldBlock);
            if !is_quiet && self.read().is_none() {
                return false;
            }
        }
        true
    }

    /// Reads until the proxy has seen all frames up to here.
    pub(super) fn ping(&mut self) {
        self.write(&frame(PING, 0, 0, &[0; 8]));
        while !matches!(self.read().expect("the connection stays open"), (PING, ACK, 0)) {}
    }

    /// Reads until the response of this stream is whole, or was reset. The status of a reset is 0.
    pub(super) fn response(&mut self, stream: u32) -> (u16, Vec<u8>) {
        loop {
            if let Some((status, data, true)) = self.streams.get(&stream) {
                return (*status, data.clone());
            }
            match self.read().expect("the connection stays open") {
                (RST_STREAM, _, of) if of == stream => return (0, Vec::new()),
                (GOAWAY, ..) => panic!("the proxy goes away"),
                _ => (),
            }
        }
    }

    /// Reads until the given number of streams have a status.
    pub(super) fn statuses(&mut self, count: usize) -> Vec<u16> {
        loop {
            let statuses: Vec<u16> =
                self.streams.values().map(|stream| stream.0).filter(|status| *status > 0).collect();
            if statuses.len() >= count {
                return statuses;
            }
            self.read().expect("the connection stays open");
        }
    }

    /// Reads until the given number of bytes of the stream's data have come.
    pub(super) fn part(&mut self, stream: u32, length: usize) {
        while self.streams.get(&stream).is_none_or(|stream| stream.1.len() < length) {
            self.read().expect("the connection stays open");
        }
    }

    /// Reads until the proxy ends the connection.
    pub(super) fn end(mut self) {
        let begin = Instant::now();
        while self.read().is_some() {
            assert!(begin.elapsed() < PATIENCE, "the connection stays open");
        }
    }
}

fn other_is_served(proxy: &Proxy) {
    assert_eq!(proxy.connect().send(GET).body, "ok");
}

/// The proxy has two places, and a client resets up to 1,000 requests at once.
#[test]
fn requests_that_are_reset_at_once_leave_no_place_behind() {
    let proxy = over(answering().0, "--in-flight 2");
    for _ in 0..3 {
        let mut client = Http2::connect(&proxy, &[]);
        let block = fields("GET", "/", &[]);
        for stream in (1..2_000).step_by(2) {
            let headers = frame(HEADERS, END_STREAM | END_HEADERS, stream, &block);
            let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
            if client.try_write(&[headers, reset].concat()).is_err() {
                break;
            }
        }
        other_is_served(&proxy);
    }
    await_count(&proxy, "requests_under_way", 0);
    other_is_served(&proxy);
}

#[test]
fn a_flood_of_frames_stops_no_other_client() {
    let proxy = over(answering().0, "--timeout request_head=2s");
    let floods = [
        frame(SETTINGS, 0, 0, &[]),
        frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255]),
        frame(PING, 0, 0, &[0; 8]),
        frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()),
        // A kind that does not exist.
        frame(99, 0, 0, &[0; 16]),
    ];
    let mut flooding = Vec::new();
    for flood in floods {
        let mut client = Http2::connect(&proxy, &[]);
        client.client.0.get_ref().set_write_timeout(Some(Duration::from_secs(5))).expect("not zero");
        // The test reads no answer, so the proxy may stop reading, or close.
        let _ = client.try_write(&flood.repeat(1_000));
        other_is_served(&proxy);
        flooding.push(client);
    }
    flooding.into_iter().for_each(Http2::end);
}

#[test]
fn a_head_that_goes_on_and_on_ends_the_connection() {
    let proxy = over(answering().0, "");
    for continuation in
        [Vec::new(), vec![0x20], [&[0, 1, b'x', 127, 0xff, 0x7e][..], &[b'x'; 16_000]].concat()]
    {
        let mut client = Http2::connect(&proxy, &[]);
        client.write(&frame(HEADERS, END_STREAM, 1, &fields("GET", "/", &[])));
        // The proxy may close before all bytes are written.
        let _ = client.try_write(&frame(CONTINUATION, 0, 1, &continuation).repeat(10_000));
        client.end();
        other_is_served(&proxy);
    }
}

/// An empty frame costs nothing, so it must not keep a request waiting for longer.
#[test]
fn empty_frames_are_no_progress_of_a_body() {
    let holding = Holding::start();
    let proxy = over(holding.address, "--timeout request_body=300ms");
    let mut client = Http2::connect(&proxy, &[]);
    client.post(1);
    let held = holding.next();
    let begin = Instant::now();
    while client.streams.get(&1).is_none_or(|stream| stream.0 == 0) {
        assert!(begin.elapsed() < PATIENCE, "the request goes on");
        client.data(1, 0, b"");
        assert!(client.read_for(Duration::from_millis(50)));
    }
    assert_eq!(client.response(1).0, 408);
    held.rest();
    assert_counts(&proxy, &[("request_body_timeouts", 1)]);
}

#[test]
fn bodies_that_wait_in_the_proxy_have_256_kb_of_a_connection() {
    let holding = Holding::start();
    let proxy = over(holding.address, "--in-flight 1");
    let mut first = proxy.connect();
    first.write(GET);
    let held = holding.next();
    // These requests find no place, so their bodies wait in the proxy.
    let mut client = Http2::connect(&proxy, &[]);
    (1..200).step_by(2).for_each(|stream| client.post(stream));
    // The proxy opens the window once its settings are confirmed.
    client.ping();
    client.ping();
    let room = client.window;
    assert!(room <= 256 << 10, "{room} bytes of bodies");
    for (stream, part) in (1..).step_by(2).zip(vec![b'x'; room as usize].chunks(LONGEST)) {
        client.data(stream, 0, part);
    }
    client.ping();
    assert_eq!(client.window, room, "no more is asked for");
    drop((held, first));
}
