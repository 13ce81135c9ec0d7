//! The header of the PROXY protocol, versions 1 and 2.
//!
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>

use std::fmt::Display;
use std::io;
use std::net::IpAddr;

use ppp::{v1, v2};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tollgate_common::net::open::Stream;

/// The size of a buffer that holds most headers.
const BUFFER: usize = 256;

/// The longest line of version 1, with its end.
const LONGEST_LINE: u64 = 107;
/// The part of version 2 that every header has. Its last two bytes are the length of the rest.
const FIXED: usize = 16;
/// The longest rest. The protocol allows 65,535 bytes; addresses need 216, and the others are TLVs.
const LONGEST_REST: usize = 2_048;
/// Version 2, command LOCAL.
const LOCAL: u8 = 0x20;

/// Reads the header of a trusted peer. Returns the stream behind it, and the source that it names.
pub(super) async fn source(io: Stream, is_trusted: bool) -> io::Result<(Stream, Option<IpAddr>)> {
    if !is_trusted {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the peer is not trusted"));
    }
    // The buffer may hold bytes from behind the header.
    let mut buffered = BufReader::with_capacity(BUFFER, io);
    let source = read(&mut buffered).await?;
    Ok((Box::new(buffered), source))
}

/// Reads a header, and no byte behind it.
///
/// The result is the source address, in canonical form. It is `None` if the header leaves the
/// address of the connection: LOCAL, UNKNOWN, and families that are not TCP.
async fn read(io: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<IpAddr>> {
    let source = match io.fill_buf().await?.first() {
        Some(b'P') => read_v1(io).await?,
        Some(b'\r') => read_v2(io).await?,
        Some(_) => return Err(malformed("the connection does not begin with a header")),
        None => return Err(io::ErrorKind::UnexpectedEof.into()),
    };
    Ok(source.map(|source| source.to_canonical()))
}

async fn read_v1(io: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<IpAddr>> {
    let mut line = Vec::new();
    io.take(LONGEST_LINE).read_until(b'\n', &mut line).await?;
    if !line.ends_with(b"\r\n") {
        return Err(malformed("the line is cut off or has more than 107 bytes"));
    }
    // The protocol says to ignore the rest of the line behind this word, and the parser does not.
    if line.starts_with(b"PROXY UNKNOWN ") {
        return Ok(None);
    }
    match v1::Header::try_from(&line[..]).map_err(malformed)?.addresses {
        v1::Addresses::Tcp4(addresses) => Ok(Some(addresses.source_address.into())),
        v1::Addresses::Tcp6(addresses) => Ok(Some(addresses.source_address.into())),
        v1::Addresses::Unknown => Ok(None),
    }
}

async fn read_v2(io: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<IpAddr>> {
    let mut header = vec![0; FIXED];
    io.read_exact(&mut header).await?;
    if !header.starts_with(v2::PROTOCOL_PREFIX) {
        return Err(malformed("the connection does not begin with a header"));
    }
    let rest = usize::from(u16::from_be_bytes([header[14], header[15]]));
    if rest > LONGEST_REST {
        return Err(malformed(format_args!("the header has {rest} bytes, more than {LONGEST_REST}")));
    }
    header.resize(FIXED + rest, 0);
    io.read_exact(&mut header[FIXED..]).await?;
    // The protocol says to ignore the family and the addresses, and the parser does not.
    if header[12] == LOCAL {
        return Ok(None);
    }
    let header = v2::Header::try_from(&header[..]).map_err(malformed)?;
    match (header.addresses, header.protocol) {
        (v2::Addresses::IPv4(addresses), v2::Protocol::Stream) => Ok(Some(addresses.source_address.into())),
        (v2::Addresses::IPv6(addresses), v2::Protocol::Stream) => Ok(Some(addresses.source_address.into())),
        (v2::Addresses::Unspecified, v2::Protocol::Unspecified) => Ok(None),
        (v2::Addresses::Unspecified, _) | (_, v2::Protocol::Unspecified) => {
            Err(malformed("the family and the protocol do not belong together"))
        }
        (v2::Addresses::Unix(_), _) | (_, v2::Protocol::Datagram) => Ok(None),
    }
}

fn malformed(fault: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fault.to_string())
}
