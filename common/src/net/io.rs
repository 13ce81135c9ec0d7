//! A stream of bytes, whatever carries it.

use tokio::io::{AsyncRead, AsyncWrite};

/// A stream of bytes in both directions: over TCP or a Unix socket, with TLS or without.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}
