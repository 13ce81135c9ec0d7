// promise: layer
//! Keys that are found by a future.

use super::*;

/// The end of a search for a key, in the extensions of the request.
#[derive(Clone)]
struct Search<const N: usize>(Arc<Mutex<Option<oneshot::Receiver<Option<u64>>>>>);

type Found = oneshot::Sender<Option<u64>>;

/// Adds a search to a request.
pub(super) fn searched<const N: usize>(request: &mut Request<()>) -> Found {
    let (found, search) = oneshot::channel();
    request.extensions_mut().insert(Search::<N>(Arc::new(Mutex::new(Some(search)))));
    found
}

pub(super) fn found_in<const N: usize>(
    searches: &Arc<AtomicU64>,
) -> impl Fn(Head<'_>) -> Pin<Box<dyn Future<Output = Option<u64>> + Send>> + Send + Sync + 'static {
    let searches = searches.clone();
    move |head| {
        searches.fetch_add(1, Relaxed);
        let search = head.extensions.get().and_then(|Search::<N>(search)| search.lock().unwrap().take());
        Box::pin(async { search?.await.ok()? })
    }
}

/// A waker that notes that it was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_request_waits_for_its_key_and_takes_no_token_until_then() {
    let (limiter, searches) = (hourly(2), Arc::<AtomicU64>::default());
    let layer = RateLimitLayer::builder(limiter.clone()).key_async(found_in::<1>(&searches)).build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    let mut statuses = Vec::new();
    for asked in 1..=3 {
        let mut request = asks("/", &[]);
        let found = searched::<1>(&mut request);
        let mut response = Box::pin(service.call(request));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        assert!(response.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!((searches.load(Relaxed), requests(&layer.stats())), (asked, asked - 1));
        assert!(!woken.0.load(Relaxed));
        found.send(Some(7)).unwrap();
        assert!(woken.0.load(Relaxed));
        let Poll::Ready(Ok(response)) = poll(&mut response) else { panic!("the key is there") };
        statuses.push(status(&response));
        assert_eq!(
            response.headers()["ratelimit"],
            format!("\"default\";r={};t=1800", 2_u64.saturating_sub(asked))
        );
        assert_eq!(requests(&layer.stats()), asked);
    }
    assert_eq!((statuses, upstream.calls()), (vec![200, 200, 429], 2));
    assert_eq!((limiter.len(), layer.top_refused(9)), (1, vec![(7, 1)]));
}

#[test]
fn a_request_whose_search_finds_no_key_has_none() {
    for (missing, expected) in [
        (OnMissingKey::Reject, [400, 400, 400]),
        (OnMissingKey::Allow, [200, 200, 200]),
        (OnMissingKey::Share, [200, 429, 429]),
    ] {
        let limiter = hourly(1);
        let layer = RateLimitLayer::builder(limiter.clone())
            .key_async(found_in::<1>(&Arc::default()))
            .on_missing_key(missing)
            .build();
        let mut service = layer.layer(Upstream::default());
        // A search that finds none, one that fails, and a request without one.
        let mut ends: [Box<dyn FnMut(Option<Found>)>; 3] = [
            Box::new(|found| found.unwrap().send(None).unwrap()),
            Box::new(|found| drop(found.unwrap())),
            Box::new(|found| assert!(found.is_none())),
        ];
        let mut statuses = [0; 3];
        for (at, end) in ends.iter_mut().enumerate() {
            let mut request = asks("/", &[]);
            let found = (at < 2).then(|| searched::<1>(&mut request));
            let mut response = Box::pin(service.call(request));
            if at < 2 {
                assert!(poll(&mut response).is_pending());
            }
            end(found);
            let Poll::Ready(Ok(response)) = poll(&mut response) else { panic!("the search has ended") };
            statuses[at] = status(&response);
        }
        assert_eq!(statuses, expected, "{missing:?}");
        let stats = layer.stats();
        assert_eq!((stats.keyless, requests(&stats), limiter.len()), (3, 3, 0), "{missing:?}");
    }
}

#[test]
fn two_searches_of_one_layer_find_their_own_keys() {
    let (one, two) = (hourly(5), hourly(5));
    let searches = Arc::<AtomicU64>::default();
    let layer = RateLimitLayer::builder(one.clone())
        .key_async(found_in::<1>(&searches))
        .and(LimitBy::new(two.clone()).key_async(found_in::<2>(&searches)).name("two").unwrap())
        .build();
    let mut service = layer.layer(Upstream::default());
    for first_ends in [true, false] {
        let mut request = asks("/", &[]);
        let (a, b) = (searched::<1>(&mut request), searched::<2>(&mut request));
        let mut response = Box::pin(service.call(request));
        assert!(poll(&mut response).is_pending());
        let (before, after) = if first_ends { ((a, 10), (b, 20)) } else { ((b, 20), (a, 10)) };
        before.0.send(Some(before.1)).unwrap();
        assert!(poll(&mut response).is_pending());
        assert_eq!(one.len() + two.len(), if first_ends { 0 } else { 2 });
        after.0.send(Some(after.1)).unwrap();
        let Poll::Ready(Ok(response)) = poll(&mut response) else { panic!("both keys are there") };
        assert_eq!(
            (status(&response), named(&response)),
            (200, vec!["default".to_owned(), "two".to_owned()])
        );
    }
    assert_eq!([one.peek(&10).remaining(), two.peek(&20).remaining()], [3, 3]);
    assert_eq!([one.peek(&20).remaining(), two.peek(&10).remaining()], [5, 5]);
    assert_eq!((searches.load(Relaxed), layer.stats().granted), (4, 2));
}

#[test]
fn a_search_that_is_given_up_takes_no_token_and_counts_no_request() {
    let limiter = hourly(1);
    let searches = Arc::<AtomicU64>::default();
    let layer = RateLimitLayer::builder(limiter.clone()).key_async(found_in::<1>(&searches)).build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    for polls in 0..50 {
        let mut request = asks("/", &[]);
        let found = searched::<1>(&mut request);
        let mut response = Box::pin(service.call(request));
        for _ in 0..polls % 3 {
            assert!(poll(&mut response).is_pending());
        }
        if polls % 2 == 0 {
            found.send(Some(1)).unwrap();
            drop(response);
        } else {
            drop(response);
            assert!(found.is_closed());
        }
        assert_eq!((limiter.len(), requests(&layer.stats()), upstream.calls()), (0, 0, 0));
    }
    assert_eq!(searches.load(Relaxed), 50);
    assert!(limiter.try_acquire(&1).is_ok());
}

#[test]
fn exempt_and_skipped_requests_and_those_of_other_routes_are_not_searched_for() {
    let searches = Arc::<AtomicU64>::default();
    let layer = RateLimitLayer::builder(hourly(9))
        .key_async(found_in::<1>(&searches))
        .when(|head| head.uri.path() != "/other")
        .exempt(Exempt::paths(["/exempt"]).unwrap())
        .when(|head| head.uri.path() != "/skipped")
        .build();
    let mut service = layer.layer(Upstream::default());
    for path in ["/exempt", "/skipped", "/other"] {
        let mut request = asks(path, &[]);
        let _found = searched::<1>(&mut request);
        assert_eq!(status(&call(&mut service, request)), 200, "{path}");
        assert_eq!(searches.load(Relaxed), 0, "{path}");
    }
    let stats = layer.stats();
    assert_eq!((stats.exempt, stats.skipped, requests(&stats)), (1, 2, 3));
    let mut request = asks("/", &[]);
    searched::<1>(&mut request).send(Some(1)).unwrap();
    assert_eq!((status(&call(&mut service, request)), searches.load(Relaxed)), (200, 1));
}

#[test]
fn searches_of_clones_end_in_any_order_and_count_together() {
    let limiter = hourly(2);
    let layer = RateLimitLayer::builder(limiter.clone()).key_async(found_in::<1>(&Arc::default())).build();
    let mut services = [layer.layer(Upstream::default()), layer.clone().layer(Upstream::default())];
    let mut third = services[0].clone();
    let (mut ends, mut responses) = (Vec::new(), Vec::new());
    for i in 0..9 {
        let mut request = asks("/", &[]);
        ends.push((searched::<1>(&mut request), i % 3));
        let service = services.get_mut(i % 3).unwrap_or(&mut third);
        responses.push(Box::pin(service.call(request)));
    }
    assert!(responses.iter_mut().all(|response| poll(response).is_pending()));
    let mut granted = [0; 3];
    while let Some((found, key)) = ends.pop() {
        found.send(Some(key as u64)).unwrap();
        let Poll::Ready(Ok(response)) = poll(&mut responses[ends.len()]) else { panic!("it was found") };
        granted[key] += u32::from(status(&response) == 200);
        // The later requests were found first, two of each key.
        assert_eq!(status(&response) == 200, ends.len() >= 3, "{}", ends.len());
    }
    assert_eq!((granted, limiter.len()), ([2; 3], 3));
    let stats = layer.stats();
    assert_eq!((stats.granted, stats.refused), (6, 3));
}

/// A service that is not ready until it is told so.
#[derive(Clone, Default)]
pub(super) struct Busy {
    free: Arc<AtomicBool>,
    upstream: Upstream,
}

impl Service<Request<()>> for Busy {
    type Response = Response<Bytes>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Bytes>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.free.load(Relaxed) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        assert!(self.free.load(Relaxed), "it was ready");
        self.upstream.call(request)
    }
}

/// The timers of a layer, which end when the test says so.
type Timers = Arc<Mutex<Vec<(Duration, oneshot::Sender<()>)>>>;

fn timer(timers: &Timers) -> impl Fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> + use<> {
    let timers = timers.clone();
    move |delay| {
        let (end, ended) = oneshot::channel();
        timers.lock().unwrap().push((delay, end));
        Box::pin(async { drop(ended.await) })
    }
}

#[test]
fn a_request_waits_for_its_key_then_its_turn_then_the_service() {
    let (clock, mock) = Clock::mock();
    let builder = RateLimiter::<u64>::builder(Quota::per_second(1)).clock(clock);
    let limiter = Arc::new(builder.max_debt(2).unwrap().build());
    let timers = Timers::default();
    let layer = RateLimitLayer::builder(limiter.clone()).key_async(found_in::<1>(&Arc::default())).build();
    let delay = DelayLayer::by_timer(Duration::from_secs(2), timer(&timers));
    let busy = Busy::default();
    let mut service = delay.layer(layer.layer(busy.clone()));
    let mut ask = || {
        let mut request = asks("/", &[]);
        let found = searched::<1>(&mut request);
        (found, Box::pin(service.call(request)))
    };
    // The first one has a token, and the service is busy.
    let (found, mut first) = ask();
    assert!(poll(&mut first).is_pending());
    found.send(Some(1)).unwrap();
    assert!(poll(&mut first).is_pending());
    assert_eq!((layer.stats().granted, timers.lock().unwrap().len()), (1, 0));
    // The second one and the third wait for their turns, the fourth would wait for too long.
    let (found, mut second) = ask();
    assert!(poll(&mut second).is_pending());
    assert_eq!(layer.stats().waiting, 0);
    found.send(Some(1)).unwrap();
    assert!(poll(&mut second).is_pending());
    let (found, mut third) = ask();
    found.send(Some(1)).unwrap();
    assert!(poll(&mut third).is_pending());
    assert_eq!((layer.stats().waiting, layer.stats().delayed), (2, 2));
    let (found, mut fourth) = ask();
    found.send(Some(1)).unwrap();
    let Poll::Ready(Ok(refused)) = poll(&mut fourth) else { panic!("the wait is too long") };
    assert_eq!(status(&refused), 429);
    let mut ended = std::mem::take(&mut *timers.lock().unwrap());
    assert_eq!(ended.iter().map(|(delay, _)| delay.as_secs()).collect::<Vec<_>>(), [1, 2]);
    // The third client goes away: its token comes back.
    drop(third);
    assert_eq!(layer.stats().waiting, 1);
    mock.advance(Duration::from_secs(1));
    ended.remove(0).1.send(()).unwrap();
    assert!(poll(&mut second).is_pending());
    assert_eq!((layer.stats().waiting, busy.upstream.calls()), (0, 0));
    busy.free.store(true, Relaxed);
    for (response, timing) in [(&mut first, None), (&mut second, Some("ratelimit;dur=1000"))] {
        let Poll::Ready(Ok(response)) = poll(response) else { panic!("the service is free") };
        let told = response.headers().get("server-timing").map(|value| value.to_str().unwrap());
        assert_eq!((status(&response), told), (200, timing));
    }
    assert_eq!(busy.upstream.last().extensions.get::<Decision>().unwrap().delay(), Duration::from_secs(1));
    let (stats, next) = (layer.stats(), limiter.try_acquire(&1).unwrap_err());
    assert_eq!((stats.granted, stats.refused, requests(&stats)), (2, 1, 3));
    assert_eq!(next.retry_after(), Some(Duration::from_secs(1)));
}
