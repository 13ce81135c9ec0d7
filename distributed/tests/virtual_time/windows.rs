//! Limits in windows: leases with an end, plans, changes, charges and outages.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::sleep;
use tollgate::Window;
use tollgate_distributed::{DistributedLimiter, OnOutage, Source};

use crate::world::{Network, World};

const RTT: Duration = Duration::from_millis(4);
const KEY: u64 = 1;
/// An edge of each period of whole seconds up to an hour, and of the day: 2026-01-01 00:00 UTC.
const NEW_YEAR_US: u64 = 1_767_225_600_000_000;

type Limiter = DistributedLimiter<u64, Network, Window>;

/// Returns a world that begins some seconds before an edge.
fn before_edge(seconds: u64) -> World {
    World::at(NEW_YEAR_US - seconds * 1_000_000, RTT)
}

/// Takes one token at a time, at most `most`. Returns the number of grants.
async fn drain(limiter: &Limiter, most: usize) -> usize {
    let mut granted = 0;
    for _ in 0..most {
        granted += usize::from(limiter.ask(&KEY).await.is_ok());
    }
    granted
}

fn rules(limit: u64) -> [(&'static str, Window); 4] {
    let minute = Window::per_minute(limit);
    [
        ("utc", minute.utc()),
        ("day", Window::per_day(limit).utc()),
        ("month", Window::per_month(limit)),
        ("first use", minute),
    ]
}

/// Two processes have one window between them, exactly and by leases. All of it comes back at the
/// edge, and nothing before it.
#[tokio::test(start_paused = true)]
async fn a_fleet_has_one_window() {
    for (name, rule) in rules(40) {
        for is_exact in [true, false] {
            let world = before_edge(10);
            let process = || match world.process(rule) {
                builder if is_exact => builder.exact().build().unwrap(),
                builder => builder.build().unwrap(),
            };
            let fleet = [process(), process()];
            for (turn, edge) in [10.0, 70.0].into_iter().enumerate() {
                let mut granted = 0;
                for request in 0..200 {
                    granted += usize::from(fleet[request % 2].ask(&KEY).await.is_ok());
                    sleep(Duration::from_millis(10)).await;
                }
                // A tail of tokens may be in the lease of a process.
                let what = format!("{name}, exact {is_exact}, turn {turn}: {granted}");
                assert!(granted <= 40, "{what}");
                assert!(granted >= if is_exact { 40 } else { 38 }, "{what}");
                let edge = if name == "first use" { edge + 50.1 } else { edge + 0.1 };
                world.sleep_until(edge - 0.2).await;
                assert_eq!(drain(&fleet[0], 3).await, 0, "{name}: before the edge");
                world.sleep_until(edge).await;
            }
        }
    }
}

/// The tokens of a lease end with their window, and those of a late answer are void.
#[tokio::test(start_paused = true)]
async fn tokens_of_a_window_that_is_over_are_dropped() {
    let world = before_edge(10);
    let limiter = world.process(Window::per_minute(100).utc()).build().unwrap();
    limiter.key(&KEY).n(60).ask().await.unwrap();
    limiter.refund(&KEY, 60);
    assert_eq!(limiter.key(&KEY).n(10).try_acquire_local().unwrap().source(), Source::Lease);
    world.sleep_until(9.99).await;
    // The lease was idle, so it went back: 10 tokens are used.
    assert_eq!(limiter.peek(&KEY).await.unwrap().remaining(), 90);
    limiter.key(&KEY).n(30).ask().await.unwrap();
    limiter.refund(&KEY, 30);
    world.sleep_until(10.001).await;
    assert!(limiter.try_acquire_local(&KEY).is_err(), "the tokens are of the window before");
    let granted = limiter.key(&KEY).n(100).ask().await.unwrap();
    assert_eq!((granted.remaining(), granted.source()), (0, Source::Store));
    // Nor does a refund of tokens of the window before come in.
    limiter.refund(&KEY, 130);
    assert!(limiter.key(&KEY).n(101).ask().await.is_err());
    assert_eq!(drain(&limiter, 200).await, 100);
}

/// A refused key costs one call after the time in which leases come back, and none after that until
/// its window ends. The wait is until the edge.
#[tokio::test(start_paused = true)]
async fn a_refused_key_costs_no_call_until_its_window_ends() {
    let world = before_edge(50);
    let limiter = world.process(Window::per_minute(10).utc()).exact().build().unwrap();
    assert_eq!(drain(&limiter, 10).await, 10);
    let before = world.calls.load(Relaxed);
    for _ in 0..4_700 {
        let denied = limiter.ask(&KEY).await.unwrap_err();
        let wait = denied.retry_after().unwrap() + world.now();
        assert!(wait >= Duration::from_secs(49) && wait <= Duration::from_millis(50_010), "{wait:?}");
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.calls.load(Relaxed) - before, 1, "in 47 s");
    world.sleep_until(50.01).await;
    assert!(limiter.ask(&KEY).await.is_ok());
}

/// Tokens that another process gives back are found after a pause, also by a key that was refused.
#[tokio::test(start_paused = true)]
async fn tokens_that_go_back_are_found() {
    let world = before_edge(50);
    let fleet = [(); 2].map(|()| world.process(Window::per_minute(10).utc()).exact().build().unwrap());
    assert_eq!(drain(&fleet[0], 10).await, 10);
    assert_eq!(drain(&fleet[1], 1).await, 0);
    fleet[0].refund(&KEY, 4);
    sleep(Duration::from_millis(2_050)).await;
    assert_eq!(drain(&fleet[1], 10).await, 4);
}

/// Plans of one window and a change of the limit keep the count.
#[tokio::test(start_paused = true)]
async fn plans_and_another_limit_share_the_count() {
    for is_exact in [true, false] {
        let world = before_edge(50);
        let rule = Window::per_minute(10).utc();
        let builder = world.process(rule);
        let limiter = if is_exact { builder.exact() } else { builder }.build().unwrap();
        let gold = limiter.plan(Window::per_minute(30).utc()).unwrap();
        assert_eq!(limiter.key(&KEY).n(10).ask().await.unwrap().remaining(), 0);
        assert!(limiter.ask(&KEY).await.is_err());
        assert_eq!(limiter.key(&KEY).n(15).under(&gold).ask().await.unwrap().remaining(), 5);
        assert!(limiter.ask(&KEY).await.is_err());
        limiter.set_rule(Window::per_minute(27).utc()).unwrap();
        assert_eq!(limiter.rule().limit(), 27);
        assert!(limiter.key(&KEY).n(3).ask().await.is_err());
        assert!(limiter.key(&KEY).n(2).ask().await.is_ok());
        let other = limiter.plan(Window::per_hour(30).utc()).unwrap_err().to_string();
        assert_eq!(
            other,
            "a plan of 30/h fixed utc shares no count with 27/m fixed utc: only the limit may differ"
        );
    }
}

/// Charges take tokens beyond the limit; those of a window that is over are dropped.
#[tokio::test(start_paused = true)]
async fn a_charge_is_of_its_window() {
    let world = before_edge(10);
    let limiter = world.process(Window::per_minute(10).utc()).exact().build().unwrap();
    assert!(limiter.key(&KEY).n(4).ask().await.is_ok());
    limiter.charge(&KEY, 5);
    sleep(RTT * 2).await;
    assert_eq!(limiter.peek(&KEY).await.unwrap().remaining(), 1);
    world.down.store(true, Relaxed);
    limiter.charge(&KEY, 3);
    world.sleep_until(10.1).await;
    world.down.store(false, Relaxed);
    assert!(limiter.key(&KEY).n(10).ask().await.is_ok());
}

/// An outage grants the share of the tokens that were left, then the share of each window. Those of
/// the window in which the store is back are charged.
#[tokio::test(start_paused = true)]
async fn an_outage_grants_a_share_of_each_window() {
    for (name, rule) in
        [("utc", Window::per_minute(100).utc()), ("sliding", Window::per_minute(100).sliding())]
    {
        let world = before_edge(10);
        let builder = world.process(rule).exact().on_outage(OnOutage::Local { share: 0.5 });
        let limiter = builder.build().unwrap();
        assert!(limiter.key(&KEY).n(60).ask().await.is_ok());
        world.down.store(true, Relaxed);
        assert_eq!(drain(&limiter, 100).await, 20, "{name}: half of 40");
        if name == "sliding" {
            continue;
        }
        for _ in 0..2 {
            world.sleep_until(world.now().as_secs_f64() + 59.9).await;
            assert_eq!(drain(&limiter, 100).await, 50, "{name}: half of 100");
        }
        world.down.store(false, Relaxed);
        sleep(Duration::from_secs(1)).await;
        // Those of the present window alone.
        assert!(limiter.ask(&KEY).await.is_ok(), "{name}");
        assert_eq!(limiter.peek(&KEY).await.unwrap().remaining(), 49, "{name}");
    }
}

/// A sliding window grants its limit in each interval of a period.
#[tokio::test(start_paused = true)]
async fn a_sliding_window_has_no_edge() {
    for is_exact in [true, false] {
        let world = before_edge(3);
        let builder = world.process(Window::per(40, Duration::from_secs(4)).sliding());
        let limiter = if is_exact { builder.exact() } else { builder }.build().unwrap();
        let mut grants: Vec<Duration> = Vec::new();
        for _ in 0..4_000 {
            let at = world.now();
            if limiter.ask(&KEY).await.is_ok() {
                grants.push(at);
            }
            sleep(Duration::from_millis(5)).await;
        }
        for (index, at) in grants.iter().enumerate() {
            let within =
                grants[index..].iter().take_while(|then| **then < *at + Duration::from_secs(4) - RTT);
            assert!(within.count() <= 40, "at {at:?}, exact {is_exact}");
        }
        // The store frees a sub-window late: 36 s of 4.25.
        assert!(grants.len() >= if is_exact { 180 } else { 150 }, "exact {is_exact}: {}", grants.len());
    }
}
