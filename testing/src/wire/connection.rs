//! A connection of HTTP/1.1, of a client or of a server.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::message::{Length, Message, chunks, head, length, request, text};

/// A time far above that of each step of a test. Only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A connection whose bytes a test writes, and reads strictly. A read gives up after [`PATIENCE`].
#[derive(Debug)]
pub struct Connection<S = TcpStream> {
    /// The stream below. Some bytes of it may have been read already.
    pub stream: S,
    unread: Vec<u8>,
}

/// The end of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The response is whole.
    Whole,
    /// The connection ended before the end of the response.
    Cut,
}

impl Connection {
    /// Connects to an address.
    pub fn connect(to: impl ToSocketAddrs) -> Connection {
        Connection::of(TcpStream::connect(to).expect("the server listens"))
    }

    /// Connects from another address of this host.
    pub fn connect_from(from: impl Into<IpAddr>, to: SocketAddr) -> Connection {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::new(from.into(), 0).into()).expect("an address of this host");
        socket.connect(&to.into()).expect("the server listens");
        Connection::of(socket.into())
    }

    /// Takes a socket over.
    pub fn of(stream: TcpStream) -> Connection {
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream.set_nodelay(true).expect("it is open");
        Connection::over(stream)
    }

    /// Checks that nothing arrives for this time, which is the pace of a slow client.
    pub fn quiet(&mut self, time: Duration) {
        assert!(self.is_quiet(time), "{:?} or the end", text(&self.unread));
    }

    /// Waits for bytes for this time. Returns whether none came, and the connection goes on.
    pub fn is_quiet(&mut self, time: Duration) -> bool {
        if !self.unread.is_empty() {
            return false;
        }
        self.stream.set_read_timeout(Some(time)).expect("not zero");
        let read = self.fill();
        self.stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Sends no more, and goes on reading. The other side may have closed the connection.
    pub fn half_close(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

impl<S: Read + Write> Connection<S> {
    /// Takes a stream over, which has a time-out of its own.
    pub fn over(stream: S) -> Connection<S> {
        Connection { stream, unread: Vec::new() }
    }

    /// Writes a text.
    pub fn write(&mut self, text: &str) {
        self.try_write(text).expect("the other side reads");
    }

    /// Writes bytes.
    ///
    /// # Errors
    ///
    /// The other side has closed the connection.
    pub fn try_write(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends a `GET`, and returns the response.
    pub fn get(&mut self, path: &str) -> Message {
        self.get_with(path, "")
    }

    /// Sends a `GET` with headers, each of which ends with CRLF, and returns the response.
    pub fn get_with(&mut self, path: &str, headers: &str) -> Message {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n"))
    }

    /// Sends a request, and returns the response.
    pub fn send(&mut self, request: &str) -> Message {
        self.write(request);
        self.read()
    }

    /// Sends a request, and returns the head of the response.
    pub fn ask(&mut self, request: &str) -> Message {
        self.write(request);
        self.head()
    }

    /// Reads a response that tells its length.
    pub fn read(&mut self) -> Message {
        match self.reply("GET") {
            Ok(Some((reply, End::Whole))) => {
                let is_told = reply.status == 204 || length(&reply) != Ok(Length::Untold);
                assert!(is_told, "no length: {reply:?}");
                reply
            }
            other => panic!("no whole response, but {other:?}"),
        }
    }

    /// Reads the head of a message.
    pub fn head(&mut self) -> Message {
        self.try_head().expect("a head")
    }

    /// Reads the head of a message, or returns `None` at the end of the connection.
    pub fn try_head(&mut self) -> Option<Message> {
        self.parse(head)
    }

    /// Reads a request with its body, or returns `None` at the end of the connection.
    pub fn request(&mut self) -> Option<Message> {
        self.parse(request)
    }

    fn parse(&mut self, parser: Parser) -> Option<Message> {
        loop {
            if let Some((message, length)) = parser(&self.unread).unwrap_or_else(|why| panic!("{why}")) {
                self.unread.drain(..length);
                return Some(message);
            }
            if self.fill().unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Reads the data of the next chunk, which is empty at the end.
    pub fn chunk(&mut self) -> String {
        let size = self.line().expect("a chunk");
        let mut data = vec![0; usize::from_str_radix(&size, 16).expect("a hexadecimal size") + 2];
        self.read_exact(&mut data).expect("a whole chunk");
        text(data.strip_suffix(b"\r\n").expect("the end of a chunk"))
    }

    /// Reads a line, or returns `None` at the end of the connection.
    pub fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Some(text(&line).trim_end().to_owned());
            }
            if self.fill().unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Reads a number of bytes.
    pub fn exactly(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read_exact(&mut bytes).expect("the other side sends them");
        bytes
    }

    /// Reads all bytes until the other side ends the connection. A reset is an end as well.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.more().expect("the connection ends") {}
        std::mem::take(&mut self.unread)
    }

    /// Waits for a byte, or the end. Returns whether the connection was closed or reset before
    /// another byte came.
    pub fn is_closed(&mut self) -> bool {
        self.unread.is_empty() && !self.more().expect("a byte or the end")
    }

    /// Checks that the connection ends without another byte. A reset would be an error.
    pub fn assert_closed(&mut self) {
        assert_eq!(self.read_byte(), Ok(0));
    }

    fn read_byte(&mut self) -> Result<usize, ErrorKind> {
        Read::read(self, &mut [0]).map_err(|error| error.kind())
    }

    /// Reads the next response that is not a 1xx, to a request of this method. Returns `None` if
    /// the connection has ended.
    ///
    /// # Errors
    ///
    /// The bytes are no response.
    pub fn reply(&mut self, method: &str) -> Result<Option<(Message, End)>, String> {
        let Some(mut head) = self.final_head()? else { return Ok(None) };
        let told = length(&head)?;
        if method == "HEAD" || head.status == 304 {
            return Ok(Some((head, End::Whole)));
        }
        if head.status == 204 {
            return match told {
                Length::Untold => Ok(Some((head, End::Whole))),
                told => Err(format!("{told:?} in {head:?}")),
            };
        }
        loop {
            let body = match told {
                Length::Known(length) => self.unread.get(..length).map(|body| (text(body), length)),
                Length::Chunked => chunks(&self.unread)?,
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

    /// Reads the next head whose status is not a 1xx.
    fn final_head(&mut self) -> Result<Option<Message>, String> {
        loop {
            match head(&self.unread)? {
                Some((head, length)) => {
                    self.unread.drain(..length);
                    match head.status {
                        100..200 => (),
                        200..1_000 => return Ok(Some(head)),
                        _ => return Err(format!("no response: {head:?}")),
                    }
                }
                None if self.more()? => (),
                None if self.unread.is_empty() => return Ok(None),
                None => return Err(format!("a part of a head: {:?}", text(&self.unread))),
            }
        }
    }

    /// Reads more bytes. Returns `false` if the connection has ended or was reset.
    fn more(&mut self) -> Result<bool, String> {
        match self.fill() {
            Ok(count) => Ok(count > 0),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(false),
            Err(error) => Err(format!("neither bytes nor the end: {error}")),
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 1 << 16];
        let count = self.stream.read(&mut buffer)?;
        self.unread.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

/// A parser of the first message in some bytes, which returns its length as well.
type Parser = fn(&[u8]) -> Result<Option<(Message, usize)>, String>;

impl<S: Read> Read for Connection<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.unread.is_empty() {
            return self.stream.read(into);
        }
        let count = (&*self.unread).read(into)?;
        self.unread.drain(..count);
        Ok(count)
    }
}
