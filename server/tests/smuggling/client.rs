//! A client that reads strictly.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::strict::{self, Length, Message};
use super::{PATIENCE, text};

pub(crate) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// The end of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    /// The connection ended before the end of the response.
    Cut,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the proxy listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream.set_nodelay(true).expect("it is open");
        Client { stream, unread: Vec::new() }
    }

    /// Writes bytes. The proxy may close the connection before it has read all of them.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Ends the client's side. The proxy may have closed the connection.
    pub(crate) fn hang_up(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<Message, String> {
        self.write(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        match self.reply("GET")? {
            Some((reply, End::Whole)) => Ok(reply),
            other => Err(format!("no whole response to GET {path}, but {other:?}")),
        }
    }

    /// Reads the next response that is not a 1xx. Returns `None` if the connection has ended.
    pub(crate) fn reply(&mut self, method: &str) -> Result<Option<(Message, End)>, String> {
        let mut head = loop {
            match strict::head(&self.unread)? {
                Some((head, length)) => {
                    self.unread.drain(..length);
                    if !(100..200).contains(&head.status()) {
                        break head;
                    }
                }
                None if self.more()? => (),
                None if self.unread.is_empty() => return Ok(None),
                None => return Err(format!("a part of a head: {:?}", text(&self.unread))),
            }
        };
        if !(200..1_000).contains(&head.status()) {
            return Err(format!("no response: {head:?}"));
        }
        let told = strict::length(&head)?;
        if method == "HEAD" || head.status() == 304 {
            return Ok(Some((head, End::Whole)));
        }
        if head.status() == 204 {
            let is_bodiless = told == Length::Untold;
            return if is_bodiless {
                Ok(Some((head, End::Whole)))
            } else {
                Err(format!("{told:?} in {head:?}"))
            };
        }
        loop {
            let body = match told {
                Length::Known(length) => self.unread.get(..length).map(|body| (text(body), length)),
                Length::Chunked => strict::chunks(&self.unread)?,
                Length::Untold => None,
            };
            if let Some((body, length)) = body {
                self.unread.drain(..length);
                head.body = body;
                return Ok(Some((head, End::Whole)));
            }
            if !self.more()? {
                head.body = text(&std::mem::take(&mut self.unread));
                let end = if told == Length::Untold { End::Whole } else { End::Cut };
                return Ok(Some((head, end)));
            }
        }
    }

    /// Reads more bytes. Returns `false` if the connection has ended.
    pub(crate) fn more(&mut self) -> Result<bool, String> {
        let mut buffer = [0; 1 << 16];
        match self.stream.read(&mut buffer) {
            Ok(count) => {
                self.unread.extend_from_slice(&buffer[..count]);
                Ok(count > 0)
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(false),
            Err(error) => Err(format!("neither a response nor the end: {error}")),
        }
    }

    /// Returns the bytes that were read, from now on without the first `count`.
    pub(crate) fn unread(&mut self, count: usize) -> &[u8] {
        self.unread.drain(..count);
        &self.unread
    }
}
