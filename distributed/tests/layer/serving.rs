//! A service behind a layer, and calls of it.

use std::convert::Infallible;
use std::future::{Ready, ready};

use http::{Request, Response, StatusCode};
use tollgate_http::{KeyFrom, key_fn};
use tower_layer::Layer;
use tower_service::Service;

/// A service that answers with the status that the path names.
#[derive(Clone, Copy)]
pub(crate) struct Answer;

impl Service<Request<()>> for Answer {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let mut response = Response::new(());
        *response.status_mut() = request.uri().path()[1..].parse().unwrap_or(StatusCode::OK);
        ready(Ok(response))
    }
}

/// Returns a response of the service behind a layer.
pub(crate) async fn call<L, B>(layer: &L, request: Request<()>) -> Response<()>
where
    L: Layer<Answer>,
    L::Service: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let Ok(response) = layer.layer(Answer).call(request).await;
    response.map(drop)
}

pub(crate) async fn status<L, B>(layer: &L, request: Request<()>) -> u16
where
    L: Layer<Answer>,
    L::Service: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    call(layer, request).await.status().as_u16()
}

/// Returns a request with a number as its key.
pub(crate) fn of(key: u64, path: &str) -> Request<()> {
    Request::get(path).header("k", key).body(()).unwrap()
}

pub(crate) fn without_key(path: &str) -> Request<()> {
    Request::get(path).body(()).unwrap()
}

/// Takes the number in a header as the key.
pub(crate) fn by_number() -> impl KeyFrom<Key = u64> + 'static {
    key_fn(|head| head.headers.get("k")?.to_str().ok()?.parse().ok())
}
