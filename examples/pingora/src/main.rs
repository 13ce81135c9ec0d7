//! A proxy of pingora that limits each client address by a bucket of its own, where pingora's
//! example uses `Rate`.
//!
//! It needs cmake and a C compiler, and is outside CI.
//!
//! ```text
//! python3 -m http.server 8000 --bind 127.0.0.1
//! cargo run --release --manifest-path examples/pingora/Cargo.toml -- 127.0.0.1:8080 127.0.0.1:8000
//! for _ in 1 2 3; do curl -i http://127.0.0.1:8080/; done
//! ```

use std::error::Error;

use async_trait::async_trait;
use pingora_core::prelude::*;
use pingora_core::server::configuration::ServerConf;
use pingora_http::ResponseHeader;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use tollgate::http::{ClientIp, Fields, Policy};
use tollgate::{Granted, Quota, RateLimiter};

struct Limited {
    upstream: String,
    limiter: RateLimiter<std::net::IpAddr>,
    client: ClientIp,
    policy: Policy,
}

fn add(fields: Fields, response: &mut ResponseHeader) -> Result<()> {
    // Not `Fields::append_to`: pingora keeps the spelling of names beside the map.
    fields.into_iter().try_for_each(|(name, value)| response.append_header(name, value).map(drop))
}

#[async_trait]
impl ProxyHttp for Limited {
    /// The decision, for the response.
    type CTX = Option<Granted>;

    fn new_ctx(&self) -> Self::CTX {
        None
    }

    /// Answers here if the client has no token left. `true` is that it was answered.
    async fn request_filter(&self, session: &mut Session, granted: &mut Self::CTX) -> Result<bool> {
        let peer = session.client_addr().and_then(|peer| peer.as_inet()).map(|peer| peer.ip());
        // `ClientIp::peer().xff_hops(1)` would be the client behind one more proxy.
        let Some(client) = self.client.key_of(peer, &session.req_header().headers) else {
            return Err(pingora_core::Error::explain(HTTPStatus(400), "a connection without an address"));
        };
        match self.limiter.try_acquire(&client) {
            Ok(decision) => {
                *granted = Some(decision);
                Ok(false)
            }
            Err(denied) => {
                let mut response = ResponseHeader::build(429, Some(4))?;
                add(denied.headers(&self.policy), &mut response)?;
                response.insert_header("content-length", "0")?;
                session.write_response_header(Box::new(response), true).await?;
                Ok(true)
            }
        }
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut Self::CTX) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(&self.upstream, false, String::new())))
    }

    async fn response_filter(
        &self,
        _: &mut Session,
        response: &mut ResponseHeader,
        granted: &mut Self::CTX,
    ) -> Result<()> {
        granted.map_or(Ok(()), |granted| add(granted.headers(&self.policy), response))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (listen, upstream) = (next("127.0.0.1:8080"), next("127.0.0.1:8000"));

    let quota = Quota::per_second(1).burst(2);
    let limited = Limited {
        upstream,
        limiter: RateLimiter::new(quota),
        client: ClientIp::peer(),
        policy: Policy::new("default", quota)?,
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
