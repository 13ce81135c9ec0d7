//! The way of a request to an upstream that may speak HTTP/2: a stream of a connection that is
//! shared, or a connection of HTTP/1.1.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use hyper::Request;
use hyper::client::conn::http1::SendRequest;
use hyper::header::UPGRADE;
use hyper::http::uri::Scheme;
use tokio::time::timeout;

use super::bodies::Sent;
use super::connect::{Failure, linked, open, within};
use super::exchange::exchange;
use super::pool::{Answered, Pool, Sharing, Used, begin};
use super::streams::Stream;
use tollgate_common::net::threads;

enum Way {
    Stream(Stream),
    /// With the index of the thread that drives it.
    Connection(SendRequest<Sent>, usize),
}

impl Pool {
    /// Sends a request by a stream, or over a connection of HTTP/1.1 if the upstream chose that.
    /// With `fresh` the connection is a new one, and no other request shares it.
    ///
    /// The state has memory of its own, apart from that of other upstreams.
    #[inline(never)]
    pub(super) fn send_by_choice<'a>(
        self: &'a Arc<Self>,
        request: Request<Sent>,
        fresh: bool,
    ) -> Pin<Box<dyn Future<Output = Answered> + Send + 'a>> {
        Box::pin(self.choose_and_send(request, fresh))
    }

    async fn choose_and_send(self: &Arc<Self>, mut request: Request<Sent>, fresh: bool) -> Answered {
        let scheme = if self.to.is_tls() { Scheme::HTTPS } else { Scheme::HTTP };
        // An upgrade takes a connection of HTTP/1.1.
        let upgrades = request.headers().contains_key(UPGRADE);
        loop {
            let (way, is_new) = match self.way(fresh, upgrades).await {
                Ok(way) => way,
                Err(failure) => return Err((failure, Some(Box::new(request)))),
            };
            let answered = match way {
                Way::Stream(mut stream) => {
                    let sent = stream.send(request, scheme.clone()).await;
                    sent.map(|response| (response, Some(Used::Part { _stream: Box::new(stream) })))
                }
                Way::Connection(sender, home) => {
                    let sent = exchange(sender, request).await;
                    sent.map(|(response, sender)| (response, self.used(sender, home)))
                }
            };
            match answered {
                Err((_, Some(unsent))) if is_new => {
                    let failure = Failure::Unreached("the upstream closes its connections".into());
                    return Err((failure, Some(unsent)));
                }
                Err((_, Some(unsent))) => request = *unsent,
                answered => return answered,
            }
        }
    }

    /// Returns a way, and whether it is over a new connection. One request connects for all that
    /// wait, unless each has a connection of its own.
    async fn way(&self, fresh: bool, upgrades: bool) -> Result<(Way, bool), Failure> {
        let Some(shared) = &self.shared else { return Err(Failure::NotAccepted) };
        let alone = fresh || upgrades;
        let at_hand = || if alone { None } else { self.at_hand(shared) };
        if let Some(way) = at_hand() {
            return Ok((way, false));
        }
        let _connecting;
        if !alone && !shared.is_http1.load(Relaxed) && shared.streams.are_shared() {
            let lock = timeout(self.timeouts.connect, shared.connecting.lock()).await;
            _connecting = lock.map_err(|_| Failure::NotAccepted)?;
            if let Some(way) = at_hand() {
                return Ok((way, false));
            }
        }
        Ok((self.dial(shared, alone, upgrades).await?, true))
    }

    fn at_hand(&self, shared: &Sharing) -> Option<Way> {
        let stream = shared.streams.take().map(Way::Stream);
        stream.or_else(|| self.take().map(|(sender, home)| Way::Connection(sender, home)))
    }

    async fn dial(&self, shared: &Sharing, alone: bool, only_http1: bool) -> Result<Way, Failure> {
        let dialed = within(self.timeouts.connect, async {
            let io = open(&self.to, self.timeouts.connect).await?;
            let (io, is_http2) = match &shared.trust {
                Some(trust) => trust.shake_hands(io, only_http1).await?,
                None => (io, true),
            };
            let link = linked(io, &self.timeouts);
            if is_http2 {
                let stream = shared.streams.begin(link, self.timeouts.response_head, alone);
                return stream.await.map(Way::Stream);
            }
            begin(link).await.map(|sender| Way::Connection(sender, threads::index()))
        });
        let way = dialed.await?;
        if !only_http1 {
            shared.is_http1.store(matches!(way, Way::Connection(..)), Relaxed);
        }
        Ok(way)
    }
}
