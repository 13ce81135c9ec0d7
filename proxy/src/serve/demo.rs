//! The upstream that the proxy brings along. It answers with the head of a request as it arrived,
//! or with the body if there is one. It can have few workers, and lose half of them for a while.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::{Either, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::options::Demo;
use crate::config::settings::Upstream;
use tollgate_common::output::say;

/// The pause after a connection that could not be accepted, for want of a socket.
const REST: Duration = Duration::from_millis(100);

/// An answer: the body of the request, or a text.
type Mirrored<B> = Response<Either<B, Full<Bytes>>>;

/// The workers of the upstream. Without a number there is one for each request.
#[derive(Clone)]
struct Workers {
    free: Arc<Semaphore>,
    /// The time for which a request keeps its worker.
    service: Duration,
    /// The times at which workers were done. A worker's next request begins then if it waited, so
    /// a timer that fires late takes nothing of the workers' capacity.
    done: Arc<Mutex<Vec<Instant>>>,
}

/// Starts the upstream on a free port of this host, where it serves until the process ends.
pub(crate) async fn start(demo: Demo) -> io::Result<Upstream> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let free = Arc::new(Semaphore::new(demo.workers.unwrap_or(Semaphore::MAX_PERMITS)));
    if let (Some(workers), Some(slow_at)) = (demo.workers, demo.slow_at) {
        tokio::spawn(lose_half(free.clone(), workers, slow_at));
    }
    let workers = Workers { free, service: demo.service, done: Arc::default() };
    tokio::spawn(serve(listener, workers));
    Ok(Upstream::Tcp(Authority::from_maybe_shared(address).expect("an address with a port is an authority")))
}

async fn serve(listener: TcpListener, workers: Workers) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(REST).await;
            continue;
        };
        let workers = workers.clone();
        let service = service_fn(move |request| {
            let workers = workers.clone();
            async move { Ok::<_, Infallible>(answer(workers, request).await) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// Takes half of the workers away after a time, and gives them back after that time again.
async fn lose_half(free: Arc<Semaphore>, workers: usize, slow_at: Duration) {
    let left = workers.div_ceil(2);
    let back = Instant::now() + 2 * slow_at;
    sleep(slow_at).await;
    say(format_args!("the upstream has {left} of its {workers} workers"));
    // They stand in line for their places as requests do. Their number is within a `u32`.
    let away = free.acquire_many((workers - left) as u32).await;
    sleep_until(back).await;
    drop(away);
    say(format_args!("the upstream has its {workers} workers again"));
}

/// Answers once a worker was free, and has worked. Requests wait for one in their order.
async fn answer<B: Body>(workers: Workers, request: Request<B>) -> Mirrored<B> {
    if workers.service == Duration::ZERO {
        return mirror(request);
    }
    let arrived = Instant::now();
    // An error would be a closed semaphore, and no code closes it.
    let _worker = workers.free.acquire().await.ok();
    let last = workers.done.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let until = last.unwrap_or_else(Instant::now).max(arrived) + workers.service;
    sleep_until(until).await;
    workers.done.lock().unwrap_or_else(PoisonError::into_inner).push(until);
    mirror(request)
}

fn mirror<B: Body>(request: Request<B>) -> Mirrored<B> {
    if !request.body().is_end_stream() {
        return Response::new(Either::Left(request.into_body()));
    }
    let mut head = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
    for (name, value) in request.headers() {
        head += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    let mut response = Response::new(Either::Right(head.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On the paused clock, the time of 64 requests is that of two turns of 32 workers.
    #[tokio::test(start_paused = true)]
    async fn half_of_the_workers_are_away_for_as_long_as_they_were_there() {
        let (workers, second) = (32, Duration::from_secs(1));
        let free = Arc::new(Semaphore::new(workers));
        tokio::spawn(lose_half(free.clone(), workers, 30 * second));
        let begin = Instant::now();
        for (at, wanted) in [(0, 2), (31, 4), (61, 2)] {
            tokio::time::sleep_until(begin + at * second).await;
            let state = Workers { free: free.clone(), service: second, done: Arc::default() };
            let asked = Instant::now();
            let ask = |_| answer(state.clone(), Request::new(Full::<Bytes>::default()));
            (0..64).map(ask).collect::<tokio::task::JoinSet<_>>().join_all().await;
            assert_eq!(asked.elapsed().as_secs(), wanted, "at {at} s");
        }
    }
}
