// promise: law
//! No limit, and a pause: `Quota::UNLIMITED`, `Quota::BLOCKED`, and blocked windows.

use std::time::Duration;

use tollgate::{
    AnyRule, Clock, Denied, Granted, Quota, RateLimiter, Reason, TokenBucket, WhenFull, Window,
    WindowCounter, all_of,
};

const HOURLY: Quota = Quota::per_hour(10);

fn is_free(granted: &Granted, tokens: u64) {
    assert_eq!((granted.tokens(), granted.remaining()), (tokens, u64::MAX));
    assert_eq!((granted.reset_after(), granted.next_token()), (Duration::ZERO, None));
    assert_eq!((granted.time_to(0), granted.time_to(u64::MAX)), (Some(Duration::ZERO), Some(Duration::ZERO)));
}

fn is_blocked(refused: Result<Granted, Denied>, asked: u64) {
    let denied = refused.expect_err("the limit is blocked");
    assert_eq!((denied.reason(), denied.retry_after()), (Reason::Blocked, None));
    assert_eq!((denied.asked(), denied.remaining()), (asked, 0));
    assert_eq!(denied.to_string(), "the limit is blocked until another one is set");
}

#[test]
fn an_unlimited_bucket_never_refuses_and_counts() {
    static FREE: TokenBucket = TokenBucket::new(Quota::UNLIMITED);
    for _ in 0..1_000 {
        is_free(&FREE.try_acquire_n(u64::MAX).expect("there is no limit"), u64::MAX);
    }
    assert_eq!(FREE.rule(), Quota::UNLIMITED);

    let (clock, mock) = Clock::mock();
    let bucket = TokenBucket::builder(HOURLY).clock(clock).build();
    assert!(bucket.try_acquire_n(4).is_ok());
    bucket.set_rule(Quota::UNLIMITED).expect("it needs no room");
    let now = bucket.now();
    for n in [0, 1, 2, 1 << 41, u64::MAX] {
        is_free(&bucket.ask().n(n).at(now).try_acquire().unwrap(), n);
        is_free(&bucket.ask().n(n).acquire_up_to(), n);
        let reserved = bucket.ask().n(n).reserve().unwrap();
        assert_eq!(reserved.delay(), Duration::ZERO);
        is_free(&reserved.commit(), n);
        is_free(&bucket.ask().n(n).keep(90).try_acquire().unwrap(), n);
        is_free(&bucket.ask().n(n).blocking_acquire().unwrap(), n);
        is_free(&all_of([bucket.ask().n(n), bucket.ask().n(n)]).try_acquire().unwrap(), n);
    }
    assert_eq!(bucket.peek().remaining(), u64::MAX);
    // The six tokens that were left are taken, and none is owed.
    bucket.set_rule(HOURLY).unwrap();
    assert_eq!(bucket.peek().remaining(), 0);
    mock.advance(Duration::from_secs(360));
    assert_eq!(bucket.peek().remaining(), 1);
    // An estimate gives back no more than it took.
    bucket.set_rule(Quota::UNLIMITED).unwrap();
    assert_eq!(bucket.ask().n(1_000).hold().unwrap().settle(0), 0);
    bucket.set_rule(HOURLY).unwrap();
    assert_eq!(bucket.peek().remaining(), 1);
}

#[test]
fn an_unlimited_key_is_counted_in_each_store() {
    let (clock, _mock) = Clock::mock();
    let builder = || RateLimiter::<u64>::builder(HOURLY).clock(clock.clone());
    for limiter in [builder().build(), builder().max_keys(100).inline().unwrap().build()] {
        let partner = limiter.plan(Quota::UNLIMITED).unwrap();
        assert_eq!((partner.rule(), limiter.rule_under(&partner)), (Quota::UNLIMITED, Quota::UNLIMITED));
        for _ in 0..100 {
            is_free(&limiter.key(&1).n(3).under(&partner).try_acquire().unwrap(), 3);
        }
        is_free(&limiter.key(&1).under(&partner).n(u64::MAX).reserve().unwrap().commit(), u64::MAX);
        assert_eq!(limiter.key(&1).under(&partner).peek().remaining(), u64::MAX);
        assert_eq!((limiter.peek(&1).remaining(), limiter.len()), (0, 1));
        // A key without a take has no entry.
        is_free(&limiter.key(&2).n(0).under(&partner).try_acquire().unwrap(), 0);
        assert_eq!((limiter.peek(&2).remaining(), limiter.len()), (10, 1));
        // The limiter itself: each form of a request.
        limiter.set_rule(Quota::UNLIMITED).unwrap();
        is_free(&limiter.try_acquire_n(&3, 500).unwrap(), 500);
        is_free(&limiter.pin().try_acquire(&3).unwrap(), 1);
        let batch: Vec<_> = limiter.try_acquire_batch(&[(&3, 7), (&4, 8)]).collect();
        is_free(&batch[1].unwrap(), 8);
        limiter.set_rule(HOURLY).unwrap();
        assert_eq!([3, 4].map(|key| limiter.peek(&key).remaining()), [0, 2]);
    }
}

/// Where no bucket can count a key without a limit, it is granted all the same.
#[test]
fn an_unlimited_key_needs_no_room() {
    let limiter = RateLimiter::<u64>::builder(HOURLY).max_keys(0).when_full(WhenFull::Deny).build();
    let partner = limiter.plan(Quota::UNLIMITED).unwrap();
    assert_eq!(limiter.try_acquire(&1).unwrap_err().reason(), Reason::Full);
    is_free(&limiter.key(&1).n(5).under(&partner).try_acquire().unwrap(), 5);
    assert_eq!(limiter.key(&1).under(&partner).n(5).hold().unwrap().settle(9), 4);
    limiter.set_rule(Quota::UNLIMITED).unwrap();
    is_free(&limiter.try_acquire_n(&1, 6).unwrap(), 6);
    // Under a plan that is a rate there is none.
    let trial = limiter.plan(Quota::per_hour(1)).unwrap();
    assert_eq!(limiter.key(&1).under(&trial).try_acquire().unwrap_err().reason(), Reason::Full);
}

#[test]
fn a_limiter_without_a_limit_has_limited_plans() {
    let (clock, mock) = Clock::mock();
    let trial = Quota::per_second(5).burst(20);
    let builder = RateLimiter::<String>::builder(Quota::UNLIMITED).clock(clock);
    let limiter =
        builder.plans([trial]).unwrap().plan_for(|key| key.starts_with("trial").then_some(0)).build();
    assert_eq!(limiter.rule(), Quota::UNLIMITED);
    is_free(&limiter.try_acquire_n("ada", 1_000_000_000).unwrap(), 1_000_000_000);
    assert_eq!(limiter.try_acquire_n("trial-bob", 20).map(|granted| granted.remaining()), Ok(0));
    let denied = limiter.try_acquire("trial-bob").unwrap_err();
    assert_eq!(denied.retry_after(), Some(Duration::from_millis(200)));
    mock.advance(Duration::from_millis(200));
    assert!(limiter.try_acquire("trial-bob").is_ok());
    // Room for a quota to come.
    let daily = Quota::per_day(1_000_000);
    let limiter = RateLimiter::<u64>::builder(Quota::UNLIMITED).headroom(daily).unwrap().build();
    limiter.set_rule(daily).unwrap();
    assert_eq!(limiter.peek(&1).remaining(), 1_000_000);
    let refused = RateLimiter::<u64>::builder(Quota::UNLIMITED).build().set_rule(Quota::per_second(1 << 22));
    let refused = refused.unwrap_err();
    // The method is for the caller, not for the reader of a log.
    assert!(refused.to_string().ends_with("that there is room for"), "{refused}");
    assert!(format!("{refused:?}").ends_with("\"build with headroom\")"), "{refused:?}");
}

#[test]
fn a_pause_refuses_all_and_keeps_the_tokens() {
    let (clock, mock) = Clock::mock();
    let bucket = TokenBucket::builder(HOURLY).clock(clock.clone()).build();
    assert!(bucket.try_acquire_n(8).is_ok());
    let (waits, held) = (bucket.ask().n(3).reserve().unwrap(), bucket.ask().n(0).hold().unwrap());
    bucket.set_rule(Quota::BLOCKED).unwrap();
    assert_eq!(bucket.rule(), Quota::BLOCKED);
    let now = bucket.now();
    for n in [1, 2, 11, u64::MAX] {
        is_blocked(bucket.try_acquire_n(n), n);
        is_blocked(bucket.ask().n(n).at(now).try_acquire(), n);
        is_blocked(bucket.ask().n(n).keep(1).try_acquire(), n);
        is_blocked(bucket.ask().n(n).reserve().map(|reserved| reserved.commit()), n);
        is_blocked(bucket.ask().n(n).hold().map(|hold| hold.granted()), n);
        is_blocked(bucket.ask().n(n).blocking_acquire(), n);
        is_blocked(bucket.ask().n(n).within(Duration::MAX).blocking_acquire(), n);
        assert_eq!(bucket.ask().n(n).acquire_up_to().tokens(), 0);
        let both = all_of([bucket.ask().n(0), bucket.ask().n(n)]).try_acquire().unwrap_err();
        assert_eq!((both.which(), both.retry_after()), (1, None));
    }
    // A take of 0 is granted, and a look tells that nothing comes.
    let look = bucket.peek();
    assert_eq!(bucket.try_acquire_n(0).map(|granted| granted.remaining()), Ok(0));
    assert_eq!((look.remaining(), look.next_token(), bucket.ask().peek().retry_after()), (0, None, None));
    // The caller in line has its tokens. Used tokens are settled, and time goes on.
    assert_eq!(waits.delay(), Duration::from_secs(360));
    assert_eq!(held.settle(1), 0);
    mock.advance(Duration::from_secs(4 * 360));
    bucket.refund(1);
    bucket.set_rule(HOURLY).unwrap();
    assert_eq!(waits.commit().tokens(), 3);
    assert_eq!(bucket.peek().remaining(), 3);
    // A bucket that begins with a pause.
    let bucket = TokenBucket::builder(Quota::BLOCKED).headroom(HOURLY).unwrap().clock(clock).build();
    is_blocked(bucket.try_acquire(), 1);
    bucket.set_rule(HOURLY).unwrap();
    assert!(bucket.try_acquire_n(10).is_ok() && bucket.try_acquire().is_err());
}

/// An evictor knows a used key in a pause: nothing is minted by it.
#[test]
fn a_pause_forgets_no_used_key_and_makes_no_entry() {
    let (clock, mock) = Clock::mock();
    let builder = || RateLimiter::<u64>::builder(HOURLY).clock(clock.clone());
    for limiter in [builder().build(), builder().max_keys(100).inline().unwrap().build()] {
        let gold = limiter.plan(Quota::per_hour(5)).unwrap();
        let free = limiter.plan(Quota::UNLIMITED).unwrap();
        let shut = limiter.plan(Quota::BLOCKED).unwrap();
        assert!(limiter.try_acquire_n(&1, 10).is_ok());
        is_blocked(limiter.key(&2).under(&shut).try_acquire(), 1);
        limiter.set_rule(Quota::BLOCKED).unwrap();
        for plan in [&gold, &free, &shut] {
            is_blocked(limiter.key(&1).under(plan).try_acquire(), 1);
            is_blocked(limiter.key(&2).under(plan).reserve().map(|reserved| reserved.commit()), 1);
            assert_eq!(limiter.rule_under(plan), Quota::BLOCKED);
        }
        is_blocked(limiter.try_acquire(&2), 1);
        is_blocked(limiter.pin().try_acquire(&2), 1);
        is_blocked(limiter.try_acquire_batch(&[(&2, 1)]).next().unwrap(), 1);
        assert_eq!(limiter.len(), 1);
        mock.advance(Duration::from_secs(60));
        assert_eq!(limiter.evict_idle(), 0);
        limiter.set_rule(HOURLY).unwrap();
        assert_eq!(limiter.peek(&1).remaining(), 0);
        assert_eq!(limiter.key(&2).n(5).under(&gold).try_acquire().map(|granted| granted.remaining()), Ok(0));
        limiter.clear();
    }
}

/// The tokens that cores have on lease are recalled.
#[test]
fn a_pause_ends_the_leases_of_a_spread_bucket() {
    let (clock, _mock) = Clock::mock();
    let quota = Quota::per_second(100_000);
    let bucket = TokenBucket::builder(quota).clock(clock).spread().build();
    assert!((0..50_000).all(|_| bucket.try_acquire().is_ok()));
    bucket.set_rule(Quota::BLOCKED).unwrap();
    for _ in 0..10_000 {
        is_blocked(bucket.try_acquire(), 1);
    }
    bucket.set_rule(Quota::UNLIMITED).unwrap();
    for _ in 0..100_000 {
        assert!(bucket.try_acquire().is_ok());
    }
    bucket.set_rule(Quota::BLOCKED).unwrap();
    is_blocked(bucket.try_acquire(), 1);
    bucket.set_rule(quota).unwrap();
    assert_eq!(bucket.peek().remaining(), 0);
}

#[test]
fn a_blocked_window_refuses_all_and_goes_on() {
    let (clock, mock) = Clock::mock();
    let minute = Window::per_minute(5);
    for window in [minute, minute.utc(), minute.sliding(), minute.weighted(), Window::per_month(5)] {
        let counter = WindowCounter::builder(window).clock(clock.clone()).build();
        let limiter = RateLimiter::<u64, _>::builder(window).clock(clock.clone()).build();
        let cap = limiter.plan(window.with_limit(3).unwrap()).unwrap();
        assert!(counter.try_acquire_n(4).is_ok() && limiter.try_acquire_n(&1, 4).is_ok());
        assert_eq!(
            (counter.set_rule(window.blocked()), limiter.set_rule(window.blocked())),
            (Ok(()), Ok(()))
        );
        assert_eq!((counter.rule().limit(), limiter.rule().limit()), (0, 0));
        for n in [1, 6] {
            is_blocked(counter.try_acquire_n(n), n);
            is_blocked(limiter.try_acquire_n(&1, n), n);
            is_blocked(limiter.pin().try_acquire_n(&2, n), n);
            is_blocked(limiter.key(&2).under(&cap).n(n).try_acquire(), n);
            assert_eq!(counter.ask().n(n).acquire_up_to().tokens(), 0);
        }
        assert_eq!(
            (counter.peek().remaining(), counter.ask().peek().retry_after(), limiter.len()),
            (0, None, 1)
        );
        assert_eq!((counter.set_rule(window), limiter.set_rule(window)), (Ok(()), Ok(())));
        assert_eq!([counter.peek(), limiter.peek(&1)].map(|look| look.remaining()), [1, 1], "{window}");
        mock.advance(Duration::from_secs(61));
    }
}

#[test]
fn no_limit_and_a_pause_have_a_text() {
    for (quota, text) in [(Quota::UNLIMITED, "unlimited"), (Quota::BLOCKED, "blocked")] {
        assert_eq!(
            (quota.to_string().as_str(), text.parse(), format!("{quota:?}")),
            (text, Ok(quota), format!("Quota({text})"))
        );
        assert_eq!(
            (text.parse(), AnyRule::from(quota).to_string()),
            (Ok(AnyRule::Quota(quota)), text.to_owned())
        );
        assert!(text.parse::<Window>().unwrap_err().to_string().contains("it is a quota"));
    }
    assert_eq!(
        [Quota::UNLIMITED, Quota::BLOCKED].map(|quota| (quota.tokens(), quota.capacity())),
        [(u64::MAX, u64::MAX), (0, 0)]
    );
    // 0 is no limit by any other way.
    assert!(Quota::try_per(0, Duration::from_secs(1)).is_err() && "0/s".parse::<Quota>().is_err());
    assert!(Quota::try_per(u64::MAX, Duration::from_nanos(1)).is_err());
}

/// The rule of a blocked limiter is a value like any other.
#[test]
fn a_limiter_may_be_built_with_a_blocked_window() {
    let hour = Window::per_hour(5);
    for window in [hour, hour.utc(), hour.sliding(), hour.weighted()] {
        let limiter = RateLimiter::<u8, _>::new(window);
        limiter.set_rule(window.blocked()).unwrap();
        let rule = limiter.rule();
        assert_eq!((rule, rule.sub_window()), (window.blocked(), window.sub_window()));
        let again = RateLimiter::<u8, _>::new(rule);
        assert_eq!(again.try_acquire(&1).unwrap_err().reason(), Reason::Blocked);
        again.set_rule(window).unwrap();
        assert!(again.try_acquire(&1).is_ok());
    }
}

/// Callers in line with promised tokens are served in a pause, the others after it. Without a limit
/// all others are served at once.
#[cfg(feature = "tokio")]
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn callers_in_line_are_served_as_promised_in_a_pause_and_at_once_without_a_limit() {
    use std::sync::Arc;
    use tokio::time::{Instant, sleep};

    let (start, ms) = (Instant::now(), Duration::from_millis);
    for gate in [Quota::BLOCKED, Quota::UNLIMITED] {
        let quota = Quota::per_second(10).burst(1);
        let builder = TokenBucket::builder(quota).clock(Clock::from_fn(move || start.elapsed()));
        let bucket = Arc::new(builder.max_debt(2).unwrap().build());
        assert!(bucket.ask().acquire().await.is_ok());
        let began = Instant::now();
        let wait = |bucket: Arc<TokenBucket>| async move {
            let result = bucket.ask().acquire().await;
            result.map(|_| began.elapsed())
        };
        let callers = [(); 4].map(|()| tokio::spawn(wait(bucket.clone())));
        sleep(ms(50)).await;
        bucket.set_rule(gate).unwrap();
        sleep(ms(950)).await;
        let new = bucket.ask().acquire().await;
        assert_eq!(
            new.map_err(|denied| denied.reason()).err(),
            (gate == Quota::BLOCKED).then_some(Reason::Blocked)
        );
        bucket.set_rule(quota).unwrap();
        let mut served = Vec::new();
        for caller in callers {
            served.push(caller.await.unwrap().expect("no caller is refused in line").as_millis());
        }
        let wanted = if gate == Quota::BLOCKED { [100, 200, 1_000, 1_100] } else { [100, 200, 50, 50] };
        let near = served.iter().zip(wanted).all(|(served, wanted)| (wanted..=wanted + 2).contains(served));
        assert!(near, "{gate}: {served:?} for {wanted:?}");
    }
}
