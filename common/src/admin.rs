//! The admin listener of a server: health, and the pages of its handler.
//!
//! A foreign web page may make a browser on this host send requests here. So a `POST` or a `DELETE`
//! needs the `Origin` of this very address, and every request needs a `Host` that no name server
//! decides on, or one of `--admin-host`: a name can be made to lead to 127.0.0.1. `/healthz` and
//! `/readyz` tell nothing that needs this.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_io_timeout::TimeoutStream;

use crate::net::crowd::{Activity, Crowd, Member};
use crate::net::fields::only_value;

/// Connections at a time. One more takes the place of another that reads no events.
pub const PLACES: usize = 32;
/// The listener, its connections, and one that loses its place.
pub const SOCKETS: usize = PLACES + 2;
/// A request's head, a request after another, and a client that does not read, may take this long.
const PAUSE: Duration = Duration::from_secs(10);
/// From an accept that failed, nearly always for want of descriptors, to the next.
const BACK_OFF: Duration = Duration::from_millis(20);

pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What a server serves beside its health.
pub trait Handler: Send + Sync + 'static {
    /// Returns the host names, besides `localhost` and addresses, that requests may name.
    fn hosts(&self) -> Vec<String>;

    /// Returns the line of `/readyz`: an error if the server is not to be asked.
    fn is_ready(&self) -> Result<&'static str, &'static str>;

    /// Answers a request whose `Host` and `Origin` are right.
    fn answer(
        &self,
        activity: &Arc<Activity>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// Listens at the address. The error is one sentence.
pub async fn bind(at: SocketAddr) -> Result<(TcpListener, SocketAddr), String> {
    let cannot_listen = |e| format!("cannot listen on {at}: {e}");
    let listener = TcpListener::bind(at).await.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    Ok((listener, address))
}

/// Serves until the process ends.
pub async fn serve(listener: TcpListener, handler: impl Handler) {
    let handler = Arc::new(handler);
    // Silent clients, and slow ones, do not keep others from `/metrics`.
    let crowd = Crowd::new(PLACES);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Some(member) = crowd.enter(None).await {
                    tokio::spawn(converse(handler.clone(), stream, member));
                }
            }
            Err(_) => sleep(BACK_OFF).await,
        }
    }
}

async fn converse(handler: Arc<impl Handler>, stream: TcpStream, member: Member) {
    // Fails only on a connection that is already gone.
    let Ok(own) = stream.local_addr().map(|address| address.ip().to_canonical()) else { return };
    let activity = member.activity.clone();
    let service = service_fn(move |request| {
        let (handler, activity) = (handler.clone(), activity.clone());
        async move { Ok::<_, Infallible>(answer(&*handler, own, &activity, request).await) }
    });
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(PAUSE));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PAUSE);
    tokio::select! {
        // An error is a client that left, and there is none to be told.
        _ = server.serve_connection(TokioIo::new(Box::pin(stream)), service) => (),
        () = member.activity.dismissed() => (),
    }
}

async fn answer(
    handler: &impl Handler,
    own: IpAddr,
    activity: &Arc<Activity>,
    request: Request<Incoming>,
) -> Response<Body> {
    // The connection is not idle at this time. Only that of a reader of events is busy later.
    activity.touch();
    let (method, path) = (request.method(), request.uri().path());
    let is_read = method == Method::GET || method == Method::HEAD;
    match path {
        "/healthz" if is_read => return text(StatusCode::OK, "ok\n"),
        "/readyz" if is_read => {
            return match handler.is_ready() {
                Ok(how) => text(StatusCode::OK, how),
                Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, why),
            };
        }
        _ => (),
    }
    let hosts = handler.hosts();
    let Some(host) = host_of_ours(request.headers(), own, &hosts) else {
        let line = "This is served to localhost, to addresses, and to hosts of --admin-host.\n";
        return text(StatusCode::FORBIDDEN, line);
    };
    let changes = method == Method::POST || method == Method::DELETE;
    if changes && !is_from(host, &hosts, request.headers()) {
        return text(StatusCode::FORBIDDEN, format!("A {method} needs the Origin of this page.\n"));
    }
    handler.answer(activity, request).await
}

/// The one `Host`, if it says this host without a name that others could have made.
fn host_of_ours<'a>(headers: &'a HeaderMap, own: IpAddr, hosts: &[String]) -> Option<&'a str> {
    let host = only_value(headers, &header::HOST)?.to_str().ok()?;
    let authority: Authority = host.parse().ok()?;
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_ours = match address.map(|address| address.to_canonical()) {
        Ok(address) => address.is_loopback() || address == own,
        Err(_) => name.eq_ignore_ascii_case("localhost") || is_named(name, hosts),
    };
    (is_ours && !host.contains('@')).then_some(host)
}

/// Whether the one `Origin` is the host that was asked: over TLS only if its name is given, since a
/// proxy is in front of it then.
fn is_from(host: &str, hosts: &[String], headers: &HeaderMap) -> bool {
    let origin = only_value(headers, &header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let Some((scheme, from)) = origin.and_then(|origin| origin.split_once("://")) else { return false };
    let may_be_tls = || host.parse().is_ok_and(|authority: Authority| is_named(authority.host(), hosts));
    from.eq_ignore_ascii_case(host) && (scheme == "http" || scheme == "https" && may_be_tls())
}

fn is_named(name: &str, hosts: &[String]) -> bool {
    hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
}

pub fn not_allowed(allowed: &'static str) -> Response<Body> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, format!("There is {allowed} only.\n"));
    response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(allowed));
    response
}

pub fn text(status: StatusCode, line: impl Into<Bytes>) -> Response<Body> {
    with(status, Some("text/plain; charset=utf-8"), Full::new(line.into()).boxed_unsync())
}

pub fn of_type(kind: &'static str, body: Body) -> Response<Body> {
    with(StatusCode::OK, Some(kind), body)
}

pub fn with(status: StatusCode, kind: Option<&'static str>, body: Body) -> Response<Body> {
    let mut response = Response::builder().status(status).header(header::CACHE_CONTROL, "no-store");
    if let Some(kind) = kind {
        response = response.header(header::CONTENT_TYPE, kind);
    }
    response.header("x-content-type-options", "nosniff").body(body).expect("the headers are valid")
}
