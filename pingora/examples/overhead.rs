//! Proxies of one listener, for a count of the instructions of a request:
//! `overhead KIND LISTEN UPSTREAM`.
//!
//! | kind | a request |
//! |---|---|
//! | `bare` | has no limit |
//! | `by-hand` | has a limit by its address and a place at the upstream, without a gate |
//! | `gate` | has the same by a gate |
//! | `refused` | is refused by a gate, from the second one on |

use std::sync::Arc;

use async_trait::async_trait;
use pingora_core::prelude::*;
use pingora_core::server::configuration::ServerConf;
use pingora_http::ResponseHeader;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use tollgate::{Granted, Quota, RateLimiter};
use tollgate_adaptive::{Inflight, InflightLayer, Outcome, OwnedFlight, Priority};
use tollgate_http::{ClientIp, Policy, RateLimitLayer};
use tollgate_pingora::{Gate, GateContext};

/// A limit without a gate.
struct ByHand {
    limiter: RateLimiter<std::net::IpAddr>,
    client: ClientIp,
    policy: Policy,
    inflight: Arc<Inflight>,
}

struct Counted {
    upstream: String,
    gate: Option<Gate>,
    by_hand: Option<ByHand>,
}

#[derive(Default)]
struct Context {
    gate: GateContext,
    granted: Option<Granted>,
    flight: Option<OwnedFlight>,
}

#[async_trait]
impl ProxyHttp for Counted {
    type CTX = Context;

    fn new_ctx(&self) -> Context {
        Context::default()
    }

    async fn request_filter(&self, session: &mut Session, context: &mut Context) -> Result<bool> {
        if let Some(gate) = &self.gate {
            return gate.request(session, &mut context.gate).await;
        }
        if let Some(by) = &self.by_hand {
            let peer = session.client_addr().and_then(|peer| peer.as_inet()).map(|peer| peer.ip());
            let client = by.client.key_of(peer, &session.req_header().headers).expect("a peer of TCP");
            context.granted = by.limiter.try_acquire(&client).ok();
            context.flight = by.inflight.try_enter_owned(Priority::Critical).ok();
        }
        Ok(false)
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut Context) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(&self.upstream, false, String::new())))
    }

    async fn response_filter(
        &self,
        _: &mut Session,
        response: &mut ResponseHeader,
        context: &mut Context,
    ) -> Result<()> {
        if let Some(gate) = &self.gate {
            gate.response(response, &mut context.gate);
        }
        if let Some(flight) = &mut context.flight {
            flight.note(Outcome::Answered);
        }
        if let (Some(by), Some(granted)) = (&self.by_hand, context.granted) {
            for (name, value) in by.policy.fields(&Ok(granted)) {
                response.append_header(name, value)?;
            }
        }
        Ok(())
    }

    async fn logging(&self, _: &mut Session, error: Option<&Error>, context: &mut Context) {
        if let Some(gate) = &self.gate {
            gate.logging(error, &mut context.gate);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [kind, listen, upstream] = &arguments[..] else { return Err("overhead KIND LISTEN UPSTREAM".into()) };
    let mut counted = Counted { upstream: upstream.clone(), gate: None, by_hand: None };
    let quota = match kind.as_str() {
        "refused" => Quota::per_day(1).burst(1),
        _ => Quota::per_second(1_000_000),
    };
    let (limiter, client) = (RateLimiter::builder(quota).max_keys(1_000).inline()?.build(), ClientIp::peer());
    match kind.as_str() {
        "bare" => {}
        "by-hand" => {
            let (policy, inflight) = (Policy::new("default", quota)?, Arc::new(Inflight::fixed(1_000)));
            counted.by_hand = Some(ByHand { limiter, client, policy, inflight });
        }
        _ => {
            let layer = RateLimitLayer::builder(limiter).key(client).build();
            let inflight = InflightLayer::new(Inflight::fixed(1_000));
            counted.gate = Some(Gate::new(layer.boxed()).upstream(inflight));
        }
    }
    let conf = ServerConf {
        threads: 1,
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(1),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut proxy = http_proxy_service(&server.configuration, counted);
    proxy.add_tcp(listen);
    server.add_service(proxy);
    println!("listening on http://{listen}");
    server.run_forever()
}
