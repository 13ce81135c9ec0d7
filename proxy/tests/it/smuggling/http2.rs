//! Requests as frames of HTTP/2, without TLS.

use std::net::SocketAddr;

use tollgate_testing::wire::{bytes, text};

use super::verdict::{Bench, Reading, compare, conclude};
use crate::support::Frames;
use crate::support::frames::{
    self, ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GONE, HEADERS, PING, RESET, block, fields, frame,
};

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST /x HTTP/1.1";
const GET: &str = "GET /x HTTP/1.1";

/// Returns a request on the first stream: its fields, in frames of up to 16 KB.
fn head(fields: &[(&str, &str)], flags: u8) -> Vec<u8> {
    frames::head(1, flags, fields)
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
pub(super) fn ask(address: SocketAddr, sent: &[u8], leaves: bool) -> Outcome {
    let mut client = Frames::connect(address, &[]);
    // The proxy may close the connection before it has read all of them.
    let _ = client.try_write(&[sent, &frame(PING, 0, 0, b"smuggled")].concat());
    while let Some((kind, flags, stream)) = client.next() {
        match (kind, stream) {
            (PING, 0) if flags & ACK != 0 && leaves => break,
            (GONE, 0) | (RESET, 1) => break,
            (HEADERS | DATA, 1) if flags & END_STREAM != 0 => {
                let (status, body) = client.seen(1);
                return if status == 200 { Outcome::Answered(text(body)) } else { Outcome::Refused };
            }
            _ => (),
        }
    }
    Outcome::Refused
}

fn get(more: &[(&str, &str)]) -> Vec<u8> {
    head(&fields("GET", "/x", more), END_STREAM)
}

fn with_body(method: &str, more: &[(&str, &str)], body: &str) -> Vec<u8> {
    let head = head(&fields(method, "/x", more), 0);
    [head, frame(DATA, END_STREAM, 1, &bytes(body))].concat()
}

struct Shape {
    name: &'static str,
    frames: Vec<u8>,
    reading: Reading,
    /// Whether the client leaves after the frames.
    leaves: bool,
}

#[derive(Default)]
struct Table(Vec<Shape>);

impl Table {
    fn refused(&mut self, name: &'static str, frames: Vec<u8>) {
        self.0.push(Shape { name, frames, reading: Reading::Refused, leaves: false });
    }

    fn cut(&mut self, name: &'static str, frames: Vec<u8>) {
        self.0.push(Shape { name, frames, reading: Reading::Refused, leaves: true });
    }

    fn one(&mut self, name: &'static str, frames: Vec<u8>, start: &str, body: &str) {
        let reading = Reading::Each(vec![(start.to_owned(), body.to_owned())]);
        self.0.push(Shape { name, frames, reading, leaves: false });
    }
}

fn table() -> Vec<Shape> {
    let mut table = Table::default();
    lengths(&mut table);
    fields_of_heads(&mut table);
    pseudo(&mut table);
    frames(&mut table);
    table.0
}

fn lengths(table: &mut Table) {
    for (name, value) in
        [("transfer-encoding", "chunked"), ("transfer-encoding", "identity"), ("connection", "close")]
    {
        table.refused("a header of HTTP/1", get(&[(name, value)]));
        table.refused("a header of HTTP/1 with a body", with_body("POST", &[(name, value)], "0\r\n\r\n"));
    }
    for (name, value) in [
        ("connection", "transfer-encoding"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("te", "trailers, chunked"),
    ] {
        table.refused("a header of one connection", get(&[(name, value)]));
    }
    table.one("te: trailers", get(&[("te", "trailers")]), GET, "");
    let long = &SMUGGLED.len().to_string();
    for (name, lengths) in [
        ("a length beyond the data", &["39"][..]),
        ("a length before the end of the data", &["5"]),
        ("a length of 0", &["0"]),
        ("two lengths, the first right", &[long, "0"]),
        ("two lengths, the second right", &["0", long]),
        ("a length with a plus", &["+38"]),
        ("a length in hexadecimal", &["0x26"]),
        ("a list of lengths", &["38, 38"]),
        ("a length with a space", &["38 "]),
        ("an empty length", &[""]),
        ("a length above 2^64", &["18446744073709551654"]),
    ] {
        let lengths: Vec<_> = lengths.iter().map(|length| ("content-length", *length)).collect();
        assert!(lengths != [("content-length", &**long)], "{name} is the right one");
        table.refused(name, with_body("POST", &lengths, SMUGGLED));
    }
    table.refused(
        "a length without data",
        head(&fields("POST", "/x", &[("content-length", "5")]), END_STREAM),
    );
    table.refused("a length of a GET without data", get(&[("content-length", "5")]));
    table.cut("data without an end", head(&fields("POST", "/x", &[("content-length", "5")]), 0));
    let part = frame(DATA, 0, 1, &bytes(SMUGGLED));
    table.cut("data without an end, of no length", [head(&fields("POST", "/x", &[]), 0), part].concat());
    let length = &[("content-length", long.as_str())][..];
    table.one("the right length", with_body("POST", length, SMUGGLED), POST, SMUGGLED);
    table.one(
        "the right length twice",
        with_body("POST", &[length, length].concat(), SMUGGLED),
        POST,
        SMUGGLED,
    );
    let zeros = &[("content-length", "00034")][..];
    table.one(
        "the right length after zeros",
        with_body("POST", zeros, &SMUGGLED[..34]),
        POST,
        &SMUGGLED[..34],
    );
    table.one("no length", with_body("POST", &[], SMUGGLED), POST, SMUGGLED);
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "FOO"] {
        let start = format!("{method} /x HTTP/1.1");
        table.one("data of a method that has none", with_body(method, &[], SMUGGLED), &start, SMUGGLED);
        table.one("data of the right length", with_body(method, length, SMUGGLED), &start, SMUGGLED);
    }
    let underscores = [("content_length", "0"), ("transfer_encoding", "chunked")];
    table.one("lengths with underscores", with_body("POST", &underscores, SMUGGLED), POST, SMUGGLED);
    let frames = [
        head(&fields("POST", "/x", &[]), 0),
        frame(DATA, 0, 1, b"5\r\nhello\r\n"),
        frame(DATA, 0, 1, b""),
        frame(DATA, END_STREAM, 1, b"0\r\n\r\n"),
    ];
    table.one("chunks as data", frames.concat(), POST, "5\r\nhello\r\n0\r\n\r\n");
    let trailers = |fields: &[(&str, &str)]| {
        let end = frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(fields));
        [head(&self::fields("POST", "/x", &[]), 0), frame(DATA, 0, 1, b"hello"), end].concat()
    };
    table.one(
        "trailers",
        trailers(&[("content-length", "9"), ("host", "b"), ("x-real-ip", "1.2.3.4")]),
        POST,
        "hello",
    );
    table.refused("trailers of HTTP/1", trailers(&[("transfer-encoding", "chunked")]));
    // The proxy drops them as it drops other trailers.
    table.one("pseudo headers as trailers", trailers(&[(":path", "/smuggled")]), POST, "hello");
}

fn fields_of_heads(table: &mut Table) {
    for (name, field, value) in [
        ("CRLF in a value", "x", "y\r\nTransfer-Encoding: chunked"),
        ("two CRLFs in a value", "x", "y\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a"),
        ("LF in a value", "x", "y\nTransfer-Encoding: chunked"),
        ("CR in a value", "x", "y\rTransfer-Encoding: chunked"),
        ("NUL in a value", "x", "y\0z"),
        ("CRLF in a name", "x: y\r\ntransfer-encoding", "chunked"),
        ("LF in a name", "x\ny", "z"),
        ("a colon in a name", "transfer-encoding: chunked", ""),
        ("a space in a name", "transfer-encoding ", "chunked"),
        ("a space before a name", " host", "b"),
        ("NUL in a name", "x\0", "y"),
        ("a high byte in a name", "x\u{e9}", "y"),
        ("capitals", "Transfer-Encoding", "chunked"),
        ("a capital", "X", "y"),
        ("no name", "", "y"),
        ("a colon before the name", ":host", "b"),
        ("an odd host", "host", "a/b"),
        ("two hosts", "host", "a\r\nhost: b"),
    ] {
        table.refused(name, get(&[(field, value)]));
    }
    table.refused("two host headers", get(&[("host", "a"), ("host", "b")]));
    for (name, field, value) in [
        ("another host", "host", "b"),
        ("a claim", "x-forwarded-for", "1.2.3.4"),
        ("a claim with underscores", "x_forwarded_for", "1.2.3.4"),
        ("a tab and high bytes", "x", "y\tz\u{e9}"),
        ("a trailer", "trailer", "content-length"),
        ("expect", "expect", "100-continue"),
    ] {
        table.one(name, get(&[(field, value)]), GET, "");
    }
    table.refused("headers of 100 KB", get(&[("x", &*"y".repeat(1_000)); 100]));
    table.refused("a header of 100 KB", get(&[("x", &*"y".repeat(100_000))]));
}

fn pseudo(table: &mut Table) {
    for (name, path) in [
        ("a path without a slash", "smuggled"),
        ("an empty path", ""),
        ("a path of a host", "a:80"),
        ("a URL as the path", "http://b/smuggled"),
        ("a space in the path", "/smuggled y"),
        ("a version in the path", "/smuggled HTTP/1.1"),
        ("CRLF in the path", "/smuggled HTTP/1.1\r\nHost: b\r\n\r\nGET /smuggled"),
        ("LF in the path", "/smuggled\nX: y"),
        ("NUL in the path", "/smuggled\0"),
        ("a tab in the path", "/smuggled\ty"),
        ("no UTF-8 in the path", "/smuggled\u{ff}"),
        ("an asterisk", "*"),
        ("an asterisk and more", "*/smuggled"),
    ] {
        table.refused(name, head(&fields("GET", path, &[]), END_STREAM));
    }
    for (name, method) in [
        ("an empty method", ""),
        ("a space in the method", "GET /smuggled HTTP/1.1"),
        ("CRLF in the method", "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\nGET"),
        ("a tab in the method", "GET\t"),
        ("CONNECT with a path", "CONNECT"),
    ] {
        table.refused(name, head(&fields(method, "/smuggled", &[]), END_STREAM));
    }
    let (method, scheme, authority, path) =
        ((":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/smuggled"));
    for (name, fields) in [
        ("two paths", &[method, scheme, authority, path, path][..]),
        ("two other paths", &[method, scheme, authority, path, (":path", "/x")]),
        ("two methods", &[method, method, scheme, authority, path]),
        ("two schemes", &[method, scheme, scheme, authority, path]),
        ("two authorities", &[method, scheme, authority, (":authority", "b"), path]),
        ("no path", &[method, scheme, authority]),
        ("no method", &[scheme, authority, path]),
        ("no scheme", &[method, authority, path]),
        ("no host", &[method, scheme, path]),
        ("a status", &[method, scheme, authority, path, (":status", "200")]),
        ("an unknown pseudo header", &[method, scheme, authority, path, (":smuggled", "x")]),
        ("a protocol", &[method, scheme, authority, path, (":protocol", "websocket")]),
        ("a path after a header", &[method, scheme, authority, ("x", "y"), path]),
        ("an authority after a header", &[method, scheme, path, ("host", "a"), authority]),
        ("a second path after a header", &[method, scheme, authority, path, ("x", "y"), path]),
        ("an authority of a user", &[method, scheme, (":authority", "b@a"), path]),
        ("an authority with a path", &[method, scheme, (":authority", "a/smuggled"), path]),
        ("an authority with a space", &[method, scheme, (":authority", "a b"), path]),
        ("an authority with CRLF", &[method, scheme, (":authority", "a\r\nX: y"), path]),
        ("an authority with a port of letters", &[method, scheme, (":authority", "a:b"), path]),
        ("an empty authority", &[method, scheme, (":authority", ""), path]),
        ("a scheme that is a URL", &[method, (":scheme", "http://b/?"), authority, path]),
        ("a scheme with a space", &[method, (":scheme", "http "), authority, path]),
        ("a scheme with CRLF", &[method, (":scheme", "http\r\nX: y"), authority, path]),
        ("a scheme that is unknown", &[method, (":scheme", "file"), authority, path]),
        ("an empty scheme", &[method, (":scheme", ""), authority, path]),
        ("CONNECT", &[(":method", "CONNECT"), (":authority", "a:80")]),
        (
            "CONNECT with a protocol",
            &[(":method", "CONNECT"), scheme, authority, path, (":protocol", "websocket")],
        ),
    ] {
        table.refused(name, head(fields, END_STREAM));
    }
    let path = (":path", "/x");
    for (name, fields) in [
        ("a host without an authority", &[method, scheme, path, ("host", "a")][..]),
        ("an authority and another host", &[method, scheme, authority, path, ("host", "b")]),
        ("another scheme", &[method, (":scheme", "https"), authority, path]),
        ("pseudo headers in another order", &[path, authority, scheme, method]),
        ("a fragment", &[method, scheme, authority, (":path", "/x#smuggled")]),
    ] {
        table.one(name, head(fields, END_STREAM), GET, "");
    }
    for (name, method, path, start) in [
        ("OPTIONS *", "OPTIONS", "*", "OPTIONS * HTTP/1.1"),
        ("a query only", "GET", "?x", "GET /?x HTTP/1.1"),
        ("two slashes", "GET", "//b/x", "GET //b/x HTTP/1.1"),
        ("CRLF as escapes", "GET", "/%0d%0aX:%20y", "GET /%0d%0aX:%20y HTTP/1.1"),
        ("a method in small letters", "get", "/x", "get /x HTTP/1.1"),
    ] {
        table.one(name, head(&fields(method, path, &[]), END_STREAM), start, "");
    }
}

fn frames(table: &mut Table) {
    let whole = bare("GET", "/x");
    table.refused("data of no request", frame(DATA, END_STREAM, 1, &bytes(SMUGGLED)));
    table.refused("a request on stream 0", frame(HEADERS, END_STREAM | END_HEADERS, 0, &whole[9..]));
    table.refused("a request on an even stream", frame(HEADERS, END_STREAM | END_HEADERS, 2, &whole[9..]));
    table.refused("a block that is no block", frame(HEADERS, END_STREAM | END_HEADERS, 1, &bytes(SMUGGLED)));
    table.refused("a continuation of nothing", frame(CONTINUATION, END_HEADERS, 1, &whole[9..]));
    let open = frame(HEADERS, END_STREAM, 1, &whole[9..]);
    let between = [open.clone(), frame(DATA, END_STREAM, 1, b"x"), frame(CONTINUATION, END_HEADERS, 1, b"")];
    table.refused("data within a block", between.concat());
    table.refused("a request of HTTP/1 within a block", [open.clone(), bytes(SMUGGLED)].concat());
    table.refused("a request of HTTP/1", bytes(SMUGGLED));
    table.cut("a block without an end", open.clone());
    table.one("a block in two parts", [open, frame(CONTINUATION, END_HEADERS, 1, b"")].concat(), GET, "");
}

fn judge(bench: &mut Bench, shape: &Shape) -> Result<(), String> {
    let outcome = ask(bench.address(), &shape.frames, shape.leaves);
    let seen = bench.settle()?;
    compare(&seen, shape.reading.requests())?;
    let expected = match shape.reading.requests().first() {
        None => Outcome::Refused,
        Some((start, _)) if start.starts_with("HEAD ") => Outcome::Answered(String::new()),
        Some((start, _)) => Outcome::Answered(start.clone()),
    };
    if outcome == expected { Ok(()) } else { Err(format!("{outcome:?}, not {expected:?}")) }
}

fn run(mut bench: Bench) {
    let mut faults = Vec::new();
    for (number, shape) in table().iter().enumerate() {
        faults.extend(judge(&mut bench, shape).err().map(|why| format!("{number}, {}: {why}", shape.name)));
    }
    faults.extend(bench.end());
    conclude(&faults);
}

#[test]
fn no_request_gets_through_in_frames() {
    run(Bench::start(""));
}

/// The upstream gets the client's host.
#[test]
fn no_request_gets_through_in_frames_to_another_host() {
    run(Bench::start("--preserve-host"));
}

/// The frames become others, and then a request of HTTP/1.1.
#[test]
fn no_request_gets_through_an_upstream_of_http2() {
    for tls in [false, true] {
        run(Bench::start_two(tls));
    }
}
