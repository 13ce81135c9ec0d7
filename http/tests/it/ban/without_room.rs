// promise: layer
//! Bans while there is no room for a key.

use super::*;

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
    limiter.set_rule(Quota::per_hour(3)).unwrap();
    let mut service = layer.layer(Echo::default());
    let mut asks = |peer: &str| {
        assert_eq!(status(&call(&mut service, from(peer, "/"))), 429);
        layer.banned(&ip(peer)).is_some()
    };
    assert_eq!([(); 4].map(|()| asks(B)), [false, false, false, true]);
    // After any number of changes.
    for n in 4..40 {
        let quota = Quota::per_hour(n % 3 + 1);
        limiter.set_rule(quota).unwrap();
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
    let builder = RateLimiter::<IpAddr, _>::builder(Window::per_hour(2)).clock(Clock::mock().0);
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
