//! The bytes of an upstream, and the verdict on them.

use tollgate_testing::wire::bytes;

use super::POISON;

/// The response that the client gets.
#[derive(Clone, Copy)]
pub(super) enum Verdict {
    BadGateway,
    /// A response with this status and this body.
    Whole(u16, &'static str),
    /// The beginning of a response or nothing, and then the end of the connection.
    Cut,
}

use Verdict::{BadGateway, Cut, Whole};

/// The bytes of an upstream, and the verdict on them.
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) method: &'static str,
    pub(super) bytes: Vec<u8>,
    /// Whether the upstream ends the connection after the bytes.
    pub(super) closes: bool,
    pub(super) verdict: Verdict,
}

#[derive(Default)]
struct Table(Vec<Shape>);

impl Table {
    fn add(&mut self, name: &'static str, text: &str, verdict: Verdict) -> &mut Shape {
        self.0.push(Shape { name, method: "GET", bytes: bytes(text), closes: false, verdict });
        self.0.last_mut().expect("it was pushed")
    }

    fn closing(&mut self, name: &'static str, text: &str, verdict: Verdict) {
        self.add(name, text, verdict).closes = true;
    }

    fn head(&mut self, name: &'static str, text: &str, verdict: Verdict) {
        self.add(name, text, verdict).method = "HEAD";
    }
}

fn response(headers: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{headers}\r\n{body}")
}

fn hello(headers: &str) -> String {
    response(&format!("{headers}Content-Length: 5\r\n"), "hello")
}

fn chunked(body: &str) -> String {
    response("Transfer-Encoding: chunked\r\n", body)
}

fn starts(table: &mut Table) {
    for (name, line) in [
        ("no status line", "hello"),
        ("a header as the status line", "Content-Length: 5"),
        ("a request as the response", "GET / HTTP/1.1"),
        ("the status 99", "HTTP/1.1 99 Odd"),
        ("the status 099", "HTTP/1.1 099 Odd"),
        ("the status 1000", "HTTP/1.1 1000 Odd"),
        ("the status 20", "HTTP/1.1 20"),
        ("the status 000", "HTTP/1.1 000 Odd"),
        ("the status +200", "HTTP/1.1 +200 OK"),
        ("the status 2OO", "HTTP/1.1 2OO OK"),
        ("no status", "HTTP/1.1 OK"),
        ("HTTP/2", "HTTP/2 200 OK"),
        ("HTTP/1.2", "HTTP/1.2 200 OK"),
        ("HTTP/0.9", "HTTP/0.9 200 OK"),
        ("http/1.1", "http/1.1 200 OK"),
        ("ICY", "ICY 200 OK"),
        ("a space before the status line", " HTTP/1.1 200 OK"),
        ("NUL in the reason", "HTTP/1.1 200 O\0K"),
        ("CR in the reason", "HTTP/1.1 200 O\rK"),
        ("a tab before the status", "HTTP/1.1\t200 OK"),
    ] {
        table.add(name, &format!("{line}\r\nContent-Length: 5\r\n\r\nhello"), BadGateway);
    }
    table.closing("a body only", "<html>hello</html>", BadGateway);
    table.closing("nothing", "", BadGateway);
    table.closing("an empty line", "\r\n", BadGateway);
    table.closing("TLS", "\u{15}\u{3}\u{1}\u{0}\u{2}\u{2}\u{46}", BadGateway);
    for (name, line, status) in [
        ("no reason", "HTTP/1.1 200", 200),
        ("no reason but a space", "HTTP/1.1 200 ", 200),
        ("an odd reason", "HTTP/1.1 200 \u{e9} <b>", 200),
        ("an unknown status", "HTTP/1.1 599 Odd", 599),
    ] {
        table.add(name, &format!("{line}\r\nContent-Length: 5\r\n\r\nhello"), Whole(status, "hello"));
    }
    table.closing("HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nhello", Whole(200, "hello"));
    table.closing("no length", "HTTP/1.1 200 OK\r\n\r\nhello", Whole(200, "hello"));
    table.add("LF alone throughout", "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", Whole(200, "hello"));
    table.closing("a status that is not of HTTP", "HTTP/1.1 600 Odd\r\n\r\n", Whole(600, ""));
}

fn headers(table: &mut Table) {
    for (name, line) in [
        ("a header without a colon", "smuggled\r\n"),
        ("a header without a name", ": y\r\n"),
        ("a header with a space in its name", "X Y: z\r\n"),
        ("a header with a space before the colon", "X : y\r\n"),
        ("a length with a space before the colon", "Content-Length : 0\r\n"),
        ("a header with a control character in its name", "X\u{1}: y\r\n"),
        ("a header with NUL in its name", "X\0: y\r\n"),
        ("a header with a high byte in its name", "X\u{e9}: y\r\n"),
        ("a header with NUL", "X: y\0z\r\n"),
        ("a header with CR", "X: y\rz\r\n"),
        ("a header after CR alone", "X: y\rSet-Cookie: z\r\n"),
        ("a header with a control character", "X: y\u{1}z\r\n"),
        ("a folded header", "X: y\r\n z\r\n"),
        ("a space before the first header", " X: y\r\n"),
        ("CR CR LF", "X: y\r\r\n"),
    ] {
        table.add(name, &hello(line), BadGateway);
    }
    table.add("1,000 headers", &hello(&"X: y\r\n".repeat(1_000)), BadGateway);
    table.add("a header of 1 MB", &hello(&format!("X: {}\r\n", "y".repeat(1 << 20))), BadGateway);
    let lines = format!("X: {}\r\n", "y".repeat(15_000)).repeat(70);
    table.add("a head of 1 MB", &hello(&lines), BadGateway);
    table.closing("half a head", "HTTP/1.1 200 OK\r\nContent-Le", BadGateway);
    table.closing("half a status line", "HTTP/1.1 2", BadGateway);
    table.closing("a head without an end", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", BadGateway);
    for (name, line) in [
        ("Connection names a header", "Connection: keep-alive , x-hop\r\nX-Hop: 1\r\n"),
        ("two Connections", "Connection: keep-alive\r\nConnection: X-Hop\r\nX-Hop: 1\r\n"),
        ("Connection names the length", "Connection: Content-Length\r\n"),
        ("headers of one connection", "Keep-Alive: timeout=5\r\nProxy-Connection: close\r\nUpgrade: h2c\r\n"),
        ("an upgrade", "Connection: Upgrade\r\nUpgrade: websocket\r\n"),
        ("a header of high bytes", "X: \u{e9}\r\n"),
        ("an empty header", "X:\r\n"),
    ] {
        table.add(name, &hello(line), Whole(200, "hello"));
    }
}

fn lengths(table: &mut Table) {
    for (name, lines) in [
        ("two lengths", "Content-Length: 5\r\nContent-Length: 6\r\n"),
        ("two lengths, the first 0", "Content-Length: 0\r\nContent-Length: 5\r\n"),
        ("a list of lengths", "Content-Length: 5, 6\r\n"),
        ("a negative length", "Content-Length: -5\r\n"),
        ("a length with a plus", "Content-Length: +5\r\n"),
        ("a length in hexadecimal", "Content-Length: 0x5\r\n"),
        ("a length of letters", "Content-Length: five\r\n"),
        ("a length with a space inside", "Content-Length: 5 5\r\n"),
        ("an empty length", "Content-Length:\r\n"),
        ("a length of 2^64 + 5", "Content-Length: 18446744073709551621\r\n"),
        ("a length of 2^64 - 1", "Content-Length: 18446744073709551615\r\n"),
    ] {
        table.add(name, &response(lines, "hello"), BadGateway);
    }
    for (name, lines) in [
        ("two equal lengths", "Content-Length: 5\r\nContent-Length: 5\r\n"),
        ("a list of equal lengths", "Content-Length: 5, 5\r\n"),
        ("a length with zeros before", "Content-Length: 005\r\n"),
        ("a length with spaces around", "Content-Length:  5 \r\n"),
    ] {
        table.add(name, &response(lines, "hello"), Whole(200, "hello"));
    }
    let body = "5\r\nhello\r\n0\r\n\r\n";
    for (name, lines) in [
        ("a length beside a coding", "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n"),
        ("a length after a coding", "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n"),
        ("a length of 0 beside a coding", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"),
        ("the right length beside a coding", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        ("no length beside a coding", "Content-Length: x\r\nTransfer-Encoding: chunked\r\n"),
        (
            "two lengths beside a coding",
            "Content-Length: 5\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        ),
        ("a coding in capitals", "TRANSFER-ENCODING: CHUNKED\r\n"),
        ("Connection names the coding", "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n"),
    ] {
        table.add(name, &response(lines, body), Whole(200, "hello"));
    }
    table.add(
        "an empty body of chunks beside a length",
        &response("Content-Length: 9\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        Whole(200, ""),
    );
    for (name, line) in [
        ("an unknown coding", "Transfer-Encoding: x\r\n"),
        ("an unknown coding last", "Transfer-Encoding: chunked, x\r\n"),
        ("an unknown coding beside a length", "Transfer-Encoding: x\r\nContent-Length: 2\r\n"),
        ("a coding that is a length", "Transfer-Encoding: 5\r\n"),
        ("a coding of identity", "Transfer-Encoding: identity\r\n"),
    ] {
        // The body ends with the connection.
        table.closing(name, &response(line, "hello"), Whole(200, "hello"));
    }
    let text = "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    table.closing("chunks of HTTP/1.0", text, BadGateway);
}

fn bodies(table: &mut Table) {
    table.closing("a body shorter than its length", &response("Content-Length: 9\r\n", "hello"), Cut);
    table.closing("no body of a length", &response("Content-Length: 9\r\n", ""), Cut);
    table.add("a body longer than its length", &format!("{}{POISON}", hello("")), Whole(200, "hello"));
    table.add("a body longer than its length, by a letter", &format!("{}x", hello("")), Whole(200, "hello"));
    table.add("a body longer than its length, by a line", &format!("{}\r\n", hello("")), Whole(200, "hello"));
    table.add(
        "a body of the length 0",
        &format!("{}{POISON}", response("Content-Length: 0\r\n", "")),
        Whole(200, ""),
    );
    table.add("two responses", &hello("").repeat(2), Whole(200, "hello"));
    table.add(
        "a body longer than its chunks",
        &format!("{}{POISON}", chunked("5\r\nhello\r\n0\r\n\r\n")),
        Whole(200, "hello"),
    );
    let many = format!("{}{}", hello(""), POISON.repeat(1_000));
    table.add("a thousand responses", &many, Whole(200, "hello"));
    let last = format!("{}{POISON}", hello("Connection: close\r\n"));
    table.add("a response after the last", &last, Whole(200, "hello"));

    for (name, body) in [
        ("a chunk size of 17 digits", "5\r\nhello\r\n10000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("a chunk size of letters", "5\r\nhello\r\nxyz\r\nhello\r\n0\r\n\r\n"),
        ("a negative chunk size", "5\r\nhello\r\n-5\r\nhello\r\n0\r\n\r\n"),
        ("a chunk size with 0x", "5\r\nhello\r\n0x5\r\nhello\r\n0\r\n\r\n"),
        ("a chunk size before LF alone", "5\r\nhello\r\n5\nhello\n0\n\n"),
        ("an extension before LF alone", "5\r\nhello\r\n5;a\nhello\r\n0\r\n\r\n"),
        ("no CRLF after a chunk", "5\r\nhello0\r\n\r\n"),
        ("two letters after a chunk", "5\r\nhelloXX0\r\n\r\n"),
        ("a trailer without a colon", "5\r\nhello\r\n0\r\nsmuggled\r\n\r\n"),
        ("many trailers", &format!("5\r\nhello\r\n0\r\n{}\r\n", "X: y\r\n".repeat(1_000))),
    ] {
        table.add(name, &chunked(body), Cut);
    }
    for (name, body) in [
        ("no last chunk", "5\r\nhello\r\n"),
        ("half a chunk", "5\r\nhel"),
        ("half a chunk size", "5\r\nhello\r\n1"),
        ("a last chunk without an end", "5\r\nhello\r\n0\r\n"),
        ("a chunk size of 16 digits", "5\r\nhello\r\nFFFFFFFFFFFFFFFF\r\nhello"),
    ] {
        table.closing(name, &chunked(body), Cut);
    }
    for (name, body) in [
        ("extensions", "5;a=b\r\nhello\r\n0;c\r\n\r\n"),
        ("trailers", "5\r\nhello\r\n0\r\nX: y\r\n\r\n"),
        (
            "trailers of a head",
            "5\r\nhello\r\n0\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\nSet-Cookie: y\r\n\r\n",
        ),
    ] {
        table.add(name, &chunked(body), Whole(200, "hello"));
    }
    let trailer = response(
        "Trailer: Content-Length\r\nTransfer-Encoding: chunked\r\n",
        "5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n",
    );
    table.add("trailers that were announced", &trailer, Whole(200, "hello"));
}

/// Adds responses that have no body.
fn bodiless(table: &mut Table) {
    for (name, lines) in [
        ("a 204 with a body", ""),
        ("a 204 with a body of a length", "Content-Length: 6\r\n"),
        ("a 204 with chunks", "Transfer-Encoding: chunked\r\n"),
        ("a 204 with two lengths", "Content-Length: 6\r\nContent-Length: 7\r\n"),
    ] {
        table.add(name, &format!("HTTP/1.1 204 No Content\r\n{lines}\r\n{POISON}"), Whole(204, ""));
        let text = format!("HTTP/1.1 304 Not Modified\r\n{lines}\r\n{POISON}");
        table.add("the same as a 304", &text, Whole(304, ""));
        table.head("the same to a HEAD", &format!("HTTP/1.1 200 OK\r\n{lines}\r\n{POISON}"), Whole(200, ""));
    }
    table.add("a 204", "HTTP/1.1 204 No Content\r\n\r\n", Whole(204, ""));
    table.add("a 304 of a length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\n", Whole(304, ""));
    table.head("a HEAD of a length", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n", Whole(200, ""));
    table.head("a HEAD of chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Whole(200, ""));
    let both = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n";
    table.head("a HEAD of both", both, Whole(200, ""));
    table.head("a HEAD of no number", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", Whole(200, ""));
    table.head("a HEAD of a list", "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", Whole(200, ""));

    let proceed = "HTTP/1.1 100 Continue\r\n\r\n";
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
    table.add("a 100 before", &format!("{proceed}{}", hello("")), Whole(200, "hello"));
    table.add("a 103 before", &format!("{hints}{}", hello("")), Whole(200, "hello"));
    table.add(
        "10,000 times 100 before",
        &format!("{}{}", proceed.repeat(10_000), hello("")),
        Whole(200, "hello"),
    );
    table.closing("a 100 and no more", proceed, BadGateway);
    let text = format!("HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nhello{}", hello(""));
    table.add("a 100 with a body", &text, BadGateway);
    let text =
        format!("HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{}", hello(""));
    table.add("a 103 with chunks", &text, BadGateway);
    table.add("a 100 after", &format!("{}{proceed}", hello("")), Whole(200, "hello"));
    let switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    table.add("a 101", switching, BadGateway);
    table.add("a 101 and a response", &format!("{switching}{POISON}"), BadGateway);
    table.add("a 101 of nothing", &format!("HTTP/1.1 101\r\n\r\n{POISON}"), BadGateway);
}

pub(super) fn table() -> Vec<Shape> {
    let mut table = Table::default();
    starts(&mut table);
    headers(&mut table);
    lengths(&mut table);
    bodies(&mut table);
    bodiless(&mut table);
    table.0
}
