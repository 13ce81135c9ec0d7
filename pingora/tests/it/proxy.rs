//! A proxy with all calls of a gate, in this process.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use pingora_core::apps::HttpServerOptions;
use pingora_core::prelude::*;
use pingora_core::server::configuration::ServerConf;
use pingora_http::ResponseHeader;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use tollgate::{Clock, Quota, RateLimiter};
use tollgate_http::{ClientIp, LayerBuilder, RateLimitLayer};
use tollgate_pingora::{Gate, GateContext};
use tollgate_testing::wire::{Connection, PATIENCE};

/// The time after which the proxy gives up on its upstream.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);

struct Proxy {
    gate: Gate,
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for Proxy {
    type CTX = GateContext;

    fn new_ctx(&self) -> GateContext {
        GateContext::default()
    }

    async fn request_filter(&self, session: &mut Session, context: &mut GateContext) -> Result<bool> {
        // Without it pingora closes a connection whose next request comes with the end of a body.
        session.set_pipelining_enabled(true);
        self.gate.request(session, context).await
    }

    async fn request_body_filter(
        &self,
        _: &mut Session,
        _: &mut Option<Bytes>,
        end_of_stream: bool,
        context: &mut GateContext,
    ) -> Result<()> {
        self.gate.request_body(end_of_stream, context);
        Ok(())
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut GateContext) -> Result<Box<HttpPeer>> {
        let mut peer = HttpPeer::new(self.upstream, false, String::new());
        peer.options.connection_timeout = Some(TIMEOUT);
        peer.options.read_timeout = Some(TIMEOUT);
        Ok(Box::new(peer))
    }

    async fn response_filter(
        &self,
        _: &mut Session,
        head: &mut ResponseHeader,
        context: &mut GateContext,
    ) -> Result<()> {
        self.gate.response(head, context);
        Ok(())
    }

    fn response_body_filter(
        &self,
        _: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        context: &mut GateContext,
    ) -> Result<Option<Duration>> {
        self.gate.body(body, end_of_stream, context);
        Ok(None)
    }

    async fn response_trailer_filter(
        &self,
        _: &mut Session,
        trailers: &mut HeaderMap,
        context: &mut GateContext,
    ) -> Result<Option<Bytes>> {
        self.gate.trailers(trailers, context);
        Ok(None)
    }

    async fn logging(&self, _: &mut Session, error: Option<&Error>, context: &mut GateContext) {
        self.gate.logging(error, context);
    }
}

/// Returns an address of this host that no other test listens at.
fn free() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [high, low, ..] = (std::process::id() as u16).to_be_bytes();
    let host = [127, high | 128, low, NEXT.fetch_add(1, Ordering::Relaxed)];
    TcpListener::bind(SocketAddr::from((host, 0))).expect("a free port").local_addr().expect("it is bound")
}

/// Starts a proxy, and returns its address. It listens until the process of the test ends.
pub(crate) fn start(gate: Gate, upstream: SocketAddr) -> SocketAddr {
    let address = free();
    thread::spawn(move || {
        let conf = ServerConf { threads: 1, ..ServerConf::default() };
        let mut server = Server::new_with_opt_and_conf(None, conf);
        server.bootstrap();
        let mut proxy = http_proxy_service(&server.configuration, Proxy { gate, upstream });
        let mut options = HttpServerOptions::default();
        options.h2c = true;
        proxy.app_logic_mut().expect("it has not started").server_options = Some(options);
        proxy.add_tcp(&address.to_string());
        server.add_service(proxy);
        server.run_forever();
    });
    until("the proxy listens", || TcpStream::connect(address).is_ok());
    address
}

/// Waits for a condition.
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Begins a layer with a limit for each address, by a clock that stands still.
pub(crate) fn by_address(quota: Quota) -> LayerBuilder<std::net::IpAddr> {
    let limiter = RateLimiter::builder(quota).clock(Clock::mock().0).build();
    RateLimitLayer::builder(limiter).key(ClientIp::peer())
}

/// A limit that refuses no request of a test.
pub(crate) fn unlimited() -> Gate {
    Gate::new(by_address(Quota::per_hour(1_000_000)).build().boxed())
}

/// Connects to a proxy, from its own address.
pub(crate) fn connect(proxy: SocketAddr) -> Connection {
    Connection::connect(proxy)
}
