// promise: layer
//! A hundred thousand requests through the layer among others, a million with `FULL=1`. Many are
//! cancelled, time out, fail or panic. Afterwards no place in line, no ban and no token is left or
//! lost.
//!
//! A second account of the tokens is kept outside of the layer, by the service, its bodies and the
//! driver. The clock moves only by the driver, so both accounts are equal to the token.

mod account;

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use account::{Alive, World};
use http::{Request, Response, StatusCode};
use hyper::body::{Body, Bytes, Frame};
use tollgate::{Clock, Quota, RateLimiter, Reason};
use tollgate_http::{Cost, DelayLayer, RateLimitLayer, ResponseBody, key_fn};
use tollgate_testing::{Random, size};
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::retry::{Policy, RetryLayer};
use tower::timeout::TimeoutLayer;
use tower::util::BoxCloneService;
use tower::{BoxError, Layer, Service, ServiceBuilder};

const KEYS: usize = 16;
/// Keys that ask only while they owe little, so that no request of theirs is refused.
const CALM: usize = 4;
const ESTIMATE: i64 = 5;
/// The least cost of a body.
const LEAST: i64 = 1;
const MILLISECOND: Duration = Duration::from_millis(1);
const BAN: Duration = Duration::from_millis(300);
const IN_FLIGHT: usize = 64;

/// The progress of a request.
enum Stage {
    Asked,
    /// In line, by its number.
    InLine(u64),
    Decided,
}

/// A request, which is a note among its extensions and its body.
struct Ticket {
    key: usize,
    act: u64,
    stage: Mutex<Stage>,
}

/// The body of a request. It is dropped with a request that is cancelled.
struct Held {
    ticket: Arc<Ticket>,
    alive: Alive,
}

impl Drop for Held {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut *self.ticket.stage.lock().unwrap(), Stage::Decided);
        let Stage::InLine(caller) = stage else { return };
        let account = &mut *self.alive.0.account.lock().unwrap();
        match account.keys[self.ticket.key].leave(caller, account.now) {
            true => account.left += 1,
            false => account.kept += 1,
        }
    }
}

fn request(world: &Arc<World>, ticket: Arc<Ticket>) -> Request<Held> {
    let mut request = Request::new(Held { ticket: ticket.clone(), alive: Alive::new(world) });
    request.extensions_mut().insert(ticket);
    request
}

/// The way in which a response costs tokens.
#[derive(Clone, Copy)]
enum Kind {
    Bytes,
    Tokens(u64),
    Estimate,
}

/// A body that keeps the account of its bytes.
struct Frames {
    sizes: Vec<Option<u8>>,
    key: usize,
    metered: bool,
    passed: i64,
    charged: i64,
    alive: Alive,
}

impl Body for Frames {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(size) = self.sizes.pop() else { return Poll::Ready(None) };
        let Some(size) = size else { return Poll::Ready(Some(Err("cut".into()))) };
        self.passed += i64::from(size);
        if self.metered && self.passed > self.charged {
            self.alive.0.take(self.key, self.passed - self.charged);
            self.charged = self.passed;
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 256]).slice(..usize::from(size))))))
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        if self.metered {
            self.alive.0.take(self.key, self.passed.max(LEAST) - self.charged);
        }
    }
}

/// A service that answers, waits, fails or panics, as the request says.
#[derive(Clone)]
struct Work;

type Answer = Result<Response<Frames>, BoxError>;

impl Service<Request<Held>> for Work {
    type Response = Response<Frames>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Held>) -> Self::Future {
        let held = request.into_body();
        *held.ticket.stage.lock().unwrap() = Stage::Decided;
        if held.ticket.act % 32 == PANIC_IN_CALL {
            resume_unwind(Box::new("a service panics"));
        }
        Box::pin(work(held))
    }
}

const PANIC_IN_CALL: u64 = 0;
const UNAVAILABLE: u64 = 5;

async fn work(held: Held) -> Answer {
    let (key, act) = (held.ticket.key, held.ticket.act);
    let mut status = StatusCode::OK;
    let mut kind = Kind::Bytes;
    match act % 32 {
        1 => resume_unwind(Box::new("a response panics")),
        2 => return Err("the service fails".into()),
        3 => std::future::pending().await,
        4 | 6 => tokio::time::sleep(3 * MILLISECOND).await,
        UNAVAILABLE => status = StatusCode::SERVICE_UNAVAILABLE,
        7 => status = StatusCode::INTERNAL_SERVER_ERROR,
        8..12 => kind = Kind::Tokens((act >> 8) % 40),
        12..16 => kind = Kind::Estimate,
        _ => {}
    }
    let sizes = (0..(act >> 16) % 5).map(|i| {
        let size = (act >> (20 + 8 * i)) as u8;
        // One in 64 fails.
        (size < 252).then_some(size % 11)
    });
    // The layer settles a cost that the head tells before the response goes on.
    let world = &held.alive.0;
    match (status, kind) {
        (StatusCode::INTERNAL_SERVER_ERROR, _) => world.take(key, -ESTIMATE),
        (_, Kind::Tokens(n)) => world.take(key, n as i64 - ESTIMATE),
        _ => {}
    }
    let metered = matches!(kind, Kind::Bytes) && status != StatusCode::INTERNAL_SERVER_ERROR;
    let (sizes, alive) = (sizes.collect(), Alive::new(world));
    let mut response = Response::new(Frames { sizes, key, metered, passed: 0, charged: ESTIMATE, alive });
    *response.status_mut() = status;
    response.extensions_mut().insert(kind);
    Ok(response)
}

/// Tries a request again whose response says so.
#[derive(Clone)]
struct Again(u32);

impl Policy<Request<Held>, Response<ResponseBody<Frames>>, BoxError> for Again {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Held>,
        result: &mut Result<Response<ResponseBody<Frames>>, BoxError>,
    ) -> Option<Self::Future> {
        let again =
            result.as_ref().is_ok_and(|response| response.status() == StatusCode::SERVICE_UNAVAILABLE);
        self.0 = self.0.checked_sub(1).filter(|_| again)?;
        Some(std::future::ready(()))
    }

    fn clone_request(&mut self, before: &Request<Held>) -> Option<Request<Held>> {
        let held = before.body();
        Some(request(&held.alive.0, held.ticket.clone()))
    }
}

type Stack = BoxCloneService<Request<Held>, Response<ResponseBody<Frames>>, BoxError>;
type Flying = Pin<Box<dyn Future<Output = Result<Response<ResponseBody<Frames>>, BoxError>> + Send>>;

/// The layer among others. The number is that of services that may not panic in `call`: they would
/// close their buffer.
fn stacks(delay: DelayLayer, limits: RateLimitLayer<usize>) -> (Vec<Stack>, usize) {
    let layer = tower::layer::util::Stack::new(limits, delay);
    let stack = ServiceBuilder::new;
    let short = 5 * MILLISECOND;
    let within_a_buffer = stack().layer(BufferLayer::new(16)).layer(layer.clone()).service(Work);
    let over_a_buffer = stack().layer(layer.clone()).layer(BufferLayer::new(16)).service(Work);
    let within_a_timeout = stack().layer(TimeoutLayer::new(short)).layer(layer.clone()).service(Work);
    let over_a_timeout = stack().layer(layer.clone()).layer(TimeoutLayer::new(short)).service(Work);
    let shed = LoadShedLayer::new;
    let few = ConcurrencyLimitLayer::new;
    let within_shedding = stack().layer(shed()).layer(few(8)).layer(layer.clone()).service(Work);
    let over_shedding = stack().layer(layer.clone()).layer(shed()).layer(few(2)).service(Work);
    let over_permits = stack().layer(layer.clone()).layer(few(2)).service(Work);
    let retried = stack().layer(RetryLayer::new(Again(2))).layer(layer.clone()).service(Work);
    let all = vec![
        BoxCloneService::new(within_a_buffer),
        BoxCloneService::new(over_a_buffer),
        BoxCloneService::new(layer.layer(Work)),
        BoxCloneService::new(within_a_timeout),
        BoxCloneService::new(over_a_timeout),
        BoxCloneService::new(within_shedding),
        BoxCloneService::new(over_shedding),
        BoxCloneService::new(over_permits),
        BoxCloneService::new(retried),
    ];
    (all, 2)
}

/// A request on its way, or the body of its response.
enum Flight {
    Asked(Flying, Arc<Ticket>),
    Body(ResponseBody<Frames>),
}

impl Flight {
    /// Polls once. Returns the rest of the flight.
    fn poll(self, world: &World, context: &mut Context<'_>) -> Option<Flight> {
        match self {
            Flight::Asked(mut asked, ticket) => {
                if let Stage::InLine(_) = *ticket.stage.lock().unwrap() {
                    let account = &mut *world.account.lock().unwrap();
                    account.keys[ticket.key].serve(account.now);
                }
                match asked.as_mut().poll(context) {
                    Poll::Pending => Some(Flight::Asked(asked, ticket)),
                    Poll::Ready(Ok(response)) => Some(Flight::Body(response.into_body())),
                    Poll::Ready(Err(_)) => None,
                }
            }
            Flight::Body(mut body) => match Pin::new(&mut body).poll_frame(context) {
                Poll::Ready(Some(Ok(_))) => Some(Flight::Body(body)),
                _ => None,
            },
        }
    }
}

/// Returns the kilobytes of memory of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn requests_leave_no_place_no_ban_and_no_token() {
    let all = size(100_000, 1_000_000);
    let (clock, mock) = Clock::mock();
    let world = Arc::new(World::default());
    // A token each millisecond. No bucket gets full, and none owes more than it may.
    let capacity = 1 << 20;
    let limiter: RateLimiter<usize> =
        RateLimiter::builder(Quota::per_second(1_000).burst(capacity)).clock(clock).build();
    for key in 0..KEYS {
        assert!(limiter.try_acquire_n(&key, capacity).is_ok());
    }
    // The request that is decided on. It joins the line if a timer is made for it.
    let asking = Arc::<Mutex<Option<Arc<Ticket>>>>::default();
    let layer = RateLimitLayer::builder(limiter.clone())
        .key(key_fn({
            let asking = asking.clone();
            move |head| {
                let ticket = head.extensions.get::<Arc<Ticket>>()?;
                *asking.lock().unwrap() = Some(ticket.clone());
                Some(ticket.key)
            }
        }))
        .cost(|_| ESTIMATE as u64)
        .ban_after(50, Duration::from_secs(1))
        .for_(BAN)
        .unwrap()
        .refund_on(|status| status == StatusCode::INTERNAL_SERVER_ERROR)
        .settle_on(|answer| match answer.extensions.get().expect("each response has one") {
            Kind::Bytes => Cost::bytes(),
            Kind::Tokens(n) => Cost::tokens(*n),
            Kind::Estimate => Cost::ESTIMATE,
        })
        .on_decision({
            let (world, asking) = (world.clone(), asking.clone());
            move |head, decision| {
                let ticket = head.extensions.get::<Arc<Ticket>>().expect("each request has one");
                asking.lock().unwrap().take();
                if let Stage::InLine(_) = *ticket.stage.lock().unwrap() {
                    // It was counted when it joined the line.
                    assert!(decision.result().is_ok());
                    return;
                }
                let account = &mut *world.account.lock().unwrap();
                account.requests += 1;
                let key = &mut account.keys[ticket.key];
                // A request that asks for a place serves the line, and that which begins a ban did.
                let asks = match decision.result() {
                    Ok(_) => key.taken + ESTIMATE > account.now,
                    Err(denied) => denied.reason() == Reason::Deadline || denied.retry_after() == Some(BAN),
                };
                if asks {
                    key.serve(account.now);
                }
                match decision.result() {
                    Ok(_) => key.taken += ESTIMATE,
                    Err(_) => account.refused[ticket.key] += 1,
                }
            }
        })
        .build();
    let delay = DelayLayer::by_timer(200 * MILLISECOND, {
        let world = world.clone();
        move |delay| {
            let alive = Alive::new(&world);
            if let Some(ticket) = asking.lock().unwrap().take() {
                let account = &mut *world.account.lock().unwrap();
                account.requests += 1;
                account.waited += 1;
                let key = &mut account.keys[ticket.key];
                key.serve(account.now);
                key.join(account.requests);
                *ticket.stage.lock().unwrap() = Stage::InLine(account.requests);
            }
            async move {
                let _alive = alive;
                tokio::time::sleep(delay).await;
            }
        }
    });
    let (mut stacks, quiet) = stacks(delay, layer.clone());
    let mut random = Random(0x70_11_6a_7e);
    let mut context = Context::from_waker(Waker::noop());
    let mut flights: Vec<Flight> = Vec::new();
    let mut memory = 0;
    loop {
        for _ in 0..16 {
            let which = random.below(stacks.len() as u64) as usize;
            // Every other request has the last key: its line gets as long as the longest delay.
            let mut key = (random.below(2 * KEYS as u64) as usize).min(KEYS - 1);
            {
                let account = world.account.lock().unwrap();
                let calm = random.below(CALM as u64) as usize;
                let owed = account.keys[calm].taken - account.now;
                if owed < 100 {
                    key = calm;
                } else if key < CALM {
                    key += CALM;
                }
            }
            let mut act = random.next();
            if which < quiet && act % 32 == PANIC_IN_CALL {
                act += 1;
            }
            match stacks[which].poll_ready(&mut context) {
                Poll::Ready(ready) => ready.unwrap(),
                Poll::Pending => continue,
            }
            let ticket = Arc::new(Ticket { key, act, stage: Mutex::new(Stage::Asked) });
            let asked = request(&world, ticket.clone());
            match catch_unwind(AssertUnwindSafe(|| stacks[which].call(asked))) {
                Ok(asked) => flights.push(Flight::Asked(asked, ticket)),
                Err(_) => world.account.lock().unwrap().panics += 1,
            }
        }
        for flight in std::mem::take(&mut flights) {
            // Some are cancelled at any stage.
            let polls = if random.below(32) == 0 { None } else { Some(random.below(3)) };
            let Some(polls) = polls else { continue };
            let poll = || (0..polls).try_fold(flight, |flight, _| flight.poll(&world, &mut context));
            match catch_unwind(AssertUnwindSafe(poll)) {
                Ok(rest) => flights.extend(rest),
                Err(_) => world.account.lock().unwrap().panics += 1,
            }
        }
        while flights.len() > IN_FLIGHT {
            flights.swap_remove(random.below(flights.len() as u64) as usize);
        }
        let step = random.below(8) as u32;
        world.account.lock().unwrap().now += i64::from(step);
        mock.advance(step * MILLISECOND);
        tokio::time::advance(step * MILLISECOND).await;
        let requests = world.account.lock().unwrap().requests;
        if memory == 0 && requests > all / 10 {
            memory = resident();
        }
        if requests >= all {
            break;
        }
    }
    let grown = resident().saturating_sub(memory);
    drop((flights, stacks));
    // The workers of the buffers end.
    tokio::time::advance(MILLISECOND).await;
    tokio::task::yield_now().await;

    let account = world.account.lock().unwrap();
    let counts = [account.left, account.kept, account.waited, account.panics];
    assert!(counts.iter().all(|count| *count > all / 1_000), "cases of the test: {counts:?}");
    let stats = layer.stats();
    assert_eq!((stats.waiting, world.alive.load(Relaxed)), (0, 0));
    assert_eq!(stats.delayed, account.waited);
    for (key, of_key) in account.keys.iter().enumerate() {
        let left = account.now - of_key.taken;
        assert_eq!(limiter.peek(&key).remaining() as i64, left.max(0), "{key}");
        let wait = (1 - left).max(0) as u32 * MILLISECOND;
        assert_eq!(limiter.key(&key).reserve().unwrap().delay(), wait, "{key}");
    }
    let (calm, greedy) = account.refused.split_at(CALM);
    assert!(calm.iter().all(|refused| *refused == 0), "{calm:?}");
    let refused = greedy.iter().filter(|refused| **refused > 0).count();
    assert!(greedy.iter().sum::<u64>() > 1_000 && stats.bans > 0 && stats.banned > 0, "{stats:?}");
    // A key that was refused has a count, and perhaps a ban. No other key has either.
    assert!(refused < KEYS && (refused..=2 * refused).contains(&stats.ban_keys), "{}", stats.ban_keys);
    assert!(grown < 8 << 10, "{grown} KB");
}
