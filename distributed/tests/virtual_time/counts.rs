//! The counts of tokens, and the keys of calls.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::Quota;
use tollgate_distributed::{Source, ask_all_of};

use crate::fleet::Fleet;
use crate::world::{Limiter, World};

const RTT: Duration = Duration::from_millis(2);

/// Returns the tokens that were granted, used and returned.
fn tokens(limiter: &Limiter) -> [u64; 3] {
    let stats = limiter.stats();
    [stats.tokens_granted, stats.tokens_used, stats.tokens_returned]
}

/// Tokens that another plan or quota sends back are not used.
#[tokio::test(start_paused = true)]
async fn tokens_that_go_back_are_not_used() {
    let world = World::new(RTT);
    let limiter = world.process(Quota::per_hour(100)).exact().build().unwrap();
    let plan = limiter.plan(Quota::per_hour(200)).unwrap();
    limiter.key(&7).n(10).ask().await.unwrap();
    limiter.refund(&7, 6);
    limiter.key(&7).under(&plan).ask().await.unwrap();
    // The six are on their way, or back: they count as neither used nor at hand.
    assert_eq!(tokens(&limiter)[..2], [11, 5]);
    sleep(RTT * 4).await;
    assert_eq!(tokens(&limiter), [11, 5, 6]);
    limiter.refund(&7, 1);
    limiter.set_rule(Quota::per_hour(50)).unwrap();
    assert_eq!(tokens(&limiter)[..2], [11, 4], "the limiter has no key");
    sleep(RTT * 4).await;
    assert_eq!(tokens(&limiter), [11, 4, 7]);
}

/// Tokens of a call that another quota overtakes go back, and count.
#[tokio::test(start_paused = true)]
async fn tokens_of_a_call_under_way_go_back() {
    let world = World::new(RTT);
    let limiter = world.process(Quota::per_hour(100)).exact().build().unwrap();
    limiter.try_acquire_local(&7).unwrap_err();
    sleep(RTT * 2).await;
    limiter.try_acquire_local(&7).unwrap();
    // A call asks for 10 tokens, and their request does not wait.
    assert!(limiter.key(&7).n(10).try_acquire_local().is_err());
    sleep(RTT / 2).await;
    let by_lease = limiter.stats().by_lease;
    limiter.set_rule(Quota::per_hour(100)).unwrap();
    sleep(RTT * 8).await;
    assert_eq!(tokens(&limiter), [11, 1, 10]);
    assert_eq!((by_lease, limiter.stats().by_lease), (3, 3), "a decision is counted once");
    assert_eq!(limiter.peek(&7).await.unwrap().remaining(), 99);
}

/// A request for several limits, in two stores, that ends before its answers gives all tokens back.
#[tokio::test(start_paused = true)]
async fn several_limits_that_are_dropped_give_their_tokens_back() {
    let world = World::new(RTT);
    let of = |name| world.process(Quota::per_hour(10)).name(name).exact().build().unwrap();
    let (user, tenant) = (of("user"), of("tenant"));
    let asked = tokio::spawn({
        let limits = [user.request(&1, 4), tenant.request(&1, 4)];
        async move { ask_all_of(&limits).await.is_ok() }
    });
    sleep(RTT / 2).await;
    asked.abort();
    sleep(RTT * 4).await;
    assert_eq!([tokens(&user)[1], tokens(&tenant)[1]], [0, 0]);
    // Idle tokens go back after a second.
    sleep(Duration::from_secs(3)).await;
    for limiter in [&user, &tenant] {
        assert_eq!(limiter.peek(&1).await.unwrap().remaining(), 10);
    }
}

/// A call has each key once, though a key without room has a slot for each request, and one with
/// another quota has two.
#[tokio::test(start_paused = true)]
async fn a_call_has_each_key_once() {
    let world = World::new(RTT);
    let limiter = world.process(Quota::per_hour(100)).max_keys(1).exact().build().unwrap();
    limiter.key(&1).n(2).ask().await.unwrap();
    let requests = (0..40).map(|_| {
        let limiter = limiter.clone();
        async move { limiter.ask(&2).await.unwrap().source() }
    });
    let sources = JoinSet::from_iter(requests).join_all().await;
    assert!(sources.iter().all(|source| *source == Source::Store), "{sources:?}");
    limiter.refund(&1, 2);
    limiter.set_rule(Quota::per_hour(90)).unwrap();
    assert_eq!(limiter.ask(&1).await.unwrap().source(), Source::Store);
    assert_eq!(limiter.stats().calls_answered, world.calls.load(Relaxed));
}

/// Returns the text of a number below a million.
fn grouped(number: f64) -> String {
    match number as u64 {
        number if number < 1_000 => number.to_string(),
        number => format!("{},{:03}", number / 1_000, number % 1_000),
    }
}

/// Prints README's table of calls, and compares it with README. In the exact mode each process has
/// at most a call for each token that the fleet is granted, and one a second. Leases have up to
/// three for each token.
#[tokio::test(start_paused = true)]
async fn the_table_of_calls() {
    const SECONDS: f64 = 5.0;
    let readme = include_str!("../../README.md");
    let (mut missing, mut table) = (0, String::new());
    for (quota, processes, demand) in [
        ("1000/s", 4, 500.0),
        ("1000/s", 4, 2_000.0),
        ("1000/s", 16, 2_000.0),
        ("200/s", 4, 800.0),
        ("100/s", 4, 2_000.0),
        ("10/s", 4, 2_000.0),
        ("10/s", 1, 2_000.0),
        ("1/h", 4, 2_000.0),
    ] {
        let fleet = Fleet::new(quota.parse().unwrap(), processes, demand / processes as f64, SECONDS);
        let runs = [fleet.run().await, fleet.leased(Duration::from_millis(100)).run().await];
        for (run, each) in runs.iter().zip([1, 3]) {
            let most = processes as u64 * (each * run.granted + SECONDS as u64);
            assert!(run.calls <= most, "{quota}, {processes} processes: {run:?}, at most {most} calls");
        }
        let per_second = |count: u64| (count as f64 / SECONDS).round();
        let numbers =
            [demand, per_second(runs[0].granted), per_second(runs[0].calls), per_second(runs[1].calls)];
        let [demand, granted, exact, leased] = numbers.map(grouped);
        let row = format!("| `{quota}` | {processes} | {demand} | {granted} | {exact} | {leased} |\n");
        missing += u32::from(!readme.contains(&row));
        table += &row;
    }
    println!("{table}");
    assert_eq!(missing, 0, "rows are not in README.md:\n{table}");
}
