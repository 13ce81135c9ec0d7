//! Listening sockets, and the connections that they accept.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{self, IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixSocket, UnixStream};
use tracing::warn;

use crate::net::io::Io;
use crate::settings::values::Address;

/// The pause after an `accept` that failed. The usual cause is a lack of descriptors.
const BACK_OFF: Duration = Duration::from_millis(20);
/// The most connections that may wait to be accepted. The system has a bound of its own.
const BACKLOG: u32 = 4_096;
/// The address of every client of a Unix socket.
const THIS_HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A socket that listens.
pub struct Listener {
    kind: Kind,
    address: Address,
    file: Option<SocketFile>,
}

enum Kind {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection that was accepted.
pub struct Socket {
    /// Returns the stream, which belongs to the runtime of the caller.
    pub io: Box<dyn FnOnce() -> io::Result<Box<dyn Io>> + Send>,
    /// The client's address in canonical form: a client of IPv4 has the same one at every listener.
    /// A client of a Unix socket counts as 127.0.0.1, so it is trusted if that address is.
    pub peer: IpAddr,
}

impl Listener {
    /// Listens at the address. The error is one sentence.
    ///
    /// The file of a Unix socket is replaced if no process listens on it any more. The function
    /// needs a runtime.
    pub fn bind(at: &Address) -> Result<Listener, String> {
        let listener = match at {
            Address::Tcp(address) => bind_tcp(*address),
            Address::Unix(path) => bind_unix(path),
        };
        listener.map_err(|error| format!("cannot listen on {at}: {error}"))
    }

    /// Returns the address of the listener. Its port is the real one, also where port 0 was asked
    /// for.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Waits for a connection. The future may be dropped at any time without the loss of a
    /// connection.
    ///
    /// The system ends a connection whose client leaves bytes unread for the time `unread`. This
    /// also holds once the proxy has closed the connection: until then the system keeps those bytes
    /// in memory.
    pub async fn accept(&self, unread: Duration) -> Socket {
        let accept = || async {
            match &self.kind {
                Kind::Tcp(listener) => {
                    let (stream, peer) = listener.accept().await?;
                    Ok(tcp(stream.into_std()?, peer, unread))
                }
                Kind::Unix(listener) => Ok(unix(listener.accept().await?.0.into_std()?)),
            }
        };
        persist(accept).await
    }

    /// Takes the connections that the system has accepted meanwhile, and then closes the listener.
    ///
    /// To their clients, these connections are open. The iterator does not wait for others. The
    /// file of a Unix socket is removed first, so that no client connects to a listener about to
    /// close.
    pub fn into_backlog(self, unread: Duration) -> impl Iterator<Item = Socket> + Send {
        let Listener { kind, file, .. } = self;
        drop(file);
        // The system is asked directly: the runtime learns of a connection later.
        let accepted = std::iter::repeat_with(move || match &kind {
            Kind::Tcp(listener) => accepted(SockRef::from(listener), unread),
            Kind::Unix(listener) => accepted(SockRef::from(listener), unread),
        });
        // After the fault of one connection, others may wait behind it.
        accepted.filter(|socket| !socket.as_ref().is_err_and(is_of_connection)).map_while(Result::ok)
    }
}

/// Accepts until a call succeeds, with a pause after each failure.
async fn persist<F: Future<Output = io::Result<Socket>>>(accept: impl Fn() -> F) -> Socket {
    let mut is_reported = false;
    loop {
        match accept().await {
            Ok(socket) => return socket,
            Err(error) if !is_reported => warn!(%error, "cannot accept a connection"),
            Err(_) => {}
        }
        is_reported = true;
        tokio::time::sleep(BACK_OFF).await;
    }
}

/// Takes a connection that waits.
fn accepted(listener: SockRef<'_>, unread: Duration) -> io::Result<Socket> {
    let (stream, peer) = listener.accept()?;
    stream.set_nonblocking(true)?;
    Ok(match peer.as_socket() {
        Some(peer) => tcp(stream.into(), peer, unread),
        None => unix(stream.into()),
    })
}

fn is_of_connection(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted)
}

fn tcp(stream: net::TcpStream, peer: SocketAddr, unread: Duration) -> Socket {
    // These calls fail only on a connection that is already gone, and the first read finds that
    // out.
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(unread));
    #[cfg(not(target_os = "linux"))]
    let _ = unread;
    let io = move || Ok(Box::new(TcpStream::from_std(stream)?) as Box<dyn Io>);
    Socket { io: Box::new(io), peer: peer.ip().to_canonical() }
}

fn unix(stream: unix::net::UnixStream) -> Socket {
    let io = move || Ok(Box::new(UnixStream::from_std(stream)?) as Box<dyn Io>);
    Socket { io: Box::new(io), peer: THIS_HOST }
}

fn bind_tcp(address: SocketAddr) -> io::Result<Listener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A listener that was closed leaves connections behind, and they keep the port for a minute.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let address = Address::Tcp(listener.local_addr()?);
    Ok(Listener { kind: Kind::Tcp(listener), address, file: None })
}

fn bind_unix(path: &Path) -> io::Result<Listener> {
    remove_stale(path)?;
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    let file = SocketFile { path: path.to_owned(), id: id(path)? };
    let listener = socket.listen(BACKLOG)?;
    Ok(Listener { kind: Kind::Unix(listener), address: Address::Unix(path.to_owned()), file: Some(file) })
}

/// Removes the file of a socket on which no process listens.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(file) if file.file_type().is_socket() => {}
        Ok(_) => return Err(io::Error::other("the file is not a socket")),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    // A connection to a Unix socket is made or refused at once. Another outcome is a full backlog,
    // so a process listens on the socket.
    match pin!(UnixStream::connect(path)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Poll::Ready(Err(error)) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Err(io::Error::other("another process listens there")),
    }
}

/// The file of a Unix socket. A drop removes it, unless the path has another file by then.
struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if id(&self.path).is_ok_and(|id| id == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the number of the device, and of the file on it.
fn id(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::net::TcpStream as StdTcpStream;
    use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;
    use crate::testing::Folder;

    const UNREAD: Duration = Duration::from_secs(60);

    fn bind(at: &str) -> Listener {
        Listener::bind(&Address::Tcp(at.parse().unwrap())).unwrap()
    }

    fn bind_error(at: &Address) -> String {
        Listener::bind(at).err().expect("the address is taken")
    }

    fn tcp_address(listener: &Listener) -> SocketAddr {
        match listener.address() {
            Address::Tcp(address) => *address,
            Address::Unix(_) => unreachable!("it was bound to an address"),
        }
    }

    /// Sends a byte each way, and checks that it arrives.
    async fn ping(socket: Socket, client: &mut (impl Read + Write)) -> Box<dyn Io> {
        client.write_all(b"?").unwrap();
        let mut io = (socket.io)().unwrap();
        assert_eq!(io.read_u8().await.unwrap(), b'?');
        io.write_all(b"!").await.unwrap();
        let mut answer = [0];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"!");
        io
    }

    #[tokio::test]
    async fn tcp_is_accepted_at_the_port_shown() {
        let listener = bind("127.0.0.1:0");
        let address = tcp_address(&listener);
        assert_ne!(address.port(), 0);
        let mut client = StdTcpStream::connect(address).unwrap();
        let socket = listener.accept(UNREAD).await;
        assert_eq!(socket.peer, THIS_HOST);
        ping(socket, &mut client).await;
    }

    #[tokio::test]
    async fn a_client_of_ipv4_at_a_listener_of_ipv6_has_its_canonical_address() {
        let Ok(listener) = Listener::bind(&Address::Tcp("[::]:0".parse().unwrap())) else {
            return eprintln!("not tested: this host has no IPv6");
        };
        let _client = StdTcpStream::connect(("127.0.0.1", tcp_address(&listener).port())).unwrap();
        assert_eq!(listener.accept(UNREAD).await.peer, THIS_HOST);
    }

    #[tokio::test]
    async fn a_port_in_use_is_one_sentence() {
        let listener = bind("127.0.0.1:0");
        let error = bind_error(listener.address());
        assert_eq!(
            error,
            format!("cannot listen on {}: Address already in use (os error 98)", listener.address())
        );
    }

    #[tokio::test]
    async fn a_unix_socket_is_accepted_and_its_file_removed() {
        let folder = Folder::new();
        let path = folder.path("socket");
        let listener = Listener::bind(&Address::Unix(path.clone())).unwrap();
        assert_eq!(listener.address(), &Address::Unix(path.clone()));
        let mut client = StdUnixStream::connect(&path).unwrap();
        let socket = listener.accept(UNREAD).await;
        assert_eq!(socket.peer, THIS_HOST);
        ping(socket, &mut client).await;
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced() {
        let folder = Folder::new();
        let path = folder.path("socket");
        drop(StdUnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let listener = Listener::bind(&Address::Unix(path.clone())).unwrap();
        let _client = StdUnixStream::connect(&path).unwrap();
        listener.accept(UNREAD).await;
    }

    #[tokio::test]
    async fn a_live_socket_is_left_alone() {
        let folder = Folder::new();
        let path = folder.path("socket");
        let first = StdUnixListener::bind(&path).unwrap();
        let error = bind_error(&Address::Unix(path.clone()));
        assert_eq!(error, format!("cannot listen on unix:{}: another process listens there", path.display()));
        let _client = StdUnixStream::connect(&path).unwrap();
        first.accept().unwrap();
    }

    /// A connection to such a socket would not return.
    #[tokio::test]
    async fn a_live_socket_with_a_full_backlog_is_left_alone() {
        let folder = Folder::new();
        let path = folder.path("socket");
        let first = UnixSocket::new_stream().unwrap();
        first.bind(&path).unwrap();
        let _first = first.listen(0).unwrap();
        let _client = StdUnixStream::connect(&path).unwrap();
        let error = UnixStream::connect(&path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "the backlog is not full");
        let error = bind_error(&Address::Unix(path.clone()));
        assert!(error.ends_with("another process listens there"), "{error}");
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let folder = Folder::new();
        let path = folder.path("file");
        fs::write(&path, "text").unwrap();
        let error = bind_error(&Address::Unix(path.clone()));
        assert!(error.ends_with("the file is not a socket"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    }

    #[tokio::test]
    async fn the_file_of_a_successor_is_left_alone() {
        let folder = Folder::new();
        let path = folder.path("socket");
        let listener = Listener::bind(&Address::Unix(path.clone())).unwrap();
        fs::remove_file(&path).unwrap();
        let _successor = StdUnixListener::bind(&path).unwrap();
        drop(listener);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_backlog_of_tcp_is_answered_and_then_refused() {
        let listener = bind("127.0.0.1:0");
        let address = tcp_address(&listener);
        let mut clients = Vec::from_iter((0..3).map(|_| StdTcpStream::connect(address).unwrap()));
        let sockets = Vec::from_iter(listener.into_backlog(UNREAD));
        assert_eq!(sockets.len(), 3);
        // An open connection keeps the port: no listener of another test is given it.
        let mut open = Vec::new();
        for (socket, client) in sockets.into_iter().zip(&mut clients) {
            open.push(ping(socket, client).await);
        }
        let refused = StdTcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn a_backlog_of_a_unix_socket_is_answered_and_its_file_removed_first() {
        let folder = Folder::new();
        let path = folder.path("socket");
        let listener = Listener::bind(&Address::Unix(path.clone())).unwrap();
        let mut clients = Vec::from_iter((0..3).map(|_| StdUnixStream::connect(&path).unwrap()));
        let backlog = listener.into_backlog(UNREAD);
        assert!(!path.exists());
        let sockets = Vec::from_iter(backlog);
        assert_eq!(sockets.len(), 3);
        for (socket, client) in sockets.into_iter().zip(&mut clients) {
            ping(socket, client).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn accepting_pauses_after_each_failure() {
        let start = Instant::now();
        let failures = Cell::new(0);
        persist(|| async {
            if failures.get() < 3 {
                failures.set(failures.get() + 1);
                return Err(ErrorKind::Other.into());
            }
            Ok(Socket { io: Box::new(|| Ok(Box::new(tokio::io::duplex(1).0))), peer: THIS_HOST })
        })
        .await;
        assert_eq!(failures.get(), 3);
        assert_eq!(start.elapsed(), 3 * BACK_OFF);
    }
}
