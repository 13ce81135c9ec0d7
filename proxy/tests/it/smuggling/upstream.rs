//! The upstream of these tests, which reports every byte that it gets.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

use tollgate_testing::wire::{self, bytes, text};

use crate::support::{Message, PATIENCE};

/// The name of the proxy in `Via`.
pub(crate) const VIA: &str = "edge";

/// An event at a connection, with the number of the connection.
#[derive(Debug)]
pub(crate) enum Event {
    Opened(usize),
    Request(usize, Message),
    /// Bytes that are no request, with the reason.
    Malformed(usize, String),
    /// The end of a connection, perhaps in the middle of a request.
    Closed(usize),
}

/// The bytes that answer a request for `/odd`.
#[derive(Clone, Default)]
pub(crate) struct Odd {
    pub(crate) bytes: Vec<u8>,
    /// Whether the connection ends after the bytes.
    pub(crate) closes: bool,
}

pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    pub(crate) events: Receiver<Event>,
    pub(crate) odd: Arc<Mutex<Odd>>,
    connections: Connections,
}

/// The open connections by their numbers.
type Connections = Arc<Mutex<HashMap<usize, TcpStream>>>;

impl Upstream {
    pub(crate) fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let (sender, events) = mpsc::channel();
        let odd: Arc<Mutex<Odd>> = Arc::default();
        let connections = Connections::default();
        let (answers, kept) = (odd.clone(), connections.clone());
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (sender, odd, stream) = (sender.clone(), answers.clone(), stream.expect("a connection"));
                let clone = stream.try_clone().expect("a descriptor");
                let kept = kept.clone();
                kept.lock().expect("no thread panics with it").insert(number, clone);
                if sender.send(Event::Opened(number)).is_err() {
                    return;
                }
                thread::spawn(move || {
                    serve(number, stream, &sender, &odd);
                    kept.lock().expect("no thread panics with it").remove(&number);
                    let _ = sender.send(Event::Closed(number));
                });
            }
        });
        Upstream { address, events, odd, connections }
    }

    /// Writes to a connection on which no request waits.
    pub(crate) fn write(&self, number: usize, bytes: &[u8]) {
        let connections = self.connections.lock().expect("no thread panics with it");
        (&connections[&number]).write_all(bytes).expect("the proxy keeps it open");
    }

    pub(crate) fn event(&self) -> Result<Event, String> {
        self.events.recv_timeout(PATIENCE).map_err(|_| "the upstream waits for an event".to_owned())
    }
}

/// Answers the requests of a connection. The test may have ended by then.
fn serve(number: usize, mut stream: TcpStream, events: &Sender<Event>, odd: &Mutex<Odd>) {
    let mut unread = Vec::new();
    let mut buffer = [0; 1 << 16];
    // `is_over`: the last response was sent. `is_early`: a request got its response before it was
    // whole.
    let (mut is_over, mut is_early) = (false, false);
    loop {
        // The process of the proxy may be killed in the middle of a request.
        let count = stream.read(&mut buffer).unwrap_or(0);
        if count == 0 {
            break;
        }
        unread.extend_from_slice(&buffer[..count]);
        loop {
            let (request, length) = match wire::request(&unread) {
                Ok(None) => {
                    if !is_early
                        && let Ok(Some((head, _))) = wire::head(&unread)
                        && head.start.contains(" /early")
                    {
                        is_early = true;
                        let _ = stream.write_all(&answer(&head, odd).0);
                    }
                    break;
                }
                _ if is_over => (Err("a request after the last".to_owned()), unread.len()),
                Ok(Some((request, length))) => (of_proxy(&request).map(|()| request), length),
                Err(why) => (Err(why), unread.len()),
            };
            let read: Vec<u8> = unread.drain(..length).collect();
            let request = match request {
                Ok(request) => request,
                Err(why) => {
                    let _ = events.send(Event::Malformed(number, format!("{why}, in {:?}", text(&read))));
                    let _ = stream.shutdown(Shutdown::Write);
                    continue;
                }
            };
            let (answer, closes) = answer(&request, odd);
            let _ = events.send(Event::Request(number, request));
            if !std::mem::take(&mut is_early) && stream.write_all(&answer).is_err() {
                break;
            }
            if closes {
                is_over = true;
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
    }
}

/// Checks that the proxy has read and written a request. A request that it passed on unread has
/// none of these headers.
fn of_proxy(request: &Message) -> Result<(), String> {
    let from = "for=127.0.0.1;proto=http";
    let ends_in = |name: &str, end: &str| request.all(name).last().is_some_and(|value| value.ends_with(end));
    let stamped = ends_in("via", &format!(" {VIA}"))
        && request.has("x-forwarded-for", "127.0.0.1")
        && request.has("x-real-ip", "127.0.0.1")
        && matches!(request.all("forwarded")[..], [value] if value.starts_with(from))
        && request.all("host").len() == 1;
    if !stamped {
        return Err("no request of the proxy".to_owned());
    }
    let words: Vec<&str> = request.start.split(' ').collect();
    let [_, target, "HTTP/1.1"] = words[..] else { return Err("no start line".to_owned()) };
    if !target.starts_with('/') && request.start != "OPTIONS * HTTP/1.1" {
        return Err("no target for an upstream".to_owned());
    }
    let is_websocket = request.has("connection", "upgrade")
        && request.has("upgrade", "websocket")
        && request.start.starts_with("GET ")
        && !request.start.contains("/no-upgrade");
    for (name, value) in &request.headers {
        let may_be = match &**name {
            "connection" | "upgrade" => is_websocket,
            "te" => value == "trailers",
            "keep-alive" | "proxy-connection" | "proxy-authorization" | "trailer" | "http2-settings" => false,
            // A header of the tests, which `Connection` names.
            "x-hop" => false,
            _ => true,
        };
        if !may_be {
            return Err(format!("{name} is for one connection"));
        }
    }
    Ok(())
}

/// Returns the response to a request, which tells its start line, and whether the connection ends
/// with it.
fn answer(request: &Message, odd: &Mutex<Odd>) -> (Vec<u8>, bool) {
    if request.start.contains(" /odd") {
        let odd = odd.lock().expect("no thread panics with it").clone();
        return (odd.bytes, odd.closes);
    }
    if request.start.contains(" /fake101") {
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n";
        return (bytes(head), false);
    }
    let closes = request.start.contains(" /innocent");
    let connection = if closes { "Connection: close\r\n" } else { "" };
    let start = &request.start;
    let length = bytes(start).len();
    let body = if start.starts_with("HEAD ") { "" } else { start };
    let head = format!("HTTP/1.1 200 OK\r\n{connection}X-Asked: {start}\r\nContent-Length: {length}\r\n\r\n");
    ([bytes(&head), bytes(body)].concat(), closes)
}
