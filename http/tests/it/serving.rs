//! A service behind a layer, and calls of it that are ready at once.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use http::{Method, Request, Response, Version};
use tollgate_http::{
    AnyLimiter, ClientIp, Decision, Digest, HeaderKey, LayerBuilder, LimitBy, OnMissingKey, RateLimitLayer,
};
use tower_service::Service;

/// A service that counts its calls, and notes in its response the headers of the request.
#[derive(Clone, Default)]
pub(crate) struct Echo {
    pub(crate) calls: Arc<AtomicU64>,
}

/// The notes of an [`Echo`], an extension of its responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    /// Whether the decision in the request's extensions is a grant, if there is one.
    pub(crate) granted: Option<bool>,
    /// Whether the request says that it is over a limit.
    pub(crate) exceeded: bool,
}

/// Implements a service that is always ready, and answers at once by its method `answer`.
macro_rules! answers_at_once {
    ($service:ty => $body:ty) => {
        impl tower_service::Service<http::Request<()>> for $service {
            type Response = http::Response<$body>;
            type Error = std::convert::Infallible;
            type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

            fn poll_ready(
                &mut self,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Result<(), Self::Error>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: http::Request<()>) -> Self::Future {
                std::future::ready(Ok(self.answer(request)))
            }
        }
    };
}

pub(crate) use answers_at_once;

answers_at_once!(Echo => ());

impl Echo {
    fn answer(&self, request: Request<()>) -> Response<()> {
        self.calls.fetch_add(1, Relaxed);
        let decision = request.extensions().get::<Decision>();
        let granted = decision.map(|decision| decision.result().is_ok());
        let exceeded = request.headers().contains_key("x-ratelimit-exceeded");
        let mut response = Response::new(());
        response.extensions_mut().insert(Noted { granted, exceeded });
        response
    }
}

/// Returns the response, which is ready at once.
pub(crate) fn call<S, B>(service: &mut S, request: Request<()>) -> Response<()>
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut context).is_ready());
    match pin!(service.call(request)).poll(&mut context) {
        Poll::Ready(response) => response.unwrap().map(drop),
        Poll::Pending => panic!("the response is not ready"),
    }
}

/// Returns the notes of the service, unless the request was refused before it.
pub(crate) fn noted(response: &Response<()>) -> Option<Noted> {
    response.extensions().get().copied()
}

pub(crate) fn status(response: &Response<()>) -> u16 {
    response.status().as_u16()
}

pub(crate) fn says<'a>(response: &'a Response<()>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

pub(crate) const A: &str = "192.0.2.1";
pub(crate) const B: &str = "192.0.2.2";

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns a layer with a limit for each address, and one for each value of `X-API-Key`.
pub(crate) fn by_address_and_key(
    addresses: impl Into<AnyLimiter<IpAddr>>,
    keys: impl Into<AnyLimiter<Digest>>,
) -> LayerBuilder<IpAddr> {
    let header = HeaderKey::new("x-api-key").unwrap();
    let of_key = LimitBy::new(keys).key(header).on_missing_key(OnMissingKey::Allow).name("key").unwrap();
    RateLimitLayer::builder(addresses).key(ClientIp::peer()).name("address").unwrap().and(of_key)
}

/// Returns a GET request of a peer.
pub(crate) fn from(peer: &str, path: &str) -> Request<()> {
    let mut request = Request::get(path).body(()).unwrap();
    request.extensions_mut().insert(ip(peer));
    request
}

/// Makes a request one of gRPC: by its method, its version and its content type.
pub(crate) fn grpc(mut request: Request<()>) -> Request<()> {
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().insert("content-type", "application/grpc+proto".parse().unwrap());
    request
}
