//! The bytes of a client, and their strict reading.

use tollgate_testing::wire::bytes;

use crate::smuggling::verdict::Reading;

/// A request that must never arrive as one of its own: a strict parser never sees it as a request.
pub(super) const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
/// A request that a strict parser sees behind another one.
pub(super) const SECOND: &str = "GET /second HTTP/1.1\r\nHost: a\r\n\r\n";
pub(super) const POST: &str = "POST /x HTTP/1.1";
pub(super) const GET: &str = "GET /x HTTP/1.1";

/// The bytes of a client, and their strict reading.
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
    pub(super) reading: Reading,
    /// Whether the client ends its side of the connection after the bytes.
    pub(super) hangs_up: bool,
}

#[derive(Default)]
pub(super) struct Table(pub(super) Vec<Shape>);

impl Table {
    pub(super) fn add(&mut self, name: &'static str, text: &str, reading: Reading) {
        self.0.push(Shape { name, bytes: bytes(text), reading, hangs_up: false });
    }

    pub(super) fn refused(&mut self, name: &'static str, text: &str) {
        self.add(name, text, Reading::Refused);
    }

    /// Adds a request that is not whole, and the end of the client's side.
    pub(super) fn cut(&mut self, name: &'static str, text: &str) {
        self.refused(name, text);
        if let Some(shape) = self.0.last_mut() {
            shape.hangs_up = true;
        }
    }

    pub(super) fn one(&mut self, name: &'static str, text: &str, start: &str, body: &str) {
        self.each(name, text, &[(start, body)]);
    }

    pub(super) fn each(&mut self, name: &'static str, text: &str, requests: &[(&str, &str)]) {
        self.add(name, text, Reading::Each(owned(requests)));
    }

    /// Adds one request, after which the proxy ends the connection.
    pub(super) fn last(&mut self, name: &'static str, text: &str, start: &str, body: &str) {
        self.add(name, text, Reading::Last(owned(&[(start, body)])));
    }
}

pub(super) fn owned(requests: &[(&str, &str)]) -> Vec<(String, String)> {
    requests.iter().map(|(start, body)| ((*start).to_owned(), (*body).to_owned())).collect()
}

pub(super) fn message(start: &str, headers: &str, body: &str) -> String {
    format!("{start}\r\nHost: a\r\n{headers}\r\n{body}")
}

pub(super) fn post(headers: &str, body: &str) -> String {
    message(POST, headers, body)
}

pub(super) fn get(headers: &str) -> String {
    message(GET, headers, "")
}

pub(super) fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n", body)
}
