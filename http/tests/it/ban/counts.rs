// promise: layer
//! The counts of bans and of requests.

use super::*;

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
        .enforce(0);
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
        .exempt(tollgate_http::Exempt::paths(["/skip", "/exempt"]).unwrap())
        .enforce(80)
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
    let sum = |of: fn(&tollgate_http::LimitStats) -> u64| stats.limits.iter().map(of).sum::<u64>();
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
