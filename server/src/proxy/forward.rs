//! Forwarding over HTTP/1.1: what is for one hop stays there, the upstream learns who asked, connections are reused.

use std::error::Error;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::Either;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::upstream::{Body, text};

/// How long the upstream may take to accept a connection before it is unreachable.
const CONNECT: Duration = Duration::from_secs(5);
type BoxError = Box<dyn Error + Send + Sync>;

/// Sends requests on to the upstream, and its responses back.
pub(crate) struct Forward(Pool);

impl Forward {
    /// With at most so many connections.
    pub(crate) fn new(upstream: Authority, connections: usize) -> Self {
        Self(Pool::new(upstream, connections))
    }

    pub(crate) async fn send(&self, peer: IpAddr, mut request: Request<Incoming>) -> Response<Body> {
        if request.method() == Method::CONNECT {
            return text(StatusCode::NOT_IMPLEMENTED, "This proxy opens no tunnels.\n");
        }
        let Ok(host) = requested_host(&request) else {
            return text(StatusCode::BAD_REQUEST, "Bad request: one valid Host header is needed.\n");
        };
        send_on_as(&mut request, peer, host.as_ref(), &self.0.upstream);
        match self.0.send(request).await {
            // Upgrade was not passed on, so an upstream that switches protocols is not talking to us.
            Ok(response) if response.status() != StatusCode::SWITCHING_PROTOCOLS => hand_back(response),
            _ => text(StatusCode::BAD_GATEWAY, "Bad gateway: the upstream cannot be reached.\n"),
        }
    }
}

/// Turns a client's request into ours to the upstream.
fn send_on_as(request: &mut Request<Incoming>, peer: IpAddr, host: Option<&Authority>, upstream: &Authority) {
    let via = via(request.version());
    *request.uri_mut() = request.uri().path_and_query().cloned().map_or_else(Uri::default, Uri::from);
    *request.version_mut() = Version::HTTP_11;
    // Said for hyper, which takes a GET with a body of unknown length for one without a body.
    let chunked = !request.body().is_end_stream() && request.body().size_hint().exact().is_none();

    let headers = request.headers_mut();
    // First, because `Connection` may name any header, and must not take away what this proxy says.
    drop_hop_by_hop(headers);
    if chunked {
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    let node = if peer.is_ipv6() { format!("\"[{peer}]\"") } else { peer.to_string() };
    // There is no quote or backslash in an `Authority`, so quoting it needs no escapes.
    let host_pair = host.map_or_else(String::new, |host| format!(";host=\"{host}\""));
    append_to_list(headers, header::FORWARDED, &format!("for={node};proto=http{host_pair}"));
    append_to_list(headers, HeaderName::from_static("x-forwarded-for"), &peer.to_string());
    append_to_list(headers, header::VIA, via);
    // Not lists: they describe this hop, and what the client claims about it is not passed on.
    headers.insert("x-forwarded-proto", HeaderValue::from_static("http"));
    headers.remove("x-forwarded-host");
    let value =
        |name: &Authority| HeaderValue::from_str(name.as_str()).expect("an authority is visible ASCII");
    if let Some(host) = host {
        headers.insert("x-forwarded-host", value(host));
    }
    headers.insert(header::HOST, value(upstream));
}

/// Turns the upstream's response into ours to the client.
fn hand_back(mut response: Response<Incoming>) -> Response<Body> {
    let via = via(response.version());
    drop_hop_by_hop(response.headers_mut());
    append_to_list(response.headers_mut(), header::VIA, via);
    // hyper lowers it for a client that is older.
    *response.version_mut() = Version::HTTP_11;
    response.map(Either::Left)
}

/// The host that a client asked for; an HTTP/1.0 client need not say. An error is where RFC 9112, 3.2 wants a 400.
fn requested_host(request: &Request<Incoming>) -> Result<Option<Authority>, ()> {
    let host = match only_value(request.headers(), &header::HOST) {
        Some(host) => Some(Authority::try_from(host.as_bytes()).map_err(drop)?),
        None if request.headers().contains_key(header::HOST) || request.version() > Version::HTTP_10 => {
            return Err(());
        }
        None => None,
    };
    // A whole URL in the request line overrides the header. Neither is a place for a user's name.
    let host = request.uri().authority().cloned().or(host);
    if host.as_ref().is_some_and(|host| host.as_str().contains('@')) { Err(()) } else { Ok(host) }
}

/// Drops what is for one connection only: the headers RFC 9110, 7.6.1 lists, and those that `Connection` names.
fn drop_hop_by_hop(headers: &mut HeaderMap) {
    const ALWAYS: &str = "connection,keep-alive,proxy-connection,te,trailer,transfer-encoding,upgrade,\
                          proxy-authenticate,proxy-authorization";
    // A length beside a transfer coding is a lie about the body, and what request smuggling is made of.
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    let lines = headers.get_all(header::CONNECTION).iter().filter_map(|line| line.to_str().ok());
    let names = lines.chain([ALWAYS]).flat_map(|line| line.split(','));
    let names: Vec<HeaderName> = names.filter_map(|name| name.trim().parse().ok()).collect();
    for name in names {
        headers.remove(name);
    }
}

/// Appends to a comma-separated header, on one line: some readers look at one only.
fn append_to_list(headers: &mut HeaderMap, name: HeaderName, item: &str) {
    let mut list: Vec<&[u8]> = headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
    list.push(item.as_bytes());
    let list = HeaderValue::from_bytes(&list.join(&b", "[..])).expect("made of header values and ASCII");
    headers.insert(name, list);
}

pub(crate) fn only_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

fn via(received: Version) -> &'static str {
    if received == Version::HTTP_10 { "1.0 tollgate" } else { "1.1 tollgate" }
}

/// Connections to the upstream: as many as there are permits, never more, reused last in first out.
///
/// hyper-util's legacy client bounds the idle ones only, and a proxy that runs out of descriptors fails its clients.
struct Pool {
    upstream: Authority,
    idle: Arc<Mutex<Vec<SendRequest<Incoming>>>>,
    permits: Arc<Semaphore>,
}

impl Pool {
    fn new(upstream: Authority, connections: usize) -> Self {
        Self { upstream, idle: Arc::default(), permits: Arc::new(Semaphore::new(connections)) }
    }

    async fn send(&self, mut request: Request<Incoming>) -> Result<Response<Incoming>, BoxError> {
        let permit = self.permits.clone().acquire_owned().await?;
        loop {
            let idle = self.idle.lock().expect("nothing panics under this lock").pop();
            let kept_alive = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            match connection.try_send_request(request).await {
                Ok(response) => {
                    self.keep(connection, permit);
                    return Ok(response);
                }
                // The upstream closed a connection while it lay idle. The request comes back unsent: try the next.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if kept_alive => request = unsent,
                    _ => return Err(error.into_error().into()),
                },
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<Incoming>, BoxError> {
        let address = format!("{}:{}", self.upstream.host(), self.upstream.port_u16().unwrap_or(80));
        let stream = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Its errors reach whoever waits for a response.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Keeps a connection for reuse. It is ready when the response's body has been read, and never if the client
    /// left before that; until then it holds its permit.
    fn keep(&self, mut connection: SendRequest<Incoming>, permit: OwnedSemaphorePermit) {
        let idle = self.idle.clone();
        tokio::spawn(async move {
            if connection.ready().await.is_ok() {
                idle.lock().expect("nothing panics under this lock").push(connection);
            }
            drop(permit);
        });
    }
}
