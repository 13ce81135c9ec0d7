//! The part of the protocol of Redis that tests need to set servers up.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// The longest time to one answer.
const LIMIT: Duration = Duration::from_secs(5);

/// An answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Text, or bytes that are read as text.
    Text(String),
    /// A number.
    Number(i64),
    /// No value.
    Nil,
    /// Several answers.
    List(Vec<Reply>),
}

impl Reply {
    /// Returns the text of an answer; empty for another kind of answer.
    #[must_use]
    pub fn text(&self) -> &str {
        if let Reply::Text(text) = self { text } else { "" }
    }
}

/// Sends one command to the server at a port of the loopback, over a connection of its own.
///
/// # Errors
///
/// The server cannot be reached, or its answer is an error.
pub fn command(port: u16, words: &[&str]) -> io::Result<Reply> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(&encode(words))?;
    read_reply(&mut BufReader::new(stream))
}

fn encode(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    bytes
}

fn read_reply(reader: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, format!("no answer of Redis: {line:?}"));
    let rest = line.get(1..).unwrap_or_default().trim_end();
    let number = || rest.parse::<i64>().map_err(|_| invalid());
    match line.as_bytes().first() {
        Some(b'+') => Ok(Reply::Text(rest.to_owned())),
        Some(b':') => number().map(Reply::Number),
        Some(b'-') => Err(io::Error::other(rest.to_owned())),
        Some(b'$') => match usize::try_from(number()?) {
            Err(_) => Ok(Reply::Nil),
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                reader.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
            }
        },
        Some(b'*') => (0..number()?).map(|_| read_reply(reader)).collect::<io::Result<_>>().map(Reply::List),
        _ => Err(invalid()),
    }
}
