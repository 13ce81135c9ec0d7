//! HTTP written by hand: the clients of libraries correct the path.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A time that only a failing test waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client of one server, over one connection while that lasts.
pub(crate) struct Client {
    at: SocketAddr,
    connection: Option<BufReader<TcpStream>>,
}

impl Client {
    pub(crate) fn new(at: SocketAddr) -> Client {
        Client { at, connection: None }
    }

    /// Returns the status and the body of the response. The status is 0 if the server closes the
    /// connection.
    pub(crate) fn get(&mut self, target: &str) -> (u16, String) {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(self.at),
        };
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        connection.get_mut().write_all(request.as_bytes()).expect("the server takes a request");
        let Some((head, body)) = read(&mut connection) else { return (0, String::new()) };
        if !head.contains("\r\nconnection: close\r\n") {
            self.connection = Some(connection);
        }
        let status = head.get(9..12).and_then(|status| status.parse().ok());
        (status.expect("a status line"), body)
    }
}

fn connect(at: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(at).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time above zero");
    stream.set_nodelay(true).expect("it is connected");
    BufReader::new(stream)
}

/// Reads a response, and returns its head in lower case and its body. Returns `None` if the
/// connection ends before it.
fn read(connection: &mut impl BufRead) -> Option<(String, String)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if connection.read_line(&mut head).expect("the server answers in time") == 0 {
            assert_eq!(head, "", "the server ends in a head");
            return None;
        }
    }
    head.make_ascii_lowercase();
    let length = head.split("\r\ncontent-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a length"))];
    connection.read_exact(&mut body).expect("the server sends the body in time");
    Some((head, String::from_utf8(body).expect("text")))
}
