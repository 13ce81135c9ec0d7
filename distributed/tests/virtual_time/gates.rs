//! Rules and plans that no store counts: nothing is refused, or all.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Quota, Reason, Window};
use tollgate_distributed::{DistributedLimiter, SharedRule, Source};

use crate::world::{Network, World};

const RTT: Duration = Duration::from_millis(4);
const KEY: u64 = 1;

/// Returns limiters whose requests find ten tokens an hour, in both modes.
fn in_both_modes<R: SharedRule>(rule: R) -> [(World, DistributedLimiter<u64, Network, R>); 2] {
    [true, false].map(|is_exact| {
        let world = World::new(RTT);
        let builder = world.process(rule);
        let limiter = if is_exact { builder.exact() } else { builder }.build().unwrap();
        (world, limiter)
    })
}

/// A plan without a limit grants what is asked for, and one that is blocked nothing. No call of the
/// store is made for either, and the tokens of the key stay as they are.
#[tokio::test(start_paused = true)]
async fn a_plan_may_be_unlimited_or_blocked() {
    for (world, limiter) in in_both_modes(Quota::per_hour(10)) {
        let partner = limiter.plan(Quota::UNLIMITED).unwrap();
        let banned = limiter.plan(Quota::BLOCKED).unwrap();
        assert_eq!(limiter.key(&KEY).n(4).ask().await.unwrap().remaining(), 6);
        let calls = world.calls.load(Relaxed);
        for n in [0, 1, 11, u64::MAX] {
            let granted = limiter.key(&KEY).n(n).under(&partner).ask().await.unwrap();
            assert_eq!((granted.tokens(), granted.remaining()), (n, u64::MAX));
            assert_eq!((granted.reset_after(), granted.source()), (Duration::ZERO, Source::Lease));
        }
        let denied = limiter.key(&KEY).under(&banned).try_acquire_local().unwrap_err();
        assert_eq!((denied.reason(), denied.retry_after()), (Reason::Blocked, None));
        assert!(limiter.key(&KEY).n(0).under(&banned).ask().await.is_ok());
        assert_eq!(world.calls.load(Relaxed), calls);
        assert_eq!(limiter.key(&KEY).n(6).ask().await.unwrap().remaining(), 0);
        assert_eq!(limiter.stats().denied, 1);
    }
}

/// A pause refuses each key, also those under plans and with tokens at hand. Tokens that come back
/// meanwhile are in the store after it.
#[tokio::test(start_paused = true)]
async fn a_pause_ends_and_the_tokens_are_there() {
    for (world, limiter) in in_both_modes(Quota::per_hour(10)) {
        let [gold, partner] = [Quota::per_hour(20), Quota::UNLIMITED].map(|plan| limiter.plan(plan).unwrap());
        assert!(limiter.key(&KEY).n(8).ask().await.is_ok());
        assert!(limiter.key(&2).n(8).under(&gold).ask().await.is_ok());
        limiter.refund(&KEY, 2);
        limiter.set_rule(Quota::BLOCKED).unwrap();
        assert_eq!((limiter.rule(), limiter.known(&KEY).remaining()), (Quota::BLOCKED, 0));
        sleep(RTT * 2).await;
        let calls = world.calls.load(Relaxed);
        for key in [KEY, 2, 3] {
            for decision in [
                limiter.try_acquire_local(&key),
                limiter.ask(&key).await,
                limiter.acquire(&key).await,
                limiter.key(&key).under(&gold).ask().await,
                limiter.key(&key).under(&partner).ask().await,
            ] {
                assert_eq!(decision.unwrap_err().reason(), Reason::Blocked);
            }
        }
        assert_eq!(limiter.peek(&KEY).await.unwrap().remaining(), 0);
        assert_eq!(world.calls.load(Relaxed), calls);
        limiter.refund(&KEY, 1);
        limiter.charge(&2, 3);
        sleep(Duration::from_secs(2)).await;
        limiter.set_rule(Quota::UNLIMITED).unwrap();
        assert!(limiter.key(&KEY).n(1_000).ask().await.is_ok());
        assert!(limiter.key(&KEY).n(21).under(&gold).ask().await.is_err());
        limiter.set_rule(Quota::per_hour(10)).unwrap();
        assert_eq!(limiter.peek(&KEY).await.unwrap().remaining(), 5);
        assert_eq!(limiter.key(&KEY).n(5).ask().await.unwrap().remaining(), 0);
        // Of 20 tokens under the plan 8 were taken. The others are 10 in the limiter's bucket.
        assert_eq!(limiter.peek(&2).await.unwrap().remaining(), 7);
        limiter.shutdown().await;
    }
}

/// A window that is blocked is a pause, too, and its count goes on.
#[tokio::test(start_paused = true)]
async fn a_window_may_be_blocked() {
    let rule = Window::per_hour(10).utc();
    for (world, limiter) in in_both_modes(rule) {
        let banned = limiter.plan(rule.blocked()).unwrap();
        assert!(limiter.key(&KEY).n(4).ask().await.is_ok());
        let calls = world.calls.load(Relaxed);
        assert_eq!(limiter.key(&KEY).under(&banned).ask().await.unwrap_err().reason(), Reason::Blocked);
        limiter.set_rule(rule.blocked()).unwrap();
        assert_eq!(limiter.ask(&KEY).await.unwrap_err().reason(), Reason::Blocked);
        assert_eq!(world.calls.load(Relaxed), calls);
        let gold = limiter.plan(Window::per_hour(20).utc()).unwrap();
        assert_eq!(limiter.key(&KEY).under(&gold).ask().await.unwrap_err().reason(), Reason::Blocked);
        limiter.set_rule(rule).unwrap();
        assert_eq!(limiter.key(&KEY).n(6).ask().await.unwrap().remaining(), 0);
        assert_eq!(limiter.key(&KEY).n(10).under(&gold).ask().await.unwrap().remaining(), 0);
        let other = limiter.plan(Window::per_hour(5).blocked()).unwrap_err().to_string();
        assert!(other.contains("shares no count with 10/h fixed utc"), "{other}");
    }
}

/// A limiter may begin without a limit.
#[tokio::test(start_paused = true)]
async fn a_limiter_may_begin_unlimited_or_blocked() {
    for rule in [Quota::UNLIMITED, Quota::BLOCKED] {
        for (world, limiter) in in_both_modes(rule) {
            assert_eq!(limiter.ask(&KEY).await.is_ok(), rule == Quota::UNLIMITED);
            assert_eq!(limiter.known(&KEY).remaining(), rule.capacity());
            assert_eq!(world.calls.load(Relaxed), 0);
            limiter.set_rule(Quota::per_hour(3)).unwrap();
            assert_eq!(limiter.key(&KEY).n(3).ask().await.unwrap().remaining(), 0);
            assert!(limiter.ask(&KEY).await.is_err());
        }
    }
    let blocked = World::new(RTT).process(Window::per_hour(3).weighted().blocked()).build();
    assert!(blocked.map(drop).unwrap_err().to_string().contains("weighted"));
}
