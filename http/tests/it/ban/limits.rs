// promise: layer
//! The bans of the limits of a layer, each by itself.

use super::*;

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
    assert_eq!(
        (layer.banned(&ip(A)), boxed.limit("key").map(|limit| limit.banned(&digest))),
        (None, Some(Some(2 * HOUR)))
    );
    assert_eq!(boxed.limit("address").map(|limit| limit.banned(&ip(A))), Some(None));
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
    assert_eq!(boxed.limit("key").map(|limit| limit.banned(&Digest::of(b"two"))), Some(None));
    assert_eq!(keys.peek(&Digest::of(b"two")).remaining(), 2);
    // Both ban: the first limit answers.
    assert_eq!(asks(A, Some("one")), (429, Some(true)));
    assert_eq!(counts(), [(8, 3, 1, 1), (2, 2, 10, 1)]);
    // Each ban ends by itself.
    assert_eq!(layer.limit("address").map(|limit| limit.unban(&ip(A))), Some(true));
    assert_eq!(asks(A, Some("one")), (429, Some(true)));
    assert_eq!(counts(), [(8, 3, 1, 1), (2, 2, 11, 1)]);
    mock.advance(2 * HOUR);
    assert_eq!(
        (asks(A, Some("one")), boxed.limit("key").map(|limit| limit.banned(&digest))),
        ((200, None), Some(None))
    );
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
    let (limiter, mock) = limiter::<IpAddr>(Quota::per(3, 10 * SECOND));
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
    let (shadow, in_shadow) = walked(|layer| bans(layer).enforce(0));
    assert_eq!(in_shadow, decided);
    assert_eq!((shadow.refused, shadow.banned), (0, 0));
    assert_eq!((shadow.granted, shadow.bans), (enforced.granted, enforced.bans));
    assert_eq!(shadow.shadow_refused, enforced.refused + enforced.banned);
    let (spared, in_shadow) = walked(|layer| bans(layer).enforce(0));
    assert_eq!((in_shadow, spared), (decided, shadow));
}

#[test]
fn a_ban_of_a_limit_in_shadow_mode_is_that_of_enforcement() {
    let rule = |limit: LimitBy<IpAddr>| limit.ban_after(3, 10 * SECOND).for_(MINUTE).unwrap();
    let walked = |shadow: bool, beside: bool| {
        let (clock, mock) = Clock::mock();
        let quota = Quota::per(3, 10 * SECOND);
        let limiter = RateLimiter::<IpAddr>::builder(quota).clock(clock.clone()).build();
        let limit = rule(LimitBy::new(limiter).key(ClientIp::peer()))
            .enforce(if shadow { 0 } else { 100 })
            .name("bans")
            .unwrap();
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
            banned.push(layer.boxed().limit("bans").unwrap().banned(&ip(peer)));
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
    assert_eq!(
        (boxed.limit("address").map(|limit| limit.banned(&a)), layer.banned(&a)),
        (Some(Some(HOUR)), Some(HOUR))
    );
    // Another name, or keys of another type.
    assert_eq!(
        (
            boxed.limit("default").map(|limit| limit.banned(&a)),
            boxed.limit::<u64>("address").map(|limit| limit.banned(&7))
        ),
        (None, None)
    );
    assert_eq!(
        (
            boxed.limit("default").map(|limit| limit.unban(&a)),
            layer.limit::<u64>("address").map(|limit| limit.unban(&7))
        ),
        (None, None)
    );
    assert_eq!(layer.banned(&a), Some(HOUR));
    assert_eq!(
        (
            boxed.limit("address").map(|limit| limit.unban(&a)),
            boxed.limit("address").map(|limit| limit.unban(&a))
        ),
        (Some(true), Some(false))
    );
    assert_eq!((boxed.limit("address").map(|limit| limit.banned(&a)), layer.banned(&a)), (Some(None), None));
    // A limit without bans.
    let (builder, _mock) = one_an_hour();
    let layer = builder.build();
    assert_eq!((layer.banned(&a), layer.unban(&a)), (None, false));
    assert_eq!(
        (
            layer.boxed().limit("default").map(|limit| limit.banned(&a)),
            layer.limit("default").map(|limit| limit.unban(&a))
        ),
        (Some(None), Some(false))
    );
}
