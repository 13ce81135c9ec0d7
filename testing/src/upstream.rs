//! Servers for tests of a client or a proxy. They listen until the process of the test ends, and a
//! step that does not succeed is a panic.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::wire::{Connection, Message, PATIENCE};

/// A response with the status 200 and the body `ok`.
pub const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Starts a server that serves each connection in a thread. Returns its URL.
pub fn serve(serve: impl Fn(Connection) + Send + Sync + 'static) -> String {
    url(start(serve))
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

fn start(serve: impl Fn(Connection) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    accept(listener, serve);
    address
}

/// Serves each connection of a listener in a thread.
fn accept(listener: TcpListener, serve: impl Fn(Connection) + Send + Sync + 'static) {
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (serve, stream) = (serve.clone(), stream.expect("a connection"));
            thread::spawn(move || serve(Connection::of(stream)));
        }
    });
}

/// A server that tells of each request.
#[derive(Debug)]
pub struct Upstream<T> {
    /// The address of the server.
    pub address: SocketAddr,
    received: Receiver<T>,
}

impl<T> Upstream<T> {
    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        url(self.address)
    }

    /// Returns the next request.
    pub fn next(&self) -> T {
        self.received.recv_timeout(PATIENCE).expect("the upstream is asked")
    }

    /// Returns a request that has already arrived.
    pub fn try_next(&self) -> Option<T> {
        self.received.try_recv().ok()
    }

    /// Returns the number of the requests that have arrived since the last call.
    pub fn count(&self) -> usize {
        self.received.try_iter().count()
    }
}

impl Upstream<Message> {
    /// Starts a server that gives every request the same response. It tells of the requests.
    pub fn answering(response: &'static str) -> Upstream<Message> {
        let (sender, received) = mpsc::channel();
        let address = start(move |mut connection| {
            while let Some(request) = connection.request() {
                // The test may have ended by then.
                let _ = sender.send(request);
                let _ = connection.try_write(response);
            }
        });
        Upstream { address, received }
    }
}

/// A request at a server that holds its requests back, and the connection of it.
#[derive(Debug)]
pub struct Held {
    /// The head of the request.
    pub head: Message,
    connection: Connection,
    sender: Sender<Held>,
}

impl Upstream<Held> {
    /// Starts a server that hands a connection over with the head of a request, and leaves the rest
    /// to the test.
    pub fn holding() -> Upstream<Held> {
        let (sender, received) = mpsc::channel();
        let address = start(move |connection| hand_over(connection, sender.clone()));
        Upstream { address, received }
    }
}

fn hand_over(mut connection: Connection, sender: Sender<Held>) {
    if let Some(head) = connection.try_head() {
        // The test may have ended by then.
        let _ = sender.clone().send(Held { head, connection, sender });
    }
}

impl Held {
    /// Writes a response, and holds the next request of the connection back.
    pub fn answer(mut self, response: &str) {
        self.write(response);
        thread::spawn(move || hand_over(self.connection, self.sender));
    }

    /// Reads all bytes until the other side ends the connection.
    pub fn rest(mut self) -> Vec<u8> {
        self.connection.rest()
    }

    /// Writes a text. The other side may have closed the connection.
    pub fn write(&mut self, text: &str) {
        let _ = self.connection.try_write(text);
    }
}

impl Deref for Held {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

fn bound() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    let address = socket.local_addr().expect("it is bound").as_socket().expect("an address of IPv4");
    (socket, address)
}

/// Returns a URL of a port that refuses connections until the process ends.
///
/// A socket that does not listen keeps the port. Otherwise the port of a closed listener could be
/// given to the server of another test.
pub fn refusing() -> String {
    let (socket, address) = bound();
    std::mem::forget(socket);
    url(address)
}

/// A port that refuses connections until it listens.
#[derive(Debug)]
pub struct Down {
    /// The URL of the port.
    pub url: String,
    socket: Socket,
}

impl Down {
    /// Takes a port.
    pub fn bound() -> Down {
        let (socket, address) = bound();
        Down { url: url(address), socket }
    }

    /// Begins to listen, and serves each connection in a thread.
    pub fn listen(self, serve: impl Fn(Connection) + Send + Sync + 'static) {
        self.socket.listen(64).expect("the port is its own");
        accept(self.socket.into(), serve);
    }
}

/// A listener that accepts no connection, with the connections that fill its backlog.
#[derive(Debug)]
pub struct Deaf {
    /// The URL of the listener.
    pub url: String,
    _listener: Socket,
    _backlog: Vec<TcpStream>,
}

/// Returns a listener that accepts no connection.
pub fn deaf() -> Deaf {
    let (listener, address) = bound();
    listener.listen(1).expect("it is bound");
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok();
    let backlog: Vec<_> = (0..16).map_while(connect).collect();
    assert!(backlog.len() < 16, "the backlog is full");
    Deaf { url: url(address), _listener: listener, _backlog: backlog }
}
