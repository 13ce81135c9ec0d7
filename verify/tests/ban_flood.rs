// promise: flood
//! Ten million requests, nearly each of another address, against a layer with bans and an allow
//! list. Memory stays that of the keys with room. Each ban lasts to its end. No key is banned for
//! the refusals of others, and no request is exempt that is not on the list.
//!
//! The memory is the allocator's count and the process's resident size, so this is a program of its
//! own.

#[path = "common/resident.rs"]
mod resident;

use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocation_counter::measure;
use http::{Method, Request, Uri};
use tollgate::{Clock, Quota, RateLimiter};
use tollgate_http::{ClientIp, Exempt, RateLimitLayer, prometheus};
use tollgate_verify::watchdog::Watchdog;
use tower_layer::Layer;
use tower_service::Service;

use resident::resident;
use tollgate_testing::Nothing;

const REQUESTS: u32 = 10_000_000;
/// Keys of the limiter.
const ROOM: usize = 100_000;
/// Keys of each store of the bans.
const BANS: usize = 10_000;
/// Clients that are banned before the flood.
const BANNED: u8 = 100;
const BAN: Duration = Duration::from_secs(500);

/// Paths beside those of the allow list.
const PATHS: [&str; 8] = [
    "/login",
    "/static/../login",
    "/static/%2e%2e/login",
    "/static/..;/login",
    "/static\\..\\login",
    "//static/a",
    "/STATIC/a",
    "/health/",
];

/// The way of a flood.
#[derive(Clone, Copy, Debug)]
struct Flood {
    /// Nanoseconds from one request to the next.
    step: u64,
    /// Requests of each address.
    of_each: u32,
}

#[test]
fn ten_million_refused_addresses_end_no_ban_and_begin_none_of_others() {
    let _watchdog = Watchdog::of("ten million refused addresses", 1_800);
    let floods = [
        // The stores are full of keys that stay.
        Flood { step: 0, of_each: 1 },
        // Keys come and go, and the bans end in the middle.
        Flood { step: 100_000, of_each: 1 },
        // Each address of the flood is refused often enough to be banned itself.
        Flood { step: 0, of_each: 2 },
    ];
    for flood in floods {
        run(flood);
    }
}

fn run(flood: Flood) {
    let (clock, mock) = Clock::mock();
    let limiter = RateLimiter::<IpAddr>::builder(Quota::per_second(100)).clock(clock).max_keys(ROOM).build();
    let layer = RateLimitLayer::builder(limiter)
        .key(ClientIp::peer())
        // A POST request is refused: it costs more than the limit ever grants.
        .cost(|head| if head.method == Method::POST { 1_000 } else { 1 })
        .ban_after(2, Duration::from_millis(100))
        .max_keys(BANS)
        .for_(BAN)
        .expect("the numbers are in their bounds")
        .exempt(Exempt::paths(["/health", "/static/*"]).expect("they are paths"))
        .exempt(Exempt::when(
            |head| matches!(head.extensions.get(), Some(IpAddr::V4(client)) if client.octets()[0] == 10),
        ))
        .build();
    let mut service = layer.layer(Nothing);
    let paths = PATHS.map(Uri::from_static);
    let mut status = |client: IpAddr, method: Method, path: &Uri| {
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = path.clone();
        request.extensions_mut().insert(client);
        match pin!(service.call(request)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(response)) => response.status().as_u16(),
            Poll::Pending => panic!("no request waits"),
        }
    };
    let banned = |n: u8| IpAddr::from([203, 0, 113, n]);
    let honest = IpAddr::from([198, 51, 100, 1]);
    let (office, static_path) = (IpAddr::from([10, 1, 2, 3]), Uri::from_static("/static/logo.svg"));
    for n in 0..BANNED {
        assert_eq!([(); 2].map(|()| status(banned(n), Method::POST, &paths[0])), [429; 2]);
    }
    // A single refusal: with one more, this client would be banned.
    assert_eq!(status(honest, Method::GET, &paths[0]), 200);
    let series = prometheus(&[layer.stats()]).lines().count();
    let end = layer.banned(&banned(0)).expect("it is banned");
    let mut now = Duration::ZERO;
    let [mut asked, mut by_ban, mut exempt, mut after_end, mut let_through] = [0_u64; 5];
    let before = resident();
    let used = measure(|| {
        for n in 0..REQUESTS {
            let client_number = n / flood.of_each;
            let client = IpAddr::from((client_number | 1 << 31).to_be_bytes());
            let path = &paths[client_number as usize / 2 % paths.len()];
            // Half of the addresses take a place in the limiter, if there is one.
            let method = if client_number.is_multiple_of(2) { Method::GET } else { Method::POST };
            let (is_post, answer) = (method == Method::POST, status(client, method, path));
            assert!(!is_post || answer == 429, "{client} {path}");
            let_through += u64::from(answer == 200);
            now += Duration::from_nanos(flood.step);
            mock.advance(Duration::from_nanos(flood.step));
            if n % 1_000 == 0 {
                let one = banned((n / 1_000 % u32::from(BANNED)) as u8);
                let rest = end.checked_sub(now).filter(|rest| !rest.is_zero());
                assert_eq!(layer.banned(&one), rest, "{one} after {n} requests");
                match rest {
                    Some(_) => by_ban += 1,
                    None => after_end += 1,
                }
                let expected = if rest.is_some() { 429 } else { 200 };
                assert_eq!(status(one, Method::GET, &paths[0]), expected, "{one} after {n} requests");
                // The allow list is as before, for a banned client, too.
                assert_eq!(status(one, Method::POST, &static_path), 200);
                assert_eq!(status(office, Method::POST, &paths[1]), 200);
                exempt += 2;
            }
            if n % 200_000 == 0 {
                asked += 1;
                assert_eq!(status(honest, Method::GET, &paths[0]), 200, "after {n} requests");
                assert_eq!(layer.banned(&honest), None, "after {n} requests");
            }
            // An address that was refused once at most is not banned.
            if flood.of_each == 1 && n % 1_000 < 8 {
                assert_eq!(layer.banned(&client), None, "{client}");
            }
        }
    });
    let more = resident().zip(before).map(|(after, before)| after - before);
    let stats = layer.stats();
    println!("{flood:?}: {} bytes at most, {more:?} more in memory; {stats:?}", used.bytes_max);
    let room = ROOM + 3 * BANS;
    assert!(used.bytes_max <= 200 * room as u64, "{} bytes for {room} keys", used.bytes_max);
    // The allocator keeps some of the smaller tables.
    assert!(more.is_none_or(|more| more <= 400 * room as i64), "{more:?} bytes for {room} keys");
    assert!(stats.keys <= ROOM && stats.ban_keys <= 3 * BANS, "{stats:?}");
    assert_eq!(stats.exempt, exempt);
    let first = u64::from(BANNED);
    if flood.of_each == 1 {
        assert_eq!((stats.bans, stats.banned), (first, by_ban));
        assert_eq!(stats.refused, u64::from(REQUESTS) + 2 * first - let_through);
    } else {
        // Keys are banned while there is room.
        assert!(stats.bans > BANS as u64 / 2 && stats.bans <= BANS as u64, "{stats:?}");
        assert_eq!(stats.refused + stats.banned, u64::from(REQUESTS) + 2 * first + by_ban - let_through);
    }
    assert!(stats.unbanned_full > 100_000, "{stats:?}");
    assert_eq!(stats.granted, 1 + asked + after_end + let_through);
    assert!(let_through > ROOM as u64, "{let_through}");
    assert!(stats.keys > ROOM / 2 || stats.evicted > 1_000_000, "{stats:?}");
    assert_eq!(after_end > 1_000, flood.step > 0);
    assert_eq!(prometheus(&[layer.stats()]).lines().count(), series);
    assert!(layer.top_refused(usize::MAX).len() <= 512);
}
