//! The verdict on a shape: the client's side, and the upstream's.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Instant;

use tollgate_testing::wire::End;

use super::upstream::{Event, Upstream, VIA};
use crate::support::{Certificate, Connection, Folder, Message, PATIENCE, Proxy};

/// The reading of a shape by a strict parser.
#[derive(Clone, Debug)]
pub(crate) enum Reading {
    /// The client gets a 4xx or 5xx or nothing, and the end of the connection.
    Refused,
    /// Requests, each with a start line and a body. The next request of the connection is a
    /// separate one.
    Each(Vec<(String, String)>),
    /// Requests, and then the end of the connection.
    Last(Vec<(String, String)>),
}

impl Reading {
    pub(crate) fn requests(&self) -> &[(String, String)] {
        match self {
            Reading::Refused => &[],
            Reading::Each(requests) | Reading::Last(requests) => requests,
        }
    }
}

/// The proxy with the upstream of these tests.
pub(crate) struct Bench {
    proxy: Proxy,
    /// The proxy behind it, if the requests pass two.
    _second: Option<Proxy>,
    pub(crate) upstream: Upstream,
    /// The number of requests of other clients.
    innocents: usize,
    /// The upstream's connections over which no request of another client has come.
    pub(crate) open: BTreeSet<usize>,
    preserves_host: bool,
}

impl Bench {
    pub(crate) fn start(options: &str) -> Bench {
        let upstream = Upstream::start();
        let proxy = Proxy::over(&format!("http://{}", upstream.address), &format!("--via {VIA} {options}"));
        let preserves_host = options.contains("--preserve-host");
        Bench { proxy, _second: None, upstream, innocents: 0, open: BTreeSet::new(), preserves_host }
    }

    /// Starts a proxy whose upstream is another one. Between them is HTTP/2, and over TLS also
    /// HTTP/1.1 for upgrades.
    pub(crate) fn start_two(tls: bool) -> Bench {
        if !tls {
            return Bench::start("").behind("h2c", "");
        }
        let (folder, certificate) = (Folder::new(), Certificate::new());
        let (chain, key) = certificate.write(&folder);
        let tls = format!("--tls-cert {chain} --tls-key {key}");
        Bench::start(&tls).behind("https", &format!("--upstream-ca {chain}"))
    }

    /// Starts a proxy before that of this bench.
    fn behind(self, scheme: &str, options: &str) -> Bench {
        let url = format!("{scheme}://localhost:{}", self.proxy.address.port());
        let first = Proxy::over(&url, &format!("--via first {options}"));
        Bench { proxy: first, _second: Some(self.proxy), ..self }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.proxy.address
    }

    /// Returns the requests that the upstream has seen since the last call.
    ///
    /// The function sends requests of other clients until one has come over every open connection.
    /// Each of them must get its own response. So no bytes are left in a connection.
    pub(crate) fn settle(&mut self) -> Result<Vec<Message>, String> {
        let start = Instant::now();
        let mut requests = Vec::new();
        let mut faults = Vec::new();
        loop {
            let asked = self.ask()?;
            loop {
                match self.upstream.event()? {
                    Event::Opened(number) => drop(self.open.insert(number)),
                    Event::Closed(number) => drop(self.open.remove(&number)),
                    Event::Malformed(number, why) => {
                        faults.push(format!("connection {number} of the upstream: {why}"));
                    }
                    Event::Request(number, request) if request.start == asked => {
                        self.open.remove(&number);
                        break;
                    }
                    Event::Request(_, request) => requests.push(request),
                }
            }
            if self.open.is_empty() {
                break;
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("connections {:?} of the upstream are in use", self.open));
            }
        }
        faults.extend(requests.iter().filter_map(|request| self.check_host(request).err()));
        if faults.is_empty() { Ok(requests) } else { Err(faults.join("; ")) }
    }

    /// Sends a request of another client, which must get its own response. Returns its start line.
    fn ask(&mut self) -> Result<String, String> {
        self.innocents += 1;
        let path = format!("/innocent/{}", self.innocents);
        let reply = Connection::connect(self.address()).get(&path);
        own(&reply, &format!("GET {path} HTTP/1.1"))
    }

    /// Checks that the host of a request is the upstream's own name, or the name in the other
    /// headers.
    fn check_host(&self, request: &Message) -> Result<(), String> {
        let own = self.upstream.address.to_string();
        let asked = request.all("x-forwarded-host");
        let expected = if self.preserves_host && !asked.is_empty() { asked } else { vec![&*own] };
        if request.all("host") == expected {
            Ok(())
        } else {
            Err(format!("not for {expected:?}: {request:?}"))
        }
    }

    /// Ends the proxy, and returns the faults. A fault is a line of a panic, or bytes that no shape
    /// has accounted for.
    pub(crate) fn end(self) -> Vec<String> {
        let mut faults = self.proxy.last_words();
        faults.retain(|line| line.contains("panicked"));
        for event in self.upstream.events.try_iter() {
            if let Event::Request(..) | Event::Malformed(..) = event {
                faults.push(format!("at the end: {event:?}"));
            }
        }
        faults
    }
}

/// Checks that a response is the one to this request, and returns the start line.
pub(crate) fn own(reply: &Message, start: &str) -> Result<String, String> {
    let is_own = reply.status == 200
        && reply.has("x-asked", start)
        && (start.starts_with("HEAD ") || reply.body == start);
    if is_own { Ok(start.to_owned()) } else { Err(format!("not the response to {start:?}: {reply:?}")) }
}

/// Reads the responses up to the end of the connection, and checks that each is an error.
pub(crate) fn refused(client: &mut Connection) -> Result<(), String> {
    while let Some((reply, end)) = client.reply("GET")? {
        if reply.status < 400 || end != End::Whole {
            return Err(format!("not refused: {reply:?}"));
        }
    }
    Ok(())
}

/// Checks that the upstream saw the requests of a reading, and no others.
pub(crate) fn compare(seen: &[Message], reading: &[(String, String)]) -> Result<(), String> {
    let seen: Vec<_> = seen.iter().map(|request| (request.start.clone(), request.body.clone())).collect();
    if seen == reading { Ok(()) } else { Err(format!("the upstream saw {seen:?}, not {reading:?}")) }
}

/// Fails with all faults, if there are any.
pub(crate) fn conclude(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
