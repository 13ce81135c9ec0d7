// promise: layer
//! Bans: the law beside plain lists of times, and all that may not change a ban.

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tollgate::http::{ClientIp, Digest, Extension, HeaderKey, KeyFrom, Problem, Refusal, Reject, key_fn};
use tollgate::tower::{
    BanAfter, Decision, LayerBuilder, LayerStats, LimitBy, OnMissingKey, RateLimitLayer, prometheus,
};
use tollgate::{
    Clock, Denied, Granted, MockClock, Quota, RateLimiter, Reason, WhenFull, Window, WindowLimiter,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::random::Random;
use crate::serving::{A, B, Echo, call, from, ip, noted, says, status};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

fn limiter<K: std::hash::Hash + Eq>(quota: Quota) -> (Arc<RateLimiter<K>>, MockClock) {
    let (clock, mock) = Clock::mock();
    (Arc::new(RateLimiter::builder(quota).clock(clock).build()), mock)
}

/// Returns a layer of one request an hour for each peer, before its bans.
fn one_an_hour() -> (LayerBuilder<IpAddr>, MockClock) {
    let (limiter, mock) = limiter(Quota::per_hour(1));
    (RateLimitLayer::builder(limiter).key(ClientIp::peer()), mock)
}

fn requests(stats: &LayerStats) -> u64 {
    let LayerStats { granted, refused, banned, shadow_refused, skipped, exempt, rejected, .. } = stats;
    granted + refused + banned + shadow_refused + skipped + exempt + rejected
}

/// Whether a refusal is by a ban, an extension of its response.
#[derive(Clone, Copy)]
struct IsBan(bool);

fn reject(refusal: &Refusal<'_>) -> Response<Bytes> {
    let mut response = refusal.response(Bytes::new());
    response.extensions_mut().insert(IsBan(refusal.is_ban()));
    response
}

fn is_ban(response: &Response<()>) -> Option<bool> {
    response.extensions().get::<IsBan>().map(|is_ban| is_ban.0)
}

/// The result of a layer's last decision.
type Last = Arc<Mutex<Option<Result<Granted, Denied>>>>;

fn last() -> (Last, impl Fn(tollgate::http::Head<'_>, &Decision) + Send + Sync + 'static) {
    let last = Last::default();
    (last.clone(), move |_, decision| *last.lock().unwrap() = Some(decision.result()))
}

/// Returns the whole seconds of a wait, rounded up.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Asserts that a ban is told as long as its duration, to a tick: the tick in which it began counts
/// as a whole one.
fn assert_whole(told: Option<Duration>, duration: Duration, text: &str) -> Duration {
    let told = told.expect("a wait");
    let ticks = if duration < 100 * MS { 1 << 12 } else { 1 << 16 };
    let tick = duration / ticks + Duration::from_nanos(1);
    assert!(told <= duration && told + tick >= duration, "{text}: {told:?} of {duration:?}");
    told
}

/// A rule of bans: the refusals, their window, and the duration.
#[derive(Clone, Copy, Debug)]
struct Rule {
    refusals: u64,
    window: Duration,
    duration: Duration,
}

impl Rule {
    /// Returns the window of the refusals before the last, as the layer chooses it.
    fn sliding(self) -> Option<Window> {
        let before = self.refusals.checked_sub(1).filter(|before| *before > 0)?;
        let window = Window::per(before, self.window);
        let by = |parts| window.granularity(self.window / parts);
        Some(window.try_sliding().or_else(|_| by(2)).or_else(|_| by(1)).unwrap())
    }
}

/// A key of the reference.
#[derive(Default)]
struct Listed {
    /// Times of the refusals that count.
    refusals: Vec<u64>,
    banned_until: u64,
}

/// The law of bans, on lists of times in nanoseconds.
struct Law {
    rule: Rule,
    sub_window: u64,
    keys: HashMap<u8, Listed>,
}

/// The law's word on a refusal by the limit.
#[derive(Debug, PartialEq, Eq)]
enum Begins {
    Must,
    /// The time of the first refusal is between the window, and the window and a sub-window.
    May,
    MustNot,
}

impl Law {
    fn new(rule: Rule) -> Law {
        let sub_window = rule.sliding().and_then(|window| window.sub_window()).unwrap_or_default();
        Law { rule, sub_window: sub_window.as_nanos() as u64, keys: HashMap::new() }
    }

    /// Returns the rest of a ban.
    fn banned(&mut self, key: u8, now: u64) -> Option<u64> {
        let until = self.keys.entry(key).or_default().banned_until;
        until.checked_sub(now).filter(|rest| *rest > 0)
    }

    fn begins(&mut self, key: u8, now: u64) -> Begins {
        let window = self.rule.window.as_nanos() as u64;
        let (before, late) = (self.rule.refusals as usize - 1, window + self.sub_window);
        let refusals = &self.keys.entry(key).or_default().refusals;
        let within = |span: u64| refusals.iter().filter(|time| now - **time < span).count();
        match (within(window) >= before, within(late) >= before) {
            (true, _) => Begins::Must,
            (false, true) => Begins::May,
            (false, false) => Begins::MustNot,
        }
    }

    /// Notes a refusal, and the duration of the ban that it begins.
    fn note(&mut self, key: u8, now: u64, ban: Option<Duration>) {
        let listed = self.keys.entry(key).or_default();
        match ban {
            Some(duration) => listed.banned_until = now + duration.as_nanos() as u64,
            None => listed.refusals.push(now),
        }
    }
}

/// Runs a random sequence of requests through a layer and through the law beside it.
fn walk(rule: Rule, quota: Quota, steps: u64, seed: u64) -> [u64; 6] {
    let (clock, mock) = Clock::mock();
    let buckets = || RateLimiter::<IpAddr>::builder(quota).clock(clock.clone()).build();
    let windows = |window| WindowLimiter::<u8>::builder(window).clock(clock.clone()).build();
    let (beside, strikes) = (buckets(), rule.sliding().map(windows));
    let (last, hook) = last();
    let layer = RateLimitLayer::builder(buckets())
        .key(ClientIp::peer())
        .ban_after(rule.refusals, rule.window)
        .for_(rule.duration)
        .unwrap()
        .on_decision(hook)
        .reject_with(reject)
        .build();
    let mut service = layer.layer(Echo::default());
    let (mut random, mut law, mut now) = (Random(seed), Law::new(rule), 0_u64);
    let [mut granted, mut refused, mut banned, mut begun, mut may, mut ended] = [0; 6];
    let mut ends: Vec<u64> = Vec::new();
    let keys = if rule.refusals > 100 { 1 } else { 4 };
    for step in 0..steps {
        let key = random.below(keys) as u8;
        let peer = IpAddr::from([192, 0, 2, key]);
        // A short time, a long one, or the time to a nanosecond before, at or after the end of a
        // ban or of a refusal's window.
        let until = law.banned(key, now).map(|rest| now + rest);
        let edge = match (until, random.below(16), random.below(1 + rule.refusals / 4)) {
            (Some(until), 0, _) => until,
            (None, 0, 0) if !ends.is_empty() => ends[random.below(ends.len() as u64) as usize],
            _ => 0,
        };
        let by = match (edge, random.below(64.max(8 * rule.refusals))) {
            (edge, _) if edge > now => (edge - now) + random.below(3) - 1,
            (_, 0) => random.below(2 * (rule.window.max(rule.duration).as_nanos() as u64)),
            (_, 1..=8) => random.below(rule.window.as_nanos() as u64 / rule.refusals),
            (_, 9..=16) => random.below(rule.duration.as_nanos() as u64 / 8),
            _ => random.below(1_000),
        };
        mock.advance(Duration::from_nanos(by));
        now += by;
        ends.retain(|end| *end + 1 >= now);
        let text = format!("{rule:?}, step {step} at {now}, key {key}");
        let rest = law.banned(key, now);
        assert_eq!(layer.banned(&peer), rest.map(Duration::from_nanos), "{text}");
        let response = call(&mut service, from(&peer.to_string(), "/"));
        let result = last.lock().unwrap().take().expect("the layer decided");
        let expected = match rest {
            Some(rest) => {
                banned += 1;
                Err((Some(Duration::from_nanos(rest)), true))
            }
            None => match beside.try_acquire(&peer) {
                Ok(of) => {
                    granted += 1;
                    Ok(of.remaining())
                }
                Err(denied) => {
                    refused += 1;
                    let by_law = law.begins(key, now);
                    let begins = strikes.as_ref().is_none_or(|strikes| strikes.try_acquire(&key).is_err());
                    match by_law {
                        Begins::Must => assert!(begins, "{text}: a ban begins"),
                        Begins::MustNot => assert!(!begins, "{text}: no ban begins"),
                        Begins::May => may += 1,
                    }
                    let told = result.err().and_then(|denied| denied.retry_after());
                    let ban = begins.then(|| assert_whole(told, rule.duration, &text));
                    law.note(key, now, ban);
                    begun += u64::from(begins);
                    ends.push(now + ban.unwrap_or(rule.window).as_nanos() as u64);
                    Err((ban.or(denied.retry_after()), begins))
                }
            },
        };
        match (expected, result) {
            (Ok(remaining), Ok(granted)) => {
                assert_eq!((status(&response), granted.remaining()), (200, remaining), "{text}");
                ended += u64::from(law.keys[&key].banned_until > 0);
            }
            (Err((wait, by_ban)), Err(denied)) => {
                assert_eq!((status(&response), denied.retry_after()), (429, wait), "{text}");
                assert_eq!(is_ban(&response), Some(by_ban), "{text}");
                let wait = wait.expect("a wait").max(Duration::from_nanos(1));
                assert_eq!(says(&response, "retry-after"), Some(&*seconds(wait).to_string()), "{text}");
            }
            (expected, result) => panic!("{text}: {result:?} instead of {expected:?}"),
        }
        let stats = layer.stats();
        assert_eq!((stats.granted, stats.refused, stats.banned), (granted, refused, banned), "{text}");
        assert_eq!((stats.bans, stats.unbanned_full, requests(&stats)), (begun, 0, step + 1), "{text}");
    }
    [granted, refused, banned, begun, may, ended]
}

const STEPS: u64 = 5_000;

#[test]
fn each_ban_begins_and_ends_by_the_law() {
    let rules = [
        (1, MINUTE, 10 * SECOND),
        (1, SECOND, HOUR),
        (2, MINUTE, 10 * SECOND),
        (2, SECOND, MINUTE),
        (3, 7 * SECOND, Duration::from_nanos(999_999_937)),
        (5, MINUTE, 2 * MINUTE),
        (10, 10 * SECOND, SECOND),
        (30, HOUR, MINUTE),
        (300, HOUR, MINUTE),
        (1_500, 100 * SECOND, 30 * SECOND),
        (3, MS, 3 * MS),
    ];
    let mut sums = [0; 6];
    for (seed, (refusals, window, duration)) in rules.into_iter().enumerate() {
        let rule = Rule { refusals, window, duration };
        let quota = Quota::try_per(1, duration.max(window) / 4, 2).unwrap();
        let counts = walk(rule, quota, STEPS, seed as u64);
        println!("{rule:?}: {counts:?}");
        let [granted, refused, banned, begun, _, ended] = counts;
        let few = if refusals > 100 { 0 } else { 9 };
        assert!(granted > few && refused > 50, "{rule:?}: {counts:?}");
        assert!(banned > few && begun > few && ended > few, "{rule:?}: {counts:?}");
        sums = std::array::from_fn(|n| sums[n] + counts[n]);
    }
    // The law leaves few refusals open.
    assert!(sums[4] * 10 < sums[1], "{sums:?}");
}

#[test]
fn a_ban_ends_to_the_nanosecond() {
    let nano = Duration::from_nanos(1);
    for duration in [
        MS,
        SECOND + nano,
        Duration::from_nanos(999_999_937),
        HOUR - nano,
        24 * HOUR,
        30 * 24 * HOUR + 7 * nano,
        365 * 24 * HOUR,
    ] {
        let (limiter, mock) = limiter::<IpAddr>(Quota::try_per(1, MS / 2, 1).unwrap());
        let layer = RateLimitLayer::builder(limiter)
            .key(ClientIp::peer())
            .ban_after(1, SECOND)
            .for_(duration)
            .unwrap()
            .reject_with(reject)
            .build();
        let mut service = layer.layer(Echo::default());
        mock.advance(Duration::from_nanos(123_456_789));
        assert_eq!([(); 2].map(|()| status(&call(&mut service, from(A, "/")))), [200, 429], "{duration:?}");
        let told = assert_whole(layer.banned(&ip(A)), duration, "it begins");
        mock.advance(told - nano);
        assert_eq!(layer.banned(&ip(A)), Some(nano), "{duration:?}");
        let refused = call(&mut service, from(A, "/"));
        assert_eq!((status(&refused), is_ban(&refused)), (429, Some(true)), "{duration:?}");
        assert_eq!(says(&refused, "retry-after"), Some("1"), "{duration:?}");
        mock.advance(nano);
        assert_eq!(layer.banned(&ip(A)), None, "{duration:?}");
        assert_eq!(status(&call(&mut service, from(A, "/"))), 200, "{duration:?}");
        assert_eq!((layer.stats().bans, layer.stats().banned), (1, 1));
    }
}

#[test]
fn the_refusal_that_begins_a_ban_is_told_as_the_later_ones_are() {
    let (builder, mock) = one_an_hour();
    let layer = builder.ban_after(3, MINUTE).for_(2 * HOUR).unwrap().reject_with(reject).build();
    let mut service = layer.layer(Echo::default());
    let mut asks = || {
        let response = call(&mut service, from(A, "/"));
        let wait = says(&response, "retry-after").map(|wait| wait.parse::<u64>().unwrap());
        (status(&response), is_ban(&response), wait)
    };
    assert_eq!(asks(), (200, None, None));
    assert_eq!([asks(), asks()], [(429, Some(false), Some(3_600)); 2]);
    assert_eq!(asks(), (429, Some(true), Some(7_200)));
    let stats = layer.stats();
    assert_eq!((stats.refused, stats.banned, stats.bans), (3, 0, 1));
    mock.advance(HOUR);
    // The limit itself has a token again.
    assert_eq!([asks(), asks()], [(429, Some(true), Some(3_600)); 2]);
    let stats = layer.stats();
    assert_eq!((stats.refused, stats.banned, stats.bans), (3, 2, 1));
    assert_eq!(layer.top_refused(9), [(ip(A), 5)]);
    mock.advance(HOUR);
    assert_eq!(asks(), (200, None, None));
    // Nor did the refusals by the ban count.
    assert_eq!([asks(), asks()], [(429, Some(false), Some(3_600)); 2]);
    assert_eq!(layer.stats().bans, 1);
}

#[test]
fn refusals_by_a_ban_do_not_count_for_the_next() {
    let (builder, mock) = one_an_hour();
    // The window is longer than the ban.
    let layer = builder.ban_after(2, HOUR).for_(90 * MINUTE).unwrap().build();
    let mut service = layer.layer(Echo::default());
    let mut asks = || status(&call(&mut service, from(A, "/")));
    assert_eq!([asks(), asks(), asks()], [200, 429, 429]);
    for minute in 1..90 {
        mock.advance(MINUTE);
        assert_eq!(asks(), 429, "{minute}");
    }
    assert_eq!((layer.stats().bans, layer.stats().banned), (1, 89));
    mock.advance(MINUTE);
    assert_eq!([asks(), asks()], [200, 429]);
    assert_eq!((layer.banned(&ip(A)), layer.stats().bans), (None, 1));
    assert_eq!(asks(), 429);
    assert_eq!((layer.banned(&ip(A)), layer.stats().bans), (Some(90 * MINUTE), 2));
}

#[test]
fn a_ban_refuses_what_costs_nothing_and_begins_by_what_costs_too_much() {
    let (builder, _mock) = one_an_hour();
    let cost = |head: tollgate::http::Head<'_>| head.uri.path()[1..].parse().unwrap_or(1);
    let layer = builder.cost(cost).ban_after(2, MINUTE).for_(HOUR).unwrap().build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |path| {
        let response = call(&mut service, from(A, path));
        (status(&response), says(&response, "retry-after").map(str::to_owned))
    };
    assert_eq!(asks("/0"), (200, None));
    // More than the limit ever grants: without a ban there is no wait.
    assert_eq!(asks("/2"), (429, None));
    assert_eq!(asks("/2"), (429, Some("3600".to_owned())));
    assert_eq!(asks("/0"), (429, Some("3600".to_owned())));
    assert_eq!(asks("/1"), (429, Some("3600".to_owned())));
    assert_eq!((layer.stats().granted, layer.stats().refused, layer.stats().banned), (1, 2, 2));
}

#[test]
fn other_keys_neither_share_a_ban_nor_its_refusals() {
    let (builder, _mock) = one_an_hour();
    let layer = builder.ban_after(3, MINUTE).for_(HOUR).unwrap().build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |peer| status(&call(&mut service, from(peer, "/")));
    assert_eq!([A, A, A, B, B, B].map(&mut asks), [200, 429, 429, 200, 429, 429]);
    assert_eq!((layer.banned(&ip(A)), layer.banned(&ip(B))), (None, None));
    assert_eq!(asks(A), 429);
    assert_eq!((layer.banned(&ip(A)), layer.banned(&ip(B))), (Some(HOUR), None));
    assert_eq!(asks(A), 429);
    assert_eq!((layer.banned(&ip(B)), layer.stats().bans, layer.stats().banned), (None, 1, 1));
    assert_eq!((asks(B), layer.stats().bans), (429, 2));
}

fn with_key(peer: &str, key: Option<&'static str>) -> Request<()> {
    let mut request = from(peer, "/");
    if let Some(key) = key {
        request.headers_mut().insert("x-api-key", key.parse().unwrap());
    }
    request
}

#[test]
fn the_limits_of_a_layer_ban_by_themselves() {
    let (clock, mock) = Clock::mock();
    let addresses =
        Arc::new(RateLimiter::<IpAddr>::builder(Quota::per_hour(10)).clock(clock.clone()).build());
    let keys = Arc::new(RateLimiter::<Digest>::builder(Quota::per_hour(2)).clock(clock).build());
    let header = HeaderKey::new("x-api-key").unwrap().proved();
    let by_key = LimitBy::new(keys.clone())
        .key(header)
        .on_missing_key(OnMissingKey::Allow)
        .name("key")
        .unwrap()
        .ban_after(2, MINUTE)
        .for_(2 * HOUR)
        .unwrap();
    let layer = RateLimitLayer::builder(addresses.clone())
        .key(ClientIp::peer())
        .name("address")
        .unwrap()
        .ban_after(3, MINUTE)
        .for_(3 * HOUR)
        .unwrap()
        .and(by_key)
        .reject_with(reject)
        .build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |peer, key| {
        let response = call(&mut service, with_key(peer, key));
        (status(&response), is_ban(&response))
    };
    let counts = || {
        let limits = layer.stats().limits;
        [0, 1].map(|n| (limits[n].granted, limits[n].refused, limits[n].banned, limits[n].bans))
    };
    let digest = Digest::of(b"one");
    let boxed = layer.boxed();
    assert_eq!([asks(A, Some("one")), asks(A, Some("one"))], [(200, None); 2]);
    // Two refusals of the key ban it, and its address has none.
    assert_eq!([asks(A, Some("one")), asks(A, Some("one"))], [(429, Some(false)), (429, Some(true))]);
    assert_eq!(counts(), [(0, 0, 0, 0), (2, 2, 0, 1)]);
    assert_eq!((layer.banned(&ip(A)), boxed.banned_of("key", &digest)), (None, Some(Some(2 * HOUR))));
    assert_eq!(boxed.banned_of("address", &ip(A)), Some(None));
    // A ban takes no token of another limit, and is one for all addresses.
    let left = addresses.peek(&ip(A)).remaining();
    for n in 1..=5 {
        assert_eq!([asks(A, Some("one")), asks(B, Some("one"))], [(429, Some(true)); 2]);
        assert_eq!(counts(), [(0, 0, 0, 0), (2, 2, 2 * n, 1)]);
    }
    assert_eq!((left, addresses.peek(&ip(A)).remaining(), addresses.peek(&ip(B)).remaining()), (8, 8, 10));
    // The address uses up its tokens, is refused, and is banned. Its key is not.
    for _ in 0..8 {
        assert_eq!(asks(A, None), (200, None));
    }
    assert_eq!(
        [asks(A, None), asks(A, Some("two")), asks(A, None)],
        [(429, Some(false)), (429, Some(false)), (429, Some(true))]
    );
    assert_eq!(counts(), [(8, 3, 0, 1), (2, 2, 10, 1)]);
    assert_eq!(boxed.banned_of("key", &Digest::of(b"two")), Some(None));
    assert_eq!(keys.peek(&Digest::of(b"two")).remaining(), 2);
    // Both ban: the first limit answers.
    assert_eq!(asks(A, Some("one")), (429, Some(true)));
    assert_eq!(counts(), [(8, 3, 1, 1), (2, 2, 10, 1)]);
    // Each ban ends by itself.
    assert_eq!(layer.unban_of("address", &ip(A)), Some(true));
    assert_eq!(asks(A, Some("one")), (429, Some(true)));
    assert_eq!(counts(), [(8, 3, 1, 1), (2, 2, 11, 1)]);
    mock.advance(2 * HOUR);
    assert_eq!((asks(A, Some("one")), boxed.banned_of("key", &digest)), ((200, None), Some(None)));
    assert_eq!(requests(&layer.stats()), 28);
    let text = prometheus(&[layer.stats()]);
    for line in [
        r#"tollgate_decisions_total{policy="address",result="banned"} 1"#,
        r#"tollgate_decisions_total{policy="key",result="banned"} 11"#,
        r#"tollgate_bans_total{policy="address"} 1"#,
        r#"tollgate_bans_total{policy="key"} 1"#,
    ] {
        assert!(text.lines().any(|said| said == line), "{line}\n{text}");
    }
}

#[test]
fn a_key_that_any_client_can_write_is_banned_only_if_it_is_said_to_be_proved() {
    let text = "a ban by the values of a header bans clients whose values others write: take the key of a client \
                that was authenticated, by `Extension`, or a pair with an address, or say `proved()` if a server in \
                front has checked the value";
    let header = || HeaderKey::new("x-tenant").unwrap();
    fn bans<K: KeyFrom + 'static>(key: impl Fn() -> K) -> Result<(), String> {
        let limiter = || limiter::<K::Key>(Quota::per_hour(1)).0;
        let of_limit = LimitBy::new(limiter()).key(key()).ban_after(2, MINUTE).for_(HOUR).map(drop);
        let of_layer =
            RateLimitLayer::builder(limiter()).key(key()).ban_after(2, MINUTE).for_(HOUR).map(drop);
        assert_eq!(of_limit, of_layer);
        of_layer.map_err(|error| error.to_string())
    }
    assert_eq!(bans(header), Err(text.to_owned()));
    assert_eq!(bans(move || HeaderKey::from(http::header::AUTHORIZATION)), Err(text.to_owned()));
    assert_eq!(bans(move || (header(), HeaderKey::new("x-user").unwrap())), Err(text.to_owned()));
    assert_eq!(bans(move || (header(), header(), header())), Err(text.to_owned()));
    // The client cannot write the other part, or none.
    assert_eq!(bans(move || header().proved()), Ok(()));
    assert_eq!(bans(move || (ClientIp::peer(), header())), Ok(()));
    assert_eq!(bans(move || (header(), Extension::<u64>::new())), Ok(()));
    assert_eq!(bans(move || (header(), header(), ClientIp::peer())), Ok(()));
    assert_eq!(bans(ClientIp::peer), Ok(()));
    assert_eq!(bans(Extension::<u64>::new), Ok(()));
    // Of a closure nothing is known.
    assert_eq!(bans(|| key_fn(|head| Some(head.uri.path().to_owned()))), Ok(()));
    // A limit without bans may have any key.
    let _ = LimitBy::new(limiter::<Digest>(Quota::per_hour(1)).0).key(header());
}

#[test]
fn a_ban_without_room_for_a_key_is_an_error() {
    let error = one_an_hour().0.ban_after(2, MINUTE).max_keys(0).for_(HOUR).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "a ban with room for 0 keys bans none: the least is 1");
}

#[test]
fn a_limit_that_does_not_apply_bans_no_request() {
    let (builder, _mock) = one_an_hour();
    let layer =
        builder.when(|head| head.uri.path() == "/login").ban_after(1, MINUTE).for_(HOUR).unwrap().build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |path| status(&call(&mut service, from(A, path)));
    assert_eq!(["/login", "/login", "/", "/login", "/"].map(&mut asks), [200, 429, 200, 429, 200]);
    let stats = layer.stats();
    assert_eq!((stats.granted, stats.refused, stats.banned, stats.skipped), (1, 1, 1, 2));
}

/// A layer of a limit of 3 tokens every 10 seconds, with or without bans.
fn walked(set: impl Fn(LayerBuilder<IpAddr>) -> LayerBuilder<IpAddr>) -> (LayerStats, Vec<Option<bool>>) {
    let (limiter, mock) = limiter::<IpAddr>(Quota::try_per(3, 10 * SECOND, 3).unwrap());
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer());
    let layer = set(layer).build();
    let mut service = layer.layer(Echo::default());
    let mut random = Random(7);
    let mut granted = Vec::new();
    for _ in 0..3_000 {
        mock.advance(Duration::from_millis(random.below(1_500)));
        let peer = if random.below(3) == 0 { A } else { B };
        let response = call(&mut service, from(peer, "/"));
        granted.push(noted(&response).map_or(Some(false), |noted| noted.granted));
    }
    (layer.stats(), granted)
}

#[test]
fn a_ban_in_shadow_mode_refuses_none_and_is_that_of_enforcement() {
    // The ban is longer than the window: a refusal by the ban that counted would begin the next.
    let bans = |layer: LayerBuilder<IpAddr>| layer.ban_after(3, 10 * SECOND).for_(MINUTE).unwrap();
    let (enforced, decided) = walked(bans);
    assert!(enforced.bans > 10 && enforced.banned > 500 && enforced.granted > 400, "{enforced:?}");
    let (shadow, in_shadow) = walked(|layer| bans(layer).shadow(true));
    assert_eq!(in_shadow, decided);
    assert_eq!((shadow.refused, shadow.banned), (0, 0));
    assert_eq!((shadow.granted, shadow.bans), (enforced.granted, enforced.bans));
    assert_eq!(shadow.shadow_refused, enforced.refused + enforced.banned);
    let (spared, in_shadow) = walked(|layer| bans(layer).enforce_percent(0));
    assert_eq!((in_shadow, spared), (decided, shadow));
}

#[test]
fn a_ban_of_a_limit_in_shadow_mode_is_that_of_enforcement() {
    let rule = |limit: LimitBy<IpAddr>| limit.ban_after(3, 10 * SECOND).for_(MINUTE).unwrap();
    let walked = |shadow: bool, beside: bool| {
        let (clock, mock) = Clock::mock();
        let quota = Quota::try_per(3, 10 * SECOND, 3).unwrap();
        let limiter = RateLimiter::<IpAddr>::builder(quota).clock(clock.clone()).build();
        let limit = rule(LimitBy::new(limiter).key(ClientIp::peer())).shadow(shadow).name("bans").unwrap();
        let plenty = RateLimiter::<IpAddr>::builder(Quota::per_second(1_000)).clock(clock).build();
        let layer = RateLimitLayer::builder(plenty).key(ClientIp::peer()).when(move |_| beside).and(limit);
        let layer = layer.build();
        let mut service = layer.layer(Echo::default());
        let (mut random, mut banned) = (Random(7), Vec::new());
        for _ in 0..3_000 {
            mock.advance(Duration::from_millis(random.below(1_500)));
            let peer = if random.below(3) == 0 { A } else { B };
            let response = call(&mut service, from(peer, "/"));
            assert!(!shadow || status(&response) == 200);
            banned.push(layer.boxed().banned_of("bans", &ip(peer)).unwrap());
        }
        let stats = layer.stats();
        assert_eq!(requests(&stats), 3_000);
        (stats, banned)
    };
    let (enforced, bans) = walked(false, false);
    assert!(enforced.bans > 10 && enforced.banned > 500 && enforced.granted > 400, "{enforced:?}");
    for beside in [false, true] {
        let (shadow, in_shadow) = walked(true, beside);
        for (step, (one, other)) in in_shadow.iter().zip(&bans).enumerate() {
            assert_eq!(one, other, "step {step}, with another limit: {beside}");
        }
        assert_eq!((shadow.refused, shadow.banned, shadow.bans), (0, 0, enforced.bans));
        assert_eq!(shadow.shadow_refused, enforced.refused + enforced.banned);
        assert_eq!(shadow.granted, enforced.granted);
    }
}

#[test]
fn an_unban_ends_the_ban_and_forgets_the_refusals() {
    let (limiter, mock) = limiter::<IpAddr>(Quota::per_second(1));
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer());
    let layer = layer.ban_after(3, HOUR).for_(2 * HOUR).unwrap().build();
    let mut service = layer.layer(Echo::default());
    let mut asks = || status(&call(&mut service, from(A, "/")));
    let (a, b) = (ip(A), ip(B));
    assert!(!layer.unban(&a));
    assert_eq!([asks(), asks(), asks(), asks()], [200, 429, 429, 429]);
    assert_eq!((layer.banned(&a), layer.stats().ban_keys), (Some(2 * HOUR), 2));
    assert!(!layer.unban(&b));
    assert_eq!(layer.banned(&a), Some(2 * HOUR));
    assert!(layer.unban(&a) && !layer.unban(&a));
    assert_eq!((layer.banned(&a), layer.stats().ban_keys), (None, 0));
    mock.advance(SECOND);
    // Two refusals are no ban again, as all refusals before are forgotten.
    assert_eq!([asks(), asks(), asks()], [200, 429, 429]);
    assert_eq!((layer.banned(&a), layer.stats().bans), (None, 1));
    // A key that is not banned is forgiven its refusals, too.
    assert!(!layer.unban(&a));
    assert_eq!((asks(), asks(), layer.banned(&a)), (429, 429, None));
    assert_eq!(asks(), 429);
    assert_whole(layer.banned(&a), 2 * HOUR, "the third refusal");
    let stats = layer.stats();
    assert_eq!((stats.granted, stats.refused, stats.banned, stats.bans), (2, 8, 0, 2));
}

#[test]
fn a_limit_is_named_to_unban_its_keys() {
    let (builder, _mock) = one_an_hour();
    let layer = builder.name("address").unwrap().ban_after(1, MINUTE).for_(HOUR).unwrap().build();
    let boxed = layer.boxed();
    let mut service = boxed.layer(Echo::default());
    assert_eq!([(); 2].map(|()| status(&call(&mut service, from(A, "/")))), [200, 429]);
    let a = ip(A);
    assert_eq!((boxed.banned_of("address", &a), layer.banned(&a)), (Some(Some(HOUR)), Some(HOUR)));
    // Another name, or keys of another type.
    assert_eq!((boxed.banned_of("default", &a), boxed.banned_of::<u64>("address", &7)), (None, None));
    assert_eq!((boxed.unban_of("default", &a), layer.unban_of::<u64>("address", &7)), (None, None));
    assert_eq!(layer.banned(&a), Some(HOUR));
    assert_eq!((boxed.unban_of("address", &a), boxed.unban_of("address", &a)), (Some(true), Some(false)));
    assert_eq!((boxed.banned_of("address", &a), layer.banned(&a)), (Some(None), None));
    // A limit without bans.
    let (builder, _mock) = one_an_hour();
    let layer = builder.build();
    assert_eq!((layer.banned(&a), layer.unban(&a)), (None, false));
    assert_eq!(
        (layer.boxed().banned_of("default", &a), layer.unban_of("default", &a)),
        (Some(None), Some(false))
    );
}

#[test]
fn numbers_out_of_bounds_are_named() {
    let error = |refusals, window, duration| {
        let of_layer = one_an_hour().0.ban_after(refusals, window).for_(duration).map(drop);
        let (limiter, _mock) = limiter::<IpAddr>(Quota::per_hour(1));
        let limit = LimitBy::new(limiter).key(ClientIp::peer());
        let of_limit = limit.ban_after(refusals, window).for_(duration).map(drop);
        assert_eq!(of_layer, of_limit);
        of_layer.unwrap_err().to_string()
    };
    let long = Duration::from_nanos((1 << 62) + 1);
    assert_eq!(error(0, MINUTE, HOUR), "a ban after 0 refusals bans every key: the least is 1");
    assert_eq!(
        error(2, Duration::ZERO, HOUR),
        "the window of a ban: a window of 0 ns is under the bound of 1 ms"
    );
    assert_eq!(
        error(2, MS / 2, HOUR),
        "the window of a ban: a window of 500000 ns is under the bound of 1 ms"
    );
    assert_eq!(
        error(2, long, HOUR),
        "the window of a ban: a window of 4611686018427387905 ns is over the bound of 2^62 ns (146 years)"
    );
    assert_eq!(
        error(2, Duration::MAX, HOUR),
        "the window of a ban: a window of 18446744073709551615999999999 ns is over the bound of 2^62 ns (146 years)"
    );
    assert_eq!(
        error((1 << 40) + 2, MINUTE, HOUR),
        "the window of a ban: a limit of 1099511627777 is over the bound of 2^40 = 1099511627776 tokens"
    );
    assert_eq!(
        error(1, MINUTE, Duration::ZERO),
        "the duration of a ban: a period of 0 ns has no rate: the least is 1 ns"
    );
    assert_eq!(
        error(5, MINUTE, long),
        "the duration of a ban: a period of 4611686018427387905 ns is over the bound of 2^62 ns (146 years)"
    );
    assert!(error(1, MINUTE, Duration::MAX).starts_with("the duration of a ban: a period of"));
    // The bounds themselves.
    let (builder, _mock) = one_an_hour();
    assert!(builder.ban_after(2, Duration::from_nanos(1 << 62)).for_(Duration::from_nanos(1 << 62)).is_ok());
    let (builder, _mock) = one_an_hour();
    assert!(builder.ban_after(2, MS).for_(Duration::from_nanos(1)).is_ok());
}

#[test]
fn without_room_no_key_is_banned_for_another_and_bans_stay() {
    let (builder, mock) = one_an_hour();
    let layer = builder.ban_after(2, MINUTE).max_keys(1).for_(HOUR).unwrap().build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |peer: &str| status(&call(&mut service, from(peer, "/")));
    let full = || layer.stats().unbanned_full;
    let (a, b) = (ip(A), ip(B));
    assert_eq!([asks(A), asks(B), asks(A)], [200, 200, 429]);
    assert_eq!((full(), layer.stats().ban_keys), (0, 1));
    // The only place is that of A's refusal: those of B are not counted.
    for n in 1..=10 {
        assert_eq!((asks(B), full()), (429, n));
        assert_eq!((layer.banned(&a), layer.banned(&b), layer.stats().bans), (None, None, 0));
    }
    assert_eq!(asks(A), 429);
    assert_eq!((layer.banned(&a), full(), layer.stats().ban_keys), (Some(HOUR), 10, 2));
    // A's refusal is forgotten, and B's is counted. There is no room for B's ban beside A's.
    mock.advance(2 * MINUTE);
    assert_eq!((asks(B), full()), (429, 10));
    for n in 11..=20 {
        assert_eq!((asks(B), full()), (429, n));
        assert_eq!((layer.banned(&a), layer.banned(&b)), (Some(HOUR - 2 * MINUTE), None));
    }
    assert_eq!((asks(A), layer.stats().bans, layer.stats().banned), (429, 1, 1));
    // A look at a key without room counts nothing.
    assert_eq!((layer.banned(&ip("192.0.2.3")), full()), (None, 20));
    // A's ban ends, and some time later its place is B's.
    mock.advance(HOUR - MINUTE);
    assert_eq!((layer.banned(&a), asks(B)), (None, 200));
    assert_eq!([asks(B), asks(B)], [429, 429]);
    assert_whole(layer.banned(&b), HOUR, "there is room for it");
    assert_eq!((layer.banned(&a), layer.stats().bans, full(), layer.stats().ban_keys), (None, 2, 20, 2));
    assert_eq!(requests(&layer.stats()), 29);
}

/// A layer whose limiter has room for A alone, with the others' shared buckets empty.
fn without_room(
    when_full: WhenFull,
    rule: impl FnOnce(LayerBuilder<IpAddr>) -> BanAfter<LayerBuilder<IpAddr>>,
) -> (RateLimitLayer<IpAddr>, Arc<RateLimiter<IpAddr>>, MockClock) {
    let (clock, mock) = Clock::mock();
    let builder = RateLimiter::<IpAddr>::builder(Quota::per_hour(2)).clock(clock);
    let limiter = Arc::new(builder.max_keys(1).when_full(when_full).build());
    assert!(limiter.try_acquire(&ip(A)).is_ok());
    // The shared buckets are 1,024.
    (0..20_000_u32).for_each(|n| _ = limiter.try_acquire(&IpAddr::from((10 << 24 | n).to_be_bytes())));
    let layer =
        rule(RateLimitLayer::builder(limiter.clone()).key(ClientIp::peer())).for_(HOUR).unwrap().build();
    (layer, limiter, mock)
}

#[test]
fn a_new_abuser_is_banned_also_while_there_is_no_room_for_it() {
    for when_full in [WhenFull::Share, WhenFull::Deny] {
        let (layer, _limiter, mock) = without_room(when_full, |layer| layer.ban_after(2, MINUTE));
        let mut service = layer.layer(Echo::default());
        let mut asks = |peer: &str| status(&call(&mut service, from(peer, "/")));
        // Two requests are within the quota of B: others took the tokens. The third and the fourth
        // are not, and the fourth begins the ban.
        for (n, banned) in [(1, false), (2, false), (3, false), (4, true), (5, true)] {
            assert_eq!((asks(B), layer.banned(&ip(B)).is_some()), (429, banned), "{when_full:?} {n}");
        }
        let stats = layer.stats();
        assert_eq!((stats.bans, stats.banned, stats.unbanned_full), (1, 1, 0), "{when_full:?}");
        assert_eq!(layer.banned(&ip(B)), Some(HOUR));
        // An unban forgets them all.
        assert!(layer.unban(&ip(B)));
        assert_eq!([(); 3].map(|()| asks(B)), [429; 3]);
        assert_eq!((layer.banned(&ip(B)), asks(B), layer.banned(&ip(B))), (None, 429, Some(HOUR)));
        // A client that asks no more than the quota is never banned, however long it is refused.
        for half_hour in 0..1_000 {
            mock.advance(30 * MINUTE);
            asks("192.0.2.3");
            assert_eq!(layer.banned(&ip("192.0.2.3")), None, "{when_full:?} {half_hour}");
        }
    }
}

#[test]
fn the_quota_of_a_key_without_room_is_the_one_in_force() {
    let (layer, limiter, _mock) = without_room(WhenFull::Deny, |layer| layer.ban_after(1, MINUTE));
    limiter.set_quota(Quota::per_hour(3)).unwrap();
    let mut service = layer.layer(Echo::default());
    let mut asks = |peer: &str| {
        assert_eq!(status(&call(&mut service, from(peer, "/"))), 429);
        layer.banned(&ip(peer)).is_some()
    };
    assert_eq!([(); 4].map(|()| asks(B)), [false, false, false, true]);
    // After any number of changes.
    for n in 4..40 {
        let quota = Quota::per_hour(n % 3 + 1);
        limiter.set_quota(quota).unwrap();
        let peer = format!("198.51.100.{n}");
        for _ in 0..quota.capacity() {
            assert!(!asks(&peer), "{quota}");
        }
        assert!(asks(&peer), "{quota}");
    }
}

#[test]
fn requests_without_room_cost_what_they_ask_for() {
    let (layer, _limiter, _mock) = without_room(WhenFull::Deny, |layer| {
        layer.cost(|head| if head.uri.path() == "/2" { 2 } else { 1 }).ban_after(1, MINUTE)
    });
    let mut service = layer.layer(Echo::default());
    let mut asks = |path| {
        assert_eq!(status(&call(&mut service, from(B, path))), 429);
        layer.banned(&ip(B)).is_some()
    };
    assert_eq!((asks("/2"), asks("/")), (false, true));
}

#[test]
fn windows_without_room_ban_an_abuser_too() {
    let builder = WindowLimiter::<IpAddr>::builder(Window::per_hour(2)).clock(Clock::mock().0);
    let limiter = builder.max_keys(1).when_full(WhenFull::Deny).build();
    assert!(limiter.try_acquire(&ip(A)).is_ok());
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer());
    let layer = layer.ban_after(2, MINUTE).for_(HOUR).unwrap().build();
    let mut service = layer.layer(Echo::default());
    let banned = [(); 5].map(|()| {
        assert_eq!(status(&call(&mut service, from(B, "/"))), 429);
        layer.banned(&ip(B)).is_some()
    });
    assert_eq!(banned, [false, false, false, true, true]);
}

#[test]
fn without_room_in_the_bans_either_refusals_are_counted_as_such() {
    let (layer, _limiter, _mock) =
        without_room(WhenFull::Share, |layer| layer.ban_after(2, MINUTE).max_keys(1));
    let mut service = layer.layer(Echo::default());
    let mut asks = |peer: &str| status(&call(&mut service, from(peer, "/")));
    // The one place is B's.
    assert_eq!((asks(B), layer.stats().unbanned_full), (429, 0));
    for n in 1..=5 {
        assert_eq!((asks("192.0.2.3"), layer.stats().unbanned_full), (429, n));
    }
    assert_eq!([(); 4].map(|()| asks(B)), [429; 4]);
    assert_eq!((layer.banned(&ip(B)), layer.banned(&ip("192.0.2.3"))), (Some(HOUR), None));
}

#[test]
fn no_key_is_banned_for_the_tokens_that_others_took() {
    for when_full in [WhenFull::Share, WhenFull::Deny] {
        let builder = RateLimiter::<IpAddr>::builder(Quota::per_hour(1)).clock(Clock::mock().0);
        let limiter = builder.max_keys(1).when_full(when_full).build();
        let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer());
        let layer = layer.ban_after(1, MINUTE).for_(HOUR).unwrap().build();
        let mut service = layer.layer(Echo::default());
        let mut asks = |peer: &str| status(&call(&mut service, from(peer, "/")));
        // The only place is A's. Of the other keys, a few empty the buckets that all share.
        assert_eq!(asks(A), 200);
        let others: Vec<String> = (0..4_000_u32).map(|n| IpAddr::from(n.to_be_bytes()).to_string()).collect();
        let refused = others.iter().filter(|peer| asks(peer) == 429).count();
        assert!(refused > 2_000, "{refused}");
        assert!(others.iter().all(|peer| layer.banned(&ip(peer)).is_none()));
        assert_eq!((layer.stats().bans, asks(A), layer.stats().bans), (0, 429, 1));
    }
}

#[test]
fn requests_without_a_key_are_not_banned() {
    for (missing, expected) in [
        (OnMissingKey::Share, [200, 429]),
        (OnMissingKey::Allow, [200, 200]),
        (OnMissingKey::Reject, [500, 500]),
    ] {
        let (builder, _mock) = one_an_hour();
        let layer = builder.on_missing_key(missing).ban_after(1, MINUTE).for_(HOUR).unwrap();
        let layer = layer.reject_with(reject).build();
        let mut service = layer.layer(Echo::default());
        let mut asks = || call(&mut service, Request::get("/").body(()).unwrap());
        assert_eq!([(); 2].map(|()| status(&asks())), expected, "{missing:?}");
        for _ in 0..10 {
            let response = asks();
            assert_eq!(status(&response), expected[1], "{missing:?}");
            assert_ne!(is_ban(&response), Some(true), "{missing:?}");
        }
        let stats = layer.stats();
        assert_eq!((stats.bans, stats.banned, stats.ban_keys), (0, 0, 0), "{missing:?}");
        assert_eq!((stats.keyless, requests(&stats)), (12, 12), "{missing:?}");
    }
    // One bucket for all.
    let (limiter, _mock) = limiter::<IpAddr>(Quota::per_hour(1));
    let layer = RateLimitLayer::builder(limiter).shared().ban_after(1, MINUTE).for_(HOUR).unwrap().build();
    let mut service = layer.layer(Echo::default());
    assert_eq!([(); 4].map(|()| status(&call(&mut service, from(A, "/")))), [200, 429, 429, 429]);
    assert_eq!((layer.stats().bans, layer.stats().banned, layer.stats().refused), (0, 0, 3));
}

#[test]
fn a_bans_wait_is_spread_as_the_other_waits_are() {
    let (limiter, mock) = limiter::<IpAddr>(Quota::per_hour(1));
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer());
    let layer = layer.spread_retries(100 * SECOND).ban_after(2, MINUTE).for_(2 * HOUR).unwrap().build();
    let mut service = layer.layer(Echo::default());
    let mut shares = Vec::new();
    for n in 0..50 {
        let peer = format!("198.51.100.{n}");
        let mut wait = || -> Option<u64> {
            says(&call(&mut service, from(&peer, "/")), "retry-after").map(|wait| wait.parse().unwrap())
        };
        assert_eq!(wait(), None);
        let share = wait().unwrap() - 3_600;
        assert!(share <= 100, "{share}");
        assert_eq!([wait(), wait()], [Some(7_200 + share); 2], "the share of a key is one");
        assert_eq!(layer.banned(&ip(&peer)), Some(2 * HOUR));
        shares.push(share);
    }
    assert_eq!((layer.stats().bans, layer.stats().banned), (50, 50));
    shares.sort_unstable();
    shares.dedup();
    assert!(shares.len() > 20, "{shares:?}");
    mock.advance(2 * HOUR);
    assert_eq!(layer.banned(&ip("198.51.100.7")), None);
}

#[test]
fn a_response_can_tell_a_ban_from_another_refusal() {
    let (builder, _mock) = one_an_hour();
    let reject = |refusal: &Refusal<'_>| -> Response<Bytes> {
        match refusal.is_ban() {
            true => Problem::ABNORMAL_USAGE_DETECTED.reject(refusal),
            false => Problem::QUOTA_EXCEEDED.reject(refusal),
        }
    };
    let layer = builder.ban_after(2, MINUTE).for_(HOUR).unwrap().reject_with(reject).build();
    let mut service = layer.layer(Echo::default());
    let mut told = |request: Request<()>| {
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut context) else {
            panic!("it is ready")
        };
        let of = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let pushback = of("grpc-retry-pushback-ms");
        let mut body = Bytes::new();
        response.into_body().into_inner_or_else(|bytes| body = bytes);
        (String::from_utf8(body.to_vec()).unwrap(), pushback)
    };
    let plain = || from(A, "/");
    assert_eq!(told(plain()), (String::new(), None));
    let problem =
        |(body, pushback): (String, Option<String>), kind: &str| body.contains(kind) && pushback.is_none();
    assert!(problem(told(plain()), "#quota-exceeded"));
    for _ in 0..3 {
        assert!(problem(told(plain()), "#abnormal-usage-detected"));
    }
    // To a client of gRPC a ban is a longer wait.
    assert_eq!(told(crate::serving::grpc(plain())), (String::new(), Some("3600000".to_owned())));
}

/// A timer of the mock clock: ready once the clock has passed its time.
fn timer(now: Arc<AtomicU64>) -> impl Fn(Duration) -> Timer + Send + Sync + 'static {
    move |delay| Timer { due: now.load(Relaxed) + delay.as_nanos() as u64, now: now.clone() }
}

struct Timer {
    due: u64,
    now: Arc<AtomicU64>,
}

impl Future for Timer {
    type Output = ();

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.now.load(Relaxed) >= self.due { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[test]
fn a_request_that_waits_for_its_turn_is_no_refusal() {
    let (limiter, mock) = limiter::<IpAddr>(Quota::per_second(10).burst(1));
    let now = Arc::new(AtomicU64::new(0));
    let advance = |by: Duration| {
        mock.advance(by);
        now.fetch_add(by.as_nanos() as u64, Relaxed);
    };
    let layer = RateLimitLayer::builder(limiter)
        .key(ClientIp::peer())
        .delay_with(150 * MS, timer(now.clone()))
        .ban_after(2, MINUTE)
        .for_(10 * MINUTE)
        .unwrap()
        .reject_with(reject)
        .build();
    let mut service = layer.layer(Echo::default());
    let mut context = Context::from_waker(Waker::noop());
    let counts = || {
        let stats = layer.stats();
        (stats.granted, stats.delayed, stats.refused, stats.banned, stats.bans, stats.ban_keys)
    };
    assert_eq!(status(&call(&mut service, from(A, "/"))), 200);
    // More requests wait than refusals ban.
    for n in 1..=10 {
        let mut waits = pin!(service.call(from(A, "/")));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        assert_eq!(counts(), (n + 1, n, 0, 0, 0, 0));
        advance(100 * MS);
        let Poll::Ready(Ok(response)) = waits.as_mut().poll(&mut context) else {
            panic!("its turn has come")
        };
        assert_eq!(response.status(), 200);
    }
    // The next one waits, and two more would wait too long: these are refusals.
    let mut waits = pin!(service.call(from(A, "/")));
    assert!(waits.as_mut().poll(&mut context).is_pending());
    let first = call(&mut service, from(A, "/"));
    assert_eq!((status(&first), is_ban(&first), counts()), (429, Some(false), (12, 11, 1, 0, 0, 1)));
    let second = call(&mut service, from(A, "/"));
    assert_eq!((status(&second), is_ban(&second), counts()), (429, Some(true), (12, 11, 2, 0, 1, 2)));
    assert_eq!(says(&second, "retry-after"), Some("600"));
    // A banned key does not wait, and its refusals count once each.
    for n in 1..=5 {
        let refused = call(&mut service, from(A, "/"));
        assert_eq!((status(&refused), is_ban(&refused), counts()), (429, Some(true), (12, 11, 2, n, 1, 2)));
        assert_eq!((layer.top_refused(9), layer.stats().waiting), (vec![(ip(A), n + 2)], 1));
    }
    // The request that waits keeps its turn.
    advance(100 * MS);
    let Poll::Ready(Ok(response)) = waits.as_mut().poll(&mut context) else { panic!("its turn has come") };
    assert_eq!((response.status().as_u16(), layer.stats().waiting), (200, 0));
    advance(10 * MINUTE);
    assert_eq!(status(&call(&mut service, from(A, "/"))), 200);
    assert_eq!(requests(&layer.stats()), 20);
}

#[test]
fn every_request_counts_once_beside_bans() {
    let (clock, mock) = Clock::mock();
    let addresses = RateLimiter::<IpAddr>::builder(Quota::per_second(2).burst(4))
        .clock(clock.clone())
        .max_keys(6)
        .build();
    let keys = RateLimiter::<Digest>::builder(Quota::per_second(4).burst(6)).clock(clock.clone()).build();
    let spied = RateLimiter::<IpAddr>::builder(Quota::per_second(1)).clock(clock).build();
    let by_key = LimitBy::new(keys)
        .key(HeaderKey::new("x-api-key").unwrap().proved())
        .on_missing_key(OnMissingKey::Reject)
        .name("key")
        .unwrap()
        .ban_after(4, SECOND)
        .max_keys(2)
        .for_(5 * SECOND)
        .unwrap();
    let shadow = LimitBy::new(spied)
        .key(ClientIp::peer())
        .name("shadow")
        .unwrap()
        .ban_after(2, SECOND)
        .for_(SECOND)
        .unwrap()
        .shadow(true);
    let layer = RateLimitLayer::builder(addresses)
        .key(ClientIp::peer())
        .name("address")
        .unwrap()
        .ban_after(3, SECOND)
        .max_keys(3)
        .for_(2 * SECOND)
        .unwrap()
        .and(by_key)
        .and(shadow)
        .skip(|head| head.uri.path() == "/skip")
        .exempt(tollgate::http::Exempt::paths(["/exempt"]).unwrap())
        .enforce_percent(80)
        .build();
    let echo = Echo::default();
    let mut service = layer.layer(echo.clone());
    let (mut random, mut before) = (Random(5), 0);
    for n in 1..=20_000_u64 {
        mock.advance(Duration::from_millis(random.below(30)));
        let peer = format!("192.0.2.{}", random.below(8));
        let key = [Some("a"), Some("b"), Some("c"), Some("d"), None][random.below(5) as usize];
        let mut request = with_key(&peer, key);
        *request.uri_mut() = ["/", "/", "/", "/skip", "/exempt"][random.below(5) as usize].parse().unwrap();
        let passed = status(&call(&mut service, request)) == 200;
        let stats = layer.stats();
        assert_eq!(requests(&stats), n);
        before += u64::from(passed);
        assert_eq!(stats.granted + stats.shadow_refused + stats.skipped + stats.exempt, before);
        assert_eq!(echo.calls.load(Relaxed), before);
    }
    let stats = layer.stats();
    let LayerStats { granted, refused, banned, shadow_refused, skipped, exempt, rejected, .. } = stats;
    for count in [granted, refused, banned, shadow_refused, skipped, exempt, rejected, stats.unbanned_full] {
        assert!(count > 100, "{stats:?}");
    }
    let bans = [0, 1, 2].map(|n| (stats.limits[n].bans > 10, stats.limits[n].banned > 10));
    assert_eq!(bans, [(true, true), (true, true), (true, false)], "{stats:?}");
    let sum = |of: fn(&tollgate::tower::LimitStats) -> u64| stats.limits.iter().map(of).sum::<u64>();
    assert_eq!(sum(|limit| limit.banned), stats.banned);
    assert_eq!(sum(|limit| limit.bans), stats.bans);
    assert_eq!(sum(|limit| limit.unbanned_full), stats.unbanned_full);
    assert_eq!(stats.limits.iter().map(|limit| limit.ban_keys).sum::<usize>(), stats.ban_keys);
    // The series of Prometheus sum up to the requests.
    let text = prometheus(&[stats]);
    let of = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let sum: u64 = text.lines().filter(|line| line.starts_with("tollgate_decisions_total")).map(of).sum();
    assert_eq!(sum, 20_000);
}

#[test]
fn threads_that_refuse_one_key_at_once_begin_one_ban() {
    const THREADS: usize = 8;
    const ROUNDS: u32 = 1_000;
    for refusals in [1, 5, 8] {
        // Each thread is refused by the limit before any thread counts its refusal.
        let barrier = Arc::new(Barrier::new(THREADS));
        let together = barrier.clone();
        let limiter = RateLimiter::<IpAddr>::builder(Quota::per_hour(1)).clock(Clock::mock().0);
        let limiter = limiter.on_decision(move |decision| {
            if decision.is_err() {
                together.wait();
            }
        });
        let limiter = limiter.build();
        for round in 0..ROUNDS {
            assert!(limiter.try_acquire(&IpAddr::from(round.to_be_bytes())).is_ok());
        }
        let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer());
        let layer = layer.ban_after(refusals, MINUTE).for_(HOUR).unwrap().reject_with(reject).build();
        let (refused, by_limit) = (AtomicU64::new(0), AtomicU64::new(0));
        // A panic between two barriers would leave the other threads there.
        let rounds = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (layer, barrier, rounds) = (&layer, &*barrier, &rounds);
                let (refused, by_limit) = (&refused, &by_limit);
                scope.spawn(move || {
                    let mut service = layer.layer(Echo::default());
                    for round in 0..ROUNDS {
                        let peer = IpAddr::from(round.to_be_bytes());
                        let request = from(&peer.to_string(), "/");
                        let response = call(&mut service, request);
                        refused.fetch_add(u64::from(status(&response) == 429), Relaxed);
                        by_limit.fetch_add(u64::from(is_ban(&response) == Some(false)), Relaxed);
                        barrier.wait();
                        if thread == 0 {
                            let counts = [refused, by_limit].map(|count| count.load(Relaxed));
                            rounds.lock().unwrap().push((layer.stats(), counts, layer.banned(&peer)));
                        }
                        barrier.wait();
                    }
                });
            }
        });
        let rounds = rounds.into_inner().unwrap();
        assert_eq!(rounds.len(), ROUNDS as usize);
        for (n, (stats, [refused, by_limit], banned)) in (1..).zip(rounds) {
            assert_eq!((stats.bans, banned), (n, Some(HOUR)), "round {n}");
            assert_eq!((stats.refused, stats.banned, refused), (8 * n, 0, 8 * n), "round {n}");
            // All refusals but the first few are told as those of a ban.
            assert_eq!(by_limit, (refusals - 1) * n, "round {n}");
        }
        assert_eq!((layer.stats().bans, layer.stats().unbanned_full), (u64::from(ROUNDS), 0));
    }
}

#[test]
fn a_decision_hook_sees_the_wait_of_a_ban() {
    let (builder, mock) = one_an_hour();
    let (last, hook) = last();
    let layer = builder.ban_after(1, MINUTE).for_(2 * HOUR).unwrap().on_decision(hook).build();
    let mut service = layer.layer(Echo::default());
    let mut asks = || {
        call(&mut service, from(A, "/"));
        last.lock().unwrap().take().unwrap().map_err(|denied| (denied.reason(), denied.retry_after()))
    };
    assert!(asks().is_ok());
    assert_eq!(asks().unwrap_err(), (Reason::Empty, Some(2 * HOUR)));
    mock.advance(MINUTE);
    assert_eq!(asks().unwrap_err(), (Reason::Empty, Some(2 * HOUR - MINUTE)));
}
