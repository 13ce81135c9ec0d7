//! Requests as bytes, over HTTP/1.

use super::bytes;
use super::client::{Client, End};
use super::verdict::{Bench, Reading, compare, conclude, own, refused};

/// A request that must never arrive as one of its own: a strict parser never sees it as a request.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
/// A request that a strict parser sees behind another one.
const SECOND: &str = "GET /second HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST /x HTTP/1.1";
const GET: &str = "GET /x HTTP/1.1";

/// The bytes of a client, and their strict reading.
struct Shape {
    name: &'static str,
    bytes: Vec<u8>,
    reading: Reading,
    /// Whether the client ends its side of the connection after the bytes.
    hangs_up: bool,
}

#[derive(Default)]
struct Table(Vec<Shape>);

impl Table {
    fn add(&mut self, name: &'static str, text: &str, reading: Reading) {
        self.0.push(Shape { name, bytes: bytes(text), reading, hangs_up: false });
    }

    fn refused(&mut self, name: &'static str, text: &str) {
        self.add(name, text, Reading::Refused);
    }

    /// Adds a request that is not whole, and the end of the client's side.
    fn cut(&mut self, name: &'static str, text: &str) {
        self.refused(name, text);
        if let Some(shape) = self.0.last_mut() {
            shape.hangs_up = true;
        }
    }

    fn one(&mut self, name: &'static str, text: &str, start: &str, body: &str) {
        self.each(name, text, &[(start, body)]);
    }

    fn each(&mut self, name: &'static str, text: &str, requests: &[(&str, &str)]) {
        self.add(name, text, Reading::Each(owned(requests)));
    }

    /// Adds one request, after which the proxy ends the connection.
    fn last(&mut self, name: &'static str, text: &str, start: &str, body: &str) {
        self.add(name, text, Reading::Last(owned(&[(start, body)])));
    }
}

fn owned(requests: &[(&str, &str)]) -> Vec<(String, String)> {
    requests.iter().map(|(start, body)| ((*start).to_owned(), (*body).to_owned())).collect()
}

fn message(start: &str, headers: &str, body: &str) -> String {
    format!("{start}\r\nHost: a\r\n{headers}\r\n{body}")
}

fn post(headers: &str, body: &str) -> String {
    message(POST, headers, body)
}

fn get(headers: &str) -> String {
    message(GET, headers, "")
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n", body)
}

/// Adds lengths beside a transfer coding, and codings that parsers read in different ways.
fn codings(table: &mut Table) {
    let length = 5 + SMUGGLED.len();
    let ended = format!("0\r\n\r\n{SMUGGLED}");
    let hidden = format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    let both = |te: &str, body: &str| post(&format!("Content-Length: {length}\r\n{te}\r\n"), body);

    table.last("CL.TE", &both("Transfer-Encoding: chunked", &ended), POST, "");
    let text = post(&format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n"), &ended);
    table.last("CL.TE, TE first", &text, POST, "");
    table.last(
        "TE.CL",
        &post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", &hidden),
        POST,
        SMUGGLED,
    );
    let text = post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", &hidden);
    table.last("TE.CL, TE first", &text, POST, SMUGGLED);
    table.last(
        "TE beside CL 0",
        &post("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", &hidden),
        POST,
        SMUGGLED,
    );
    table.last(
        "TE beside no CL",
        &post("Transfer-Encoding: chunked\r\nContent-Length: x\r\n", &hidden),
        POST,
        SMUGGLED,
    );
    let text = post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\nContent-Length: 7\r\n", &hidden);
    table.last("TE between two CLs", &text, POST, SMUGGLED);
    let text = post("Connection: keep-alive\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n", &ended);
    table.last("CL.TE with keep-alive", &text, POST, "");

    for (name, line) in [
        ("TE, space before the colon", "Transfer-Encoding : chunked"),
        ("TE, tab before the colon", "Transfer-Encoding\t: chunked"),
        ("TE, vertical tab before the colon", "Transfer-Encoding\u{b}: chunked"),
        ("TE, no-break space before the colon", "Transfer-Encoding\u{a0}: chunked"),
        ("TE, vertical tab before the value", "Transfer-Encoding: \u{b}chunked"),
        ("TE, form feed before the value", "Transfer-Encoding: \u{c}chunked"),
        ("TE, no-break space before the value", "Transfer-Encoding: \u{a0}chunked"),
        ("TE, NUL after the value", "Transfer-Encoding: chunked\0"),
        ("TE, NUL in the name", "Transfer\0-Encoding: chunked"),
        ("TE, DEL after the value", "Transfer-Encoding: chunked\u{7f}"),
        ("TE, next line after the value", "Transfer-Encoding: chunked\u{85}"),
        ("TE xchunked", "Transfer-Encoding: xchunked"),
        ("TE chunkedx", "Transfer-Encoding: chunkedx"),
        ("TE chunked, identity", "Transfer-Encoding: chunked, identity"),
        ("TE identity, chunked", "Transfer-Encoding: identity, chunked"),
        ("TE gzip, chunked", "Transfer-Encoding: gzip, chunked"),
        ("TE chunked, chunked", "Transfer-Encoding: chunked, chunked"),
        ("TE chunked and chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        ("TE chunked and identity", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
        ("TE identity and chunked", "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"),
        ("TE chunked and x", "Transfer-Encoding: chunked\r\nTransfer-Encoding: x"),
        ("TE x and chunked", "Transfer-Encoding: x\r\nTransfer-Encoding: chunked"),
        ("TE identity", "Transfer-Encoding: identity"),
        ("TE without a value", "Transfer-Encoding:"),
        ("TE chunked,", "Transfer-Encoding: chunked,"),
        ("TE , chunked", "Transfer-Encoding: , chunked"),
        ("TE with a parameter", "Transfer-Encoding: chunked;q=1"),
        ("TE quoted", "Transfer-Encoding: \"chunked\""),
        ("TE in single quotes", "Transfer-Encoding: 'chunked'"),
        ("TE, chunked and a space inside", "Transfer-Encoding: chun ked"),
        ("TE on a folded line", "Transfer-Encoding:\r\n chunked"),
        ("TE on a line folded with a tab", "Transfer-Encoding:\r\n\tchunked"),
        ("TE, continued on a folded line", "Transfer-Encoding: chunked\r\n , identity"),
        ("TE folded to the line before", "X: y\r\n Transfer-Encoding: chunked"),
        ("TE after CR alone", "X: y\rTransfer-Encoding: chunked"),
        ("TE before CR CR LF", "Transfer-Encoding: chunked\r"),
        ("TE after LF CR", "X: y\n\rTransfer-Encoding: chunked"),
    ] {
        table.refused(name, &both(line, &ended));
    }
    let text = format!(
        "{POST}\r\n Transfer-Encoding: chunked\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{ended}"
    );
    table.refused("a space before the first header", &text);
    let text = both("X: y\nTransfer-Encoding: chunked", &ended);
    table.last("TE after LF alone", &text, POST, "");
    table.last("TE after a tab", &both("Transfer-Encoding:\tchunked", &ended), POST, "");
    table.last("TE without a space", &both("Transfer-Encoding:chunked", &ended), POST, "");
    table.last("TE in capitals", &both("TRANSFER-ENCODING: CHUNKED", &ended), POST, "");
    table.one(
        "TE in odd case",
        &post("tRANSFER-eNCODING: cHuNkEd\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        POST,
        "hello",
    );
    let text = post(&format!("Transfer_Encoding: chunked\r\nContent-Length: {}\r\n", ended.len()), &ended);
    table.one("TE with an underscore", &text, POST, &ended);
    let text = post(&format!("TE: chunked\r\nContent-Length: {}\r\n", ended.len()), &ended);
    table.one("TE of the response", &text, POST, &ended);
    let text = message("POST /x HTTP/1.0", "Transfer-Encoding: chunked\r\n", &ended);
    table.refused("TE in HTTP/1.0", &text);
    let text = message("POST /x HTTP/1.0", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", &ended);
    table.refused("TE beside CL in HTTP/1.0", &text);
}

fn lengths(table: &mut Table) {
    for (name, lines) in [
        ("two CLs", "Content-Length: 5\r\nContent-Length: 0\r\n"),
        ("two CLs, the first 0", "Content-Length: 0\r\nContent-Length: 5\r\n"),
        ("two CLs, the first empty", "Content-Length:\r\nContent-Length: 5\r\n"),
        ("a list of CLs", "Content-Length: 5, 6\r\n"),
        ("a list of equal CLs", "Content-Length: 5, 5\r\n"),
        ("a negative CL", "Content-Length: -1\r\n"),
        ("CL -0", "Content-Length: -0\r\n"),
        ("CL with a plus", "Content-Length: +5\r\n"),
        ("CL in hexadecimal", "Content-Length: 0x5\r\n"),
        ("CL with a letter", "Content-Length: 5a\r\n"),
        ("CL with an exponent", "Content-Length: 1e1\r\n"),
        ("CL with a fraction", "Content-Length: 5.0\r\n"),
        ("CL with an underscore inside", "Content-Length: 5_0\r\n"),
        ("CL with a space inside", "Content-Length: 5 5\r\n"),
        ("CL with a comma", "Content-Length: 5,\r\n"),
        ("CL with a semicolon", "Content-Length: 5;\r\n"),
        ("CL quoted", "Content-Length: \"5\"\r\n"),
        ("CL of 2^64", "Content-Length: 18446744073709551616\r\n"),
        ("CL of 2^64 + 5", "Content-Length: 18446744073709551621\r\n"),
        ("CL of 2^64 - 1", "Content-Length: 18446744073709551615\r\n"),
        ("CL of 2^64 - 2", "Content-Length: 18446744073709551614\r\n"),
        ("CL of 40 digits", "Content-Length: 5000000000000000000000000000000000000000\r\n"),
        ("CL without a value", "Content-Length:\r\n"),
        ("CL, space before the colon", "Content-Length : 5\r\n"),
        ("CL, vertical tab after the value", "Content-Length: 5\u{b}\r\n"),
        ("CL, NUL after the value", "Content-Length: 5\0\r\n"),
        ("CL in other digits", "Content-Length: \u{b2}\r\n"),
        ("CL on a folded line", "Content-Length:\r\n 5\r\n"),
        ("CL continued on a folded line", "Content-Length: 5\r\n 0\r\n"),
        ("CL before CR alone", "Content-Length: 5\rContent-Length: 0\r\n"),
    ] {
        table.refused(name, &post(lines, SMUGGLED));
    }
    let hello = |name, lines: &str, table: &mut Table| table.one(name, &post(lines, "hello"), POST, "hello");
    hello("two equal CLs", "Content-Length: 5\r\nContent-Length: 5\r\n", table);
    hello("CL with zeros before", "Content-Length: 0005\r\n", table);
    hello("CL with spaces around", "Content-Length:   5  \r\n", table);
    hello("CL with tabs around", "Content-Length:\t5\t\r\n", table);
    hello("CL without a space", "Content-Length:5\r\n", table);
    hello("CL before LF alone", "Content-Length: 5\nX: y\r\n", table);
    let length = SMUGGLED.len();
    table.cut("CL beyond the body", &post(&format!("Content-Length: {}\r\n", length + 1), SMUGGLED));
    table.cut("CL of 2^63", &post("Content-Length: 9223372036854775808\r\n", SMUGGLED));
    table.cut("CL without a body", &post("Content-Length: 1\r\n", ""));
    let text = post("Content-Length: 5\r\n", &format!("hello{SECOND}"));
    table.each("CL before the end", &text, &[(POST, "hello"), ("GET /second HTTP/1.1", "")]);
    let text = post("Content-Length: 0\r\n", SECOND);
    table.each("CL 0 and a second request", &text, &[(POST, ""), ("GET /second HTTP/1.1", "")]);
    table.each("no length", &post("", SECOND), &[(POST, ""), ("GET /second HTTP/1.1", "")]);
    // A server that follows CGI takes this header for a length.
    let text = post("Content_Length: 39\r\n", SECOND);
    table.each("CL with an underscore", &text, &[(POST, ""), ("GET /second HTTP/1.1", "")]);
    let text = post("Content_Length: 0\r\nContent-Length: 5\r\n", "hello");
    table.one("CL beside one with an underscore", &text, POST, "hello");
}

fn chunks(table: &mut Table) {
    for (name, body) in [
        ("chunk size with a plus", "+5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with a minus", "-5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with 0x", "0x5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with h", "5h\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with an underscore", "0_5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size after a space", " 5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with a space inside", "0 5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size of 17 digits", "10000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with NUL", "5\0\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with a vertical tab", "5\u{b}\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with a comma", "5,\r\nhello\r\n0\r\n\r\n"),
        ("no chunk size", "\r\nhello\r\n0\r\n\r\n"),
        ("no chunk size but an extension", ";5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size before LF alone", "5\nhello\n0\n\n"),
        ("chunk size before CR alone", "5\rhello\r\n0\r\n\r\n"),
        ("chunk size before CR CR LF", "5\r\r\nhello\r\n0\r\n\r\n"),
        ("extension before LF alone", "5;a\nhello\r\n0\r\n\r\n"),
        ("extension with LF inside", "5;a=\"\n\"\r\nhello\r\n0\r\n\r\n"),
        ("extension with CR alone", "5;a\rb\r\nhello\r\n0\r\n\r\n"),
        ("data longer than the chunk", "5\r\nhello!\r\n0\r\n\r\n"),
        ("data shorter than the chunk", "8\r\nhello\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
        ("no CRLF after a chunk", "5\r\nhello0\r\n\r\n"),
        ("LF alone after a chunk", "5\r\nhello\n0\r\n\r\n"),
        ("CR alone after a chunk", "5\r\nhello\r0\r\n\r\n"),
        ("two letters after a chunk", "5\r\nhelloXX0\r\n\r\n"),
        ("the last chunk before LF alone", "5\r\nhello\r\n0\n\r\n"),
        ("a request as a trailer", "0\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
        ("a trailer with a space in its name", "0\r\nX Y: z\r\n\r\n"),
        ("a trailer with a space before the colon", "0\r\nContent-Length : 5\r\n\r\n"),
        ("a trailer before CR alone", "0\r\nX: y\rGET /smuggled HTTP/1.1\r\n\r\n"),
    ] {
        table.refused(name, &chunked(body));
    }
    table.refused("a long extension", &chunked(&format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(20_000))));
    table.refused("many trailers", &chunked(&format!("0\r\n{}\r\n", "X: y\r\n".repeat(1_000))));
    table.refused("a long trailer", &chunked(&format!("0\r\nX: {}\r\n\r\n", "y".repeat(70_000))));

    table.cut("no last chunk", &chunked("5\r\nhello\r\n"));
    table.cut("half a last chunk", &chunked("5\r\nhello\r\n0\r\n"));
    table.cut("half a chunk", &chunked("5\r\nhel"));
    table.cut("no chunk", &chunked(""));
    table.cut("chunk size of 16 digits", &chunked(&format!("FFFFFFFFFFFFFFFF\r\n{SMUGGLED}")));
    table.cut("trailers without an end", &chunked(&format!("0\r\n{}", "X: y\r\n")));

    for (name, body) in [
        ("chunk size with zeros before", "0000000000000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("chunk size before a space", "5 \r\nhello\r\n0\r\n\r\n"),
        ("an extension", "5;a=b\r\nhello\r\n0\r\n\r\n"),
        ("an extension after a space", "5 ;a=b\r\nhello\r\n0\r\n\r\n"),
        ("an extension with an open quote", "5;a=\"\r\nhello\r\n0\r\n\r\n"),
        ("an extension of the last chunk", "5\r\nhello\r\n0;GET /smuggled HTTP/1.1\r\n\r\n"),
        ("many zeros as the last chunk", "5\r\nhello\r\n000000\r\n\r\n"),
        (
            "trailers of a head",
            "5\r\nhello\r\n0\r\nHost: b\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\n\r\n",
        ),
        (
            "trailers of forwarding",
            "5\r\nhello\r\n0\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\n\r\n",
        ),
    ] {
        table.one(name, &chunked(body), POST, "hello");
    }
    let text = post(
        "Trailer: Content-Length, Host\r\nTransfer-Encoding: chunked\r\n",
        "5\r\nhello\r\n0\r\nContent-Length: 9\r\nHost: b\r\n\r\n",
    );
    table.one("trailers that were announced", &text, POST, "hello");
    let text = chunked(&format!("5\r\nhello\r\n0\r\n\r\n{SECOND}"));
    table.each("chunks and a second request", &text, &[(POST, "hello"), ("GET /second HTTP/1.1", "")]);
}

/// Adds bodies of methods that rarely have one.
fn bodies(table: &mut Table) {
    let length = format!("Content-Length: {}\r\n", SMUGGLED.len());
    let hidden = format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    for (name, start) in [
        ("a request in the body of a GET", "GET /x HTTP/1.1"),
        ("a request in the body of a HEAD", "HEAD /x HTTP/1.1"),
        ("a request in the body of a DELETE", "DELETE /x HTTP/1.1"),
        ("a request in the body of a POST", "POST /x HTTP/1.1"),
        ("a request in the body of an OPTIONS", "OPTIONS /x HTTP/1.1"),
        ("a request in the body of a TRACE", "TRACE /x HTTP/1.1"),
        ("a request in the body of an unknown method", "FOO /x HTTP/1.1"),
    ] {
        table.one(name, &message(start, &length, SMUGGLED), start, SMUGGLED);
        table.one(name, &message(start, "Transfer-Encoding: chunked\r\n", &hidden), start, SMUGGLED);
    }
    table.one("TRACE", &message("TRACE /x HTTP/1.1", "", ""), "TRACE /x HTTP/1.1", "");
    let text = message("GET /x HTTP/1.0", &length, SMUGGLED);
    table.last("a request in the body of HTTP/1.0", &text, GET, SMUGGLED);
    let text = message("GET /x HTTP/1.0", &format!("Connection: keep-alive\r\n{length}"), SMUGGLED);
    table.one("the same with keep-alive", &text, GET, SMUGGLED);
    let three = [get(""), message("HEAD /x HTTP/1.1", "", ""), get("")].concat();
    table.each("three requests at once", &three, &[(GET, ""), ("HEAD /x HTTP/1.1", ""), (GET, "")]);
    table.last(
        "a request after the last",
        &[get("Connection: close\r\n"), SMUGGLED.to_owned()].concat(),
        GET,
        "",
    );
    let text = [get("Connection: close\r\nConnection: keep-alive\r\n"), SMUGGLED.to_owned()].concat();
    table.last("a request after the last, which is also kept alive", &text, GET, "");

    table.refused("CONNECT", &format!("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n{SMUGGLED}"));
    table.refused("CONNECT with a body", &message("CONNECT a:80 HTTP/1.1", &length, SMUGGLED));
    let text = message("CONNECT a:80 HTTP/1.1", "Transfer-Encoding: chunked\r\n", &hidden);
    table.refused("CONNECT with chunks", &text);
    table.refused("CONNECT with a path", &message("CONNECT /x HTTP/1.1", "", SMUGGLED));
}

/// Adds start lines.
fn starts(table: &mut Table) {
    for (name, start) in [
        ("no version", "GET /smuggled"),
        ("no version, and a space", "GET /smuggled "),
        ("HTTP/0.9", "GET /smuggled HTTP/0.9"),
        ("HTTP/1.2", "GET /smuggled HTTP/1.2"),
        ("HTTP/1.10", "GET /smuggled HTTP/1.10"),
        ("HTTP/1.", "GET /smuggled HTTP/1."),
        ("HTTP/2.0", "GET /smuggled HTTP/2.0"),
        ("HTTP/2", "GET /smuggled HTTP/2"),
        ("http/1.1", "GET /smuggled http/1.1"),
        ("HTTP/1.1 and a space", "GET /smuggled HTTP/1.1 "),
        ("HTTP/1.1 and a word", "GET /smuggled HTTP/1.1 x"),
        ("HTTP/1.1 and NUL", "GET /smuggled HTTP/1.1\0"),
        ("HTTP /1.1", "GET /smuggled HTTP /1.1"),
        ("HTTPS/1.1", "GET /smuggled HTTPS/1.1"),
        ("a space in the target", "GET /smuggled y HTTP/1.1"),
        ("a version in the target", "GET /smuggled HTTP/1.1 HTTP/1.1"),
        ("a tab in the target", "GET /smuggled\ty HTTP/1.1"),
        ("a tab before the target", "GET\t/smuggled HTTP/1.1"),
        ("a tab before the version", "GET /smuggled\tHTTP/1.1"),
        ("two spaces before the target", "GET  /smuggled HTTP/1.1"),
        ("two spaces before the version", "GET /smuggled  HTTP/1.1"),
        ("a space before the method", " GET /smuggled HTTP/1.1"),
        ("no target", "GET HTTP/1.1"),
        ("no method", "/smuggled HTTP/1.1"),
        ("CR in the target", "GET /smuggled\rX HTTP/1.1"),
        ("LF in the target", "GET /smuggled\nX: y HTTP/1.1"),
        ("NUL in the target", "GET /smuggled\0 HTTP/1.1"),
        ("DEL in the target", "GET /smuggled\u{7f} HTTP/1.1"),
        ("no UTF-8 in the target", "GET /smuggled\u{ff} HTTP/1.1"),
        ("half UTF-8 in the target", "GET /smuggled\u{c3} HTTP/1.1"),
        ("NUL in the method", "G\0T /smuggled HTTP/1.1"),
        ("a colon in the method", "GET: /smuggled HTTP/1.1"),
        ("a high byte in the method", "G\u{c9}T /smuggled HTTP/1.1"),
        ("a header as the method", "X:y /smuggled HTTP/1.1"),
        ("a target of the authority's form", "GET a:80 HTTP/1.1"),
        ("a target of a host", "GET smuggled HTTP/1.1"),
        ("a target without a slash", "GET smuggled/x HTTP/1.1"),
        ("a target of a letter", "GET x HTTP/1.1"),
        ("a target of a query", "GET ?smuggled HTTP/1.1"),
        ("a target of backslashes", "GET \\\\smuggled\\x HTTP/1.1"),
        ("GET *", "GET * HTTP/1.1"),
        ("OPTIONS */x", "OPTIONS */x HTTP/1.1"),
        ("POST *", "POST * HTTP/1.1"),
        ("a URL with a user", "GET http://b@a/smuggled HTTP/1.1"),
        ("a URL with an empty user", "GET http://@a/smuggled HTTP/1.1"),
        ("a URL with two users", "GET http://a@b@a/smuggled HTTP/1.1"),
        ("a URL without a host", "GET http:///smuggled HTTP/1.1"),
        ("a URL with a port but no host", "GET http://:80/smuggled HTTP/1.1"),
        ("a URL with an open bracket", "GET http://[::1/smuggled HTTP/1.1"),
        ("a URL with a port of letters", "GET http://a:b/smuggled HTTP/1.1"),
        ("a URL with a space in the host", "GET http://a b/smuggled HTTP/1.1"),
        ("a URL of a file", "GET file:///smuggled HTTP/1.1"),
        ("a URL of a script", "GET javascript:alert(1) HTTP/1.1"),
        ("a URL without a scheme", "GET ://a/smuggled HTTP/1.1"),
        ("half the preface of HTTP/2", "PRI * HTTP/2.0"),
    ] {
        table.refused(name, &message(start, "", ""));
    }
    table.refused("HTTP/0.9 before another request", &format!("GET /smuggled\r\n{SMUGGLED}"));
    table.cut("a start line without an end", "GET /smuggled HTTP/1.1");
    table.cut("a head without an end", "GET /smuggled HTTP/1.1\r\nHost: a\r\n");
    table.cut("a head that ends in CR", "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r");
    table.cut("CR alone throughout", "GET /smuggled HTTP/1.1\rHost: a\r\r");
    table.refused("TLS", "\u{16}\u{3}\u{1}\u{1}\u{44}\u{1}\u{0}\u{1}\u{40}\u{3}\u{3}\r\n\r\n");
    table.refused("a PROXY header", &format!("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n{SMUGGLED}"));
    table.last(
        "half the preface of HTTP/2 behind a request",
        &format!("{}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", get("")),
        GET,
        "",
    );

    for (name, start, upstream) in [
        ("HTTP/1.1 before LF", "GET /x HTTP/1.1", GET),
        ("a URL", "GET http://a/x HTTP/1.1", GET),
        ("a URL of another host", "GET http://b/x HTTP/1.1", GET),
        ("a URL of another port", "GET http://a:81/x HTTP/1.1", GET),
        ("a URL of another scheme", "GET https://b/x HTTP/1.1", GET),
        ("a URL of an address of IPv6", "GET http://[::1]:80/x HTTP/1.1", GET),
        ("a URL without a path", "GET http://b HTTP/1.1", "GET / HTTP/1.1"),
        ("a URL with a query only", "GET http://b?x HTTP/1.1", "GET /?x HTTP/1.1"),
        ("a URL with a fragment only", "GET http://b#x HTTP/1.1", "GET / HTTP/1.1"),
        ("a fragment", "GET /x#smuggled HTTP/1.1", GET),
        ("a fragment after the query", "GET /x?y#smuggled HTTP/1.1", "GET /x?y HTTP/1.1"),
        ("OPTIONS *", "OPTIONS * HTTP/1.1", "OPTIONS * HTTP/1.1"),
        ("two slashes", "GET //b/x HTTP/1.1", "GET //b/x HTTP/1.1"),
        ("a URL in the path", "GET /http://b/x HTTP/1.1", "GET /http://b/x HTTP/1.1"),
        ("a backslash in the path", "GET /x\\y HTTP/1.1", "GET /x\\y HTTP/1.1"),
        ("an at sign in the path", "GET /@b HTTP/1.1", "GET /@b HTTP/1.1"),
        ("dots in the path", "GET /a/../../x HTTP/1.1", "GET /a/../../x HTTP/1.1"),
        (
            "CRLF as escapes",
            "GET /x%0d%0a%0d%0aGET%20/smuggled%20HTTP/1.1 HTTP/1.1",
            "GET /x%0d%0a%0d%0aGET%20/smuggled%20HTTP/1.1 HTTP/1.1",
        ),
        ("NUL as an escape", "GET /x%00 HTTP/1.1", "GET /x%00 HTTP/1.1"),
        ("no escapes", "GET /x%zz%u0000% HTTP/1.1", "GET /x%zz%u0000% HTTP/1.1"),
        ("UTF-8 in the path", "GET /\u{c3}\u{a9} HTTP/1.1", "GET /\u{c3}\u{a9} HTTP/1.1"),
        (
            "line separators in the path",
            "GET /\u{c4}\u{8d}\u{c4}\u{8a} HTTP/1.1",
            "GET /\u{c4}\u{8d}\u{c4}\u{8a} HTTP/1.1",
        ),
        ("a method in small letters", "get /x HTTP/1.1", "get /x HTTP/1.1"),
        ("an unknown method", "X-Y.Z!* /x HTTP/1.1", "X-Y.Z!* /x HTTP/1.1"),
        ("the method PRI", "PRI /x HTTP/1.1", "PRI /x HTTP/1.1"),
    ] {
        table.one(name, &message(start, "", ""), upstream, "");
    }
    table.one("empty lines before", &format!("\r\n\r\n{}", get("")), GET, "");
    table.one("LF alone throughout", "GET /x HTTP/1.1\nHost: a\n\n", GET, "");
    table.one("LF alone at the end", "GET /x HTTP/1.1\r\nHost: a\r\n\n", GET, "");
    table.last("HTTP/1.0", &message("GET /x HTTP/1.0", "", ""), GET, "");
    table.last("HTTP/1.0 without a host", "GET /x HTTP/1.0\r\n\r\n", GET, "");
}

fn hosts(table: &mut Table) {
    for (name, lines) in [
        ("no host", ""),
        ("two hosts", "Host: a\r\nHost: b\r\n"),
        ("two equal hosts", "Host: a\r\nHost: a\r\n"),
        ("two hosts, one empty", "Host:\r\nHost: a\r\n"),
        ("an empty host", "Host:\r\n"),
        ("host of a space", "Host:  \r\n"),
        ("host with a space inside", "Host: a b\r\n"),
        ("host with a tab inside", "Host: a\tb\r\n"),
        ("host with a path", "Host: a/smuggled\r\n"),
        ("host with a query", "Host: a?b\r\n"),
        ("host with a fragment", "Host: a#b\r\n"),
        ("host with a backslash", "Host: a\\b\r\n"),
        ("host with a user", "Host: b@a\r\n"),
        ("host with an empty user", "Host: @a\r\n"),
        ("host with a quote", "Host: a\"\r\n"),
        ("host with angle brackets", "Host: <a>\r\n"),
        ("host with a high byte", "Host: \u{e9}\r\n"),
        ("host with NUL", "Host: a\0b\r\n"),
        ("host as a URL", "Host: http://a\r\n"),
        ("host with an open bracket", "Host: [::1\r\n"),
        ("host with a bracket behind", "Host: a]\r\n"),
        ("host with two ports", "Host: a:80:80\r\n"),
        ("host with a port of letters", "Host: a:b\r\n"),
        ("host with a port and a sign", "Host: a:+80\r\n"),
        ("host with a port too high", "Host: a:65536\r\n"),
        ("host with a port but no name", "Host: :80\r\n"),
        ("host with a percent sign", "Host: a%\r\n"),
        ("host on a folded line", "Host:\r\n a\r\n"),
        ("host, space before the colon", "Host : a\r\n"),
        ("host after a space", "X: y\r\n Host: a\r\n"),
        ("a list of hosts", "Host: a,b\r\n"),
        ("host after CR alone", "X: y\rHost: a\r\n"),
        ("host with an underscore in place of none", "Ho_st: a\r\n"),
    ] {
        table.refused(name, &format!("GET /smuggled HTTP/1.1\r\n{lines}\r\n"));
    }
    let two = "GET http://a/smuggled HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
    table.refused("a URL with two hosts", two);
    table.refused("a URL without a host header", "GET http://a/smuggled HTTP/1.1\r\n\r\n");
    table.refused("a URL with an odd host header", "GET http://a/smuggled HTTP/1.1\r\nHost: a/b\r\n\r\n");
    table.refused("two hosts of HTTP/1.0", "GET /smuggled HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n");
    for (name, lines) in [
        ("host without a space", "Host:a\r\n"),
        ("host in odd case", "hOsT: A.Example\r\n"),
        ("host with a port", "Host: a:81\r\n"),
        ("host of IPv6", "Host: [::1]:80\r\n"),
        ("host with odd characters", "Host: a!$&'()*+;=~_-.b\r\n"),
    ] {
        table.one(name, &format!("{GET}\r\n{lines}\r\n"), GET, "");
    }
}

fn headers(table: &mut Table) {
    for (name, line) in [
        ("a header with a space in its name", "X Y: z\r\n"),
        ("a header with a space before the colon", "X : y\r\n"),
        ("a header without a name", ": y\r\n"),
        ("a header without a name, of a length", ":Content-Length: 5\r\n"),
        ("a header without a colon", "smuggled\r\n"),
        ("a request as a header", "GET /smuggled HTTP/1.1\r\n"),
        ("a header with a control character in its name", "X\u{1}: y\r\n"),
        ("a header with DEL in its name", "X\u{7f}: y\r\n"),
        ("a header with a high byte in its name", "X\u{e9}: y\r\n"),
        ("a header with a bracket in its name", "X[]: y\r\n"),
        ("a header with a quote in its name", "\"X\": y\r\n"),
        ("a header with a slash in its name", "X/Y: z\r\n"),
        ("a header with NUL in its name", "X\0: y\r\n"),
        ("a header with NUL", "X: y\0z\r\n"),
        ("a header with CR", "X: y\rz\r\n"),
        ("a header with CR at its end", "X: y\r\r\n"),
        ("a header with a vertical tab", "X: y\u{b}z\r\n"),
        ("a header with an escape character", "X: y\u{1b}z\r\n"),
        ("a header with DEL", "X: y\u{7f}z\r\n"),
        ("a folded header", "X: y\r\n z\r\n"),
        ("a folded header of a tab", "X: y\r\n\tz\r\n"),
        ("an empty folded line", "X: y\r\n \r\n"),
        ("a header of a pseudo name", ":path: /smuggled\r\n"),
    ] {
        table.refused(name, &message("GET /smuggled HTTP/1.1", line, ""));
    }
    for count in [100, 101, 1_000] {
        table.refused("too many headers", &message("GET /smuggled HTTP/1.1", &"X: y\r\n".repeat(count), ""));
    }
    let line = format!("X: {}\r\n", "y".repeat(70_000));
    table.refused("a header of 70 KB", &message("GET /smuggled HTTP/1.1", &line, ""));
    let line = format!("{}: y\r\n", "x".repeat(70_000));
    table.refused("a header with a name of 70 KB", &message("GET /smuggled HTTP/1.1", &line, ""));
    let target = "x".repeat(70_000);
    table.refused("a target of 70 KB", &message(&format!("GET /{target} HTTP/1.1"), "", ""));
    let method = "X".repeat(70_000);
    table.refused("a method of 70 KB", &message(&format!("{method} /smuggled HTTP/1.1"), "", ""));
    let lines = format!("X: {}\r\n", "y".repeat(1_000)).repeat(80);
    table.refused("headers of 80 KB", &message("GET /smuggled HTTP/1.1", &lines, ""));

    for (name, line) in [
        ("a header of high bytes", "X: \u{e9}\u{ff}\r\n"),
        ("a header of a tab", "X: y\tz\r\n"),
        ("an empty header", "X:\r\n"),
        ("a header of colons", "X:::\r\n"),
        (
            "claims of an untrusted client",
            "X-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\nX-Real-IP: 1.2.3.4\r\n",
        ),
        ("an open quote in Forwarded", "Forwarded: for=\"1.2.3.4\r\n"),
        (
            "claims with underscores",
            "X_Forwarded_For: 1.2.3.4\r\nX_Real_IP: 1.2.3.4\r\nX-Forwarded_For: 1.2.3.4\r\n",
        ),
    ] {
        table.one(name, &get(line), GET, "");
    }
}

/// Adds the headers `Connection`, `Upgrade` and `Expect`.
fn connections(table: &mut Table) {
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                     Sec-WebSocket-Version: 13\r\n";
    for (name, line) in [
        ("Connection names Host", "Connection: Host\r\n"),
        ("Connection names X-Forwarded-For", "Connection: X-Forwarded-For\r\nX-Forwarded-For: 1.2.3.4\r\n"),
        ("Connection names Forwarded", "Connection: Forwarded\r\nForwarded: for=1.2.3.4\r\n"),
        (
            "Connection names X-Forwarded-Host",
            "Connection: X-Forwarded-Host, X-Real-IP, X-Forwarded-Proto\r\n",
        ),
        ("Connection names Via", "Connection: Via\r\nVia: 1.1 b\r\n"),
        ("Connection names Connection", "Connection: Connection\r\n"),
        ("Connection names a header", "X-Hop: 1\r\nConnection: X-Hop\r\nX-Hop: 2\r\n"),
        ("Connection names a header in odd case", "Connection: keep-alive ,\tx-hOP,\r\nX-Hop: 1\r\n"),
        ("two Connections", "Connection: keep-alive\r\nX-Hop: 1\r\nConnection: X-Hop\r\n"),
        ("Connection names a header beside a high byte", "Connection: \u{e9}, X-Hop\r\nX-Hop: 1\r\n"),
        ("TE and trailers", "Connection: TE\r\nTE: gzip, trailers\r\nTrailer: Host\r\n"),
        ("TE of no trailers", "TE: gzip, trailersx\r\n"),
        ("credentials for the proxy", "Proxy-Authorization: Basic eA==\r\n"),
        ("Connection of no names", "Connection: ,,, ,\r\n"),
        ("Connection of odd names", "Connection: (), \u{e9}, Keep-Alive\r\nKeep-Alive: 5\r\n"),
        ("an old Connection", "Proxy-Connection: keep-alive\r\nKeep-Alive: 5\r\n"),
        ("Connection names no header", "Connection: Upgrade\r\n"),
        ("an upgrade without a name", "Connection: Upgrade\r\nUpgrade:\r\n"),
        (
            "h2c",
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
        ),
        ("h2c, unnamed", "Upgrade: h2c\r\n"),
        ("h2c beside websocket", "Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n"),
        ("an upgrade to TLS", "Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n"),
        (
            "a WebSocket without a key",
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
        ),
        ("Expect without a body", "Expect: 100-continue\r\n"),
    ] {
        table.one(name, &get(line), GET, "");
    }
    for (name, lines, body) in [
        ("Connection names Content-Length", "Connection: Content-Length\r\nContent-Length: 5\r\n", "hello"),
        (
            "Connection names Transfer-Encoding",
            "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "Connection names Expect",
            "Connection: Expect\r\nExpect: 100-continue\r\nContent-Length: 5\r\n",
            "hello",
        ),
        ("Expect", "Expect: 100-continue\r\nContent-Length: 5\r\n", "hello"),
        ("Expect in capitals", "Expect: 100-CONTINUE\r\nContent-Length: 5\r\n", "hello"),
        ("Expect twice", "Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 5\r\n", "hello"),
        ("Expect of an unknown name", "Expect: y 100-continue\r\nContent-Length: 5\r\n", "hello"),
        (
            "Expect with chunks",
            "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
        ),
    ] {
        table.one(name, &post(lines, body), POST, "hello");
        let text = message("DELETE /x HTTP/1.1", lines, body);
        table.one(name, &text, "DELETE /x HTTP/1.1", "hello");
        let text = message("GET /x HTTP/1.1", lines, body);
        table.one(name, &text, GET, "hello");
    }
    let lines = "Connection: Content-Length, Transfer-Encoding\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n";
    let hidden = format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    table.last("Connection names both lengths", &post(lines, &hidden), POST, SMUGGLED);
    let text = post("Expect: 100-continue\r\nContent-Length: 5\r\n", &format!("hello{SECOND}"));
    table.each("Expect and a second request", &text, &[(POST, "hello"), ("GET /second HTTP/1.1", "")]);

    // The upstream does not upgrade. So the second request is a request, and passes through the
    // proxy.
    let text = [get(websocket), SECOND.to_owned()].concat();
    table.each("a WebSocket that is refused", &text, &[(GET, ""), ("GET /second HTTP/1.1", "")]);
    let text = [get(&websocket.replace("13", "1")), SECOND.to_owned()].concat();
    table.each("a WebSocket of an old version", &text, &[(GET, ""), ("GET /second HTTP/1.1", "")]);
    let text = post(&format!("{websocket}Content-Length: {}\r\n", SMUGGLED.len()), SMUGGLED);
    table.one("a WebSocket with a body", &text, POST, SMUGGLED);
    let text = get(&format!("{websocket}Upgrade: h2c\r\n"));
    table.one("a WebSocket beside h2c", &text, GET, "");
    let text = message("GET /no-upgrade HTTP/1.0", websocket, "");
    table.last("a WebSocket of HTTP/1.0", &text, "GET /no-upgrade HTTP/1.1", "");
    let text = message("GET /no-upgrade HTTP/1.1", &websocket.replace("Version: 13", "Protocol: x"), "");
    table.one("a WebSocket without a version", &text, "GET /no-upgrade HTTP/1.1", "");
}

fn table() -> Vec<Shape> {
    let mut table = Table::default();
    codings(&mut table);
    lengths(&mut table);
    chunks(&mut table);
    bodies(&mut table);
    starts(&mut table);
    hosts(&mut table);
    headers(&mut table);
    connections(&mut table);
    table.0
}

/// Plays the client of a shape, and checks the responses.
fn talk(bench: &Bench, shape: &Shape) -> Result<(), String> {
    let mut client = Client::connect(bench.address());
    client.write(&shape.bytes);
    if shape.hangs_up {
        client.hang_up();
    }
    for (start, _) in shape.reading.requests() {
        let method = start.split(' ').next().unwrap_or_default();
        match client.reply(method)? {
            Some((reply, End::Whole)) => drop(own(&reply, start)?),
            other => return Err(format!("no response to {start:?}, but {other:?}")),
        }
    }
    match shape.reading {
        Reading::Each(_) => own(&client.get("/after")?, "GET /after HTTP/1.1").map(drop),
        Reading::Refused | Reading::Last(_) => refused(&mut client),
    }
}

/// Checks the requests of a shape that the upstream has seen.
fn listen(bench: &mut Bench, shape: &Shape) -> Result<(), String> {
    let mut expected = shape.reading.requests().to_vec();
    if let Reading::Each(_) = shape.reading {
        expected.push(("GET /after HTTP/1.1".to_owned(), String::new()));
    }
    compare(&bench.settle()?, &expected)
}

fn run(mut bench: Bench) {
    let shapes = table();
    assert!(shapes.len() >= 103, "{} shapes", shapes.len());
    let mut faults = Vec::new();
    for (number, shape) in shapes.iter().enumerate() {
        let sides = [talk(&bench, shape), listen(&mut bench, shape)];
        let sides = sides.into_iter().filter_map(Result::err);
        faults.extend(sides.map(|why| format!("{number}, {}: {why}", shape.name)));
    }
    faults.extend(bench.end());
    conclude(&faults);
}

#[test]
fn no_request_gets_through_in_another_one() {
    run(Bench::start(&[]));
}

/// The upstream gets the client's host.
#[test]
fn no_request_gets_through_to_another_host() {
    run(Bench::start(&["--preserve-host"]));
}

/// The requests become frames, and then requests of HTTP/1.1 again.
#[test]
fn no_request_gets_through_an_upstream_of_http2() {
    run(Bench::start_two(true));
}

/// The upstream pretends to upgrade the connection.
#[test]
fn a_fake_upgrade_opens_no_tunnel() {
    let mut bench = Bench::start(&[]);
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                     Sec-WebSocket-Version: 13\r\n";
    let mut faults = Vec::new();
    for headers in [websocket, "Connection: Upgrade\r\nUpgrade: h2c\r\n", ""] {
        let mut client = Client::connect(bench.address());
        client.write(&bytes(&message("GET /fake101 HTTP/1.1", headers, SECOND)));
        let mut talk = || {
            let (reply, _) = client.reply("GET")?.ok_or("no response")?;
            if reply.status() != 502 {
                return Err(format!("not refused: {reply:?}"));
            }
            let (reply, _) = client.reply("GET")?.ok_or("no second response")?;
            own(&reply, "GET /second HTTP/1.1")
        };
        faults.extend(talk().err());
        let seen = bench.settle().map(|mut seen| {
            // A request that may be repeated is repeated.
            seen.dedup_by(|one, other| one.start == other.start);
            seen
        });
        let expected = owned(&[("GET /fake101 HTTP/1.1", ""), ("GET /second HTTP/1.1", "")]);
        faults.extend(seen.and_then(|seen| compare(&seen, &expected)).err());
    }
    faults.extend(bench.end());
    conclude(&faults);
}
