//! A proxy of pingora that limits the rate of each client address, its requests in flight, and the
//! requests in flight to the upstream.
//!
//! ```text
//! python3 -m http.server 8000 --bind 127.0.0.1
//! cargo run --release --manifest-path pingora/Cargo.toml --example proxy -- 127.0.0.1:8080 127.0.0.1:8000
//! for _ in $(seq 400); do curl -so /dev/null -w '%{http_code}\n' http://127.0.0.1:8080/ & done; wait
//! ```
//!
//! The third argument is the limit in flight. It is fixed, unless the fourth is a target in
//! milliseconds.

use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use pingora_core::prelude::*;
use pingora_core::server::configuration::ServerConf;
use pingora_http::ResponseHeader;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use tollgate::{Places, Quota, RateLimiter};
use tollgate_adaptive::{Inflight, InflightLayer};
use tollgate_http::{ClientIp, Exempt, RateLimitLayer};
use tollgate_pingora::{Gate, GateContext};

struct Limited {
    upstream: String,
    gate: Gate,
}

/// The state of a request. pingora drops it when the request has ended, whatever ends it: the body,
/// an error, or a client that leaves.
#[derive(Default)]
struct Context {
    gate: GateContext,
}

#[async_trait]
impl ProxyHttp for Limited {
    type CTX = Context;

    fn new_ctx(&self) -> Context {
        Context::default()
    }

    async fn request_filter(&self, session: &mut Session, context: &mut Context) -> Result<bool> {
        self.gate.request(session, &mut context.gate).await
    }

    async fn request_body_filter(
        &self,
        _: &mut Session,
        _: &mut Option<Bytes>,
        end_of_stream: bool,
        context: &mut Context,
    ) -> Result<()> {
        self.gate.request_body(end_of_stream, &mut context.gate);
        Ok(())
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut Context) -> Result<Box<HttpPeer>> {
        let mut peer = HttpPeer::new(&self.upstream, false, String::new());
        // Longer than twice the target, or no longer target can be met.
        peer.options.connection_timeout = Some(Duration::from_secs(1));
        peer.options.read_timeout = Some(Duration::from_secs(10));
        Ok(Box::new(peer))
    }

    async fn response_filter(
        &self,
        _: &mut Session,
        response: &mut ResponseHeader,
        context: &mut Context,
    ) -> Result<()> {
        self.gate.response(response, &mut context.gate);
        Ok(())
    }

    async fn logging(&self, _: &mut Session, error: Option<&pingora_core::Error>, context: &mut Context) {
        self.gate.logging(error, &mut context.gate);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (listen, upstream) = (next("127.0.0.1:8080"), next("127.0.0.1:8000"));

    let most = next("1000").parse()?;
    let inflight = match next("fixed").as_str() {
        "fixed" => Inflight::fixed(most),
        millis => Inflight::adaptive(Duration::from_millis(millis.parse()?), most).build()?,
    };

    // Behind one more proxy: `.behind(HopList::XForwardedFor, Trust::hops(1))`.
    let client = ClientIp::peer();
    let rates = RateLimiter::builder(Quota::per_second(100).burst(200)).max_keys(1_000_000).inline()?.build();
    let rates =
        RateLimitLayer::builder(rates).key(client.clone()).exempt(Exempt::paths(["/health"])?).build();
    let places = RateLimiter::builder(Places::try_new(64)?).max_keys(1_000_000).build();
    let gate = Gate::new(rates.boxed()).places(places, client).upstream(InflightLayer::new(inflight));

    // At SIGTERM: no new connections, and ten seconds for the requests under way.
    let conf = ServerConf {
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(10),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut proxy = http_proxy_service(&server.configuration, Limited { upstream, gate });
    proxy.add_tcp(&listen);
    server.add_service(proxy);
    println!("listening on http://{listen}");
    server.run_forever()
}
