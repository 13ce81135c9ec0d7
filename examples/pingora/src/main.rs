//! A proxy of pingora that limits the rate of each client address, and the requests in flight to
//! its upstream.
//!
//! It needs cmake and a C compiler, and is outside CI. `cargo test` runs it over an upstream.
//!
//! ```text
//! python3 -m http.server 8000 --bind 127.0.0.1
//! cargo run --release --manifest-path examples/pingora/Cargo.toml -- 127.0.0.1:8080 127.0.0.1:8000
//! for _ in $(seq 400); do curl -so /dev/null -w '%{http_code}\n' http://127.0.0.1:8080/ & done; wait
//! ```
//!
//! The third argument is the limit in flight. It is fixed, unless the fourth is a target in
//! milliseconds.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::prelude::*;
use pingora_core::server::configuration::ServerConf;
use pingora_core::{ErrorSource, ErrorType};
use pingora_http::ResponseHeader;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use tollgate::{Granted, Quota, RateLimiter};
use tollgate_adaptive::{Inflight, Outcome, OwnedFlight, Priority};
use tollgate_http::{ClientIp, Fields, Policy};

struct Limited {
    upstream: String,
    limiter: RateLimiter<std::net::IpAddr>,
    client: ClientIp,
    policy: Policy,
    /// Of the one upstream. With several, each has its own.
    inflight: Arc<Inflight>,
}

/// The state of a request. pingora drops it when the request has ended, whatever ends it: the body,
/// an error, or a client that leaves.
#[derive(Default)]
struct Context {
    /// The decision, for the response.
    granted: Option<Granted>,
    /// The place at the upstream.
    flight: Option<OwnedFlight>,
}

/// Answers without a body, and returns that it was answered.
async fn refuse(session: &mut Session, mut response: ResponseHeader) -> Result<bool> {
    response.insert_header("content-length", "0")?;
    session.write_response_header(Box::new(response), true).await?;
    Ok(true)
}

fn add(fields: Fields, response: &mut ResponseHeader) -> Result<()> {
    // Not `Fields::append_to`: pingora keeps the spelling of names beside the map.
    fields.into_iter().try_for_each(|(name, value)| response.append_header(name, value).map(drop))
}

#[async_trait]
impl ProxyHttp for Limited {
    type CTX = Context;

    fn new_ctx(&self) -> Context {
        Context::default()
    }

    /// Answers here if the client has no token left, or the upstream no place. `true` is that it
    /// was answered.
    async fn request_filter(&self, session: &mut Session, context: &mut Context) -> Result<bool> {
        let peer = session.client_addr().and_then(|peer| peer.as_inet()).map(|peer| peer.ip());
        // Behind one more proxy: `.behind(HopList::XForwardedFor, Trust::hops(1))`.
        let Some(client) = self.client.key_of(peer, &session.req_header().headers) else {
            return Err(pingora_core::Error::explain(HTTPStatus(400), "a connection without an address"));
        };
        match self.limiter.try_acquire(&client) {
            Ok(granted) => context.granted = Some(granted),
            Err(denied) => {
                let mut response = ResponseHeader::build(429, Some(4))?;
                add(self.policy.fields(&Err(denied)), &mut response)?;
                return refuse(session, response).await;
            }
        }
        match self.inflight.try_enter_owned(Priority::Critical) {
            Ok(flight) => context.flight = Some(flight),
            Err(_) => {
                let mut response = ResponseHeader::build(503, Some(2))?;
                response.insert_header("retry-after", "1")?;
                return refuse(session, response).await;
            }
        }
        Ok(false)
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
        // The latency is that of the head, and the body holds the place on.
        if let Some(flight) = &mut context.flight {
            flight.note(match response.status.as_u16() {
                429 | 503 | 504 => Outcome::Overloaded,
                500.. => Outcome::Failed,
                _ => Outcome::Answered,
            });
        }
        context.granted.map_or(Ok(()), |granted| add(self.policy.fields(&Ok(granted)), response))
    }

    /// Notes the error of a request without a head. The first outcome of a request counts.
    async fn logging(&self, _: &mut Session, error: Option<&pingora_core::Error>, context: &mut Context) {
        // A fault of the client says nothing of the upstream.
        let Some(error) = error.filter(|error| *error.esource() == ErrorSource::Upstream) else { return };
        if let Some(flight) = &mut context.flight {
            flight.note(match error.etype() {
                ErrorType::ConnectTimedout
                | ErrorType::ConnectRefused
                | ErrorType::ReadTimedout
                | ErrorType::WriteTimedout => Outcome::Overloaded,
                _ => Outcome::Failed,
            });
        }
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

    let quota = Quota::per_second(100).burst(200);
    let limited = Limited {
        upstream,
        limiter: RateLimiter::builder(quota).max_keys(1_000_000).inline()?.build(),
        client: ClientIp::peer(),
        policy: Policy::new("default", quota)?,
        inflight: Arc::new(inflight),
    };
    // At SIGTERM: no new connections, and ten seconds for the requests under way.
    let conf = ServerConf {
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(10),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut proxy = http_proxy_service(&server.configuration, limited);
    proxy.add_tcp(&listen);
    server.add_service(proxy);
    println!("listening on http://{listen}");
    server.run_forever()
}
