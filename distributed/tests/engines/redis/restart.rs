//! A server that restarts without its buckets.

use std::time::Duration;

use tollgate_distributed::{Amount, CountSpec, Law, Op, RedisStore, Store, StoreErrorKind};
use tollgate_test_servers::redis::{Data, Redis};

use super::engine::{ALL, ask, heal, per_second, server};
use crate::engine::{exactly, now_us};

/// A quota whose bucket fills in 100 s.
fn slow() -> tollgate_distributed::Spec {
    per_second(1_000, 100_000)
}

#[tokio::test]
async fn a_restart_without_data_grants_a_second_burst() {
    let Some(mut server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    assert_eq!(ask(&store, "key", slow(), ALL).await.unwrap().granted, 100_000);
    server.restart(Data::Empty).unwrap();
    heal(&store, "other", slow()).await;
    assert_eq!(ask(&store, "key", slow(), ALL).await.unwrap().granted, 100_000);
}

#[tokio::test]
async fn with_the_guard_two_lives_of_a_server_grant_the_burst_and_the_rate() {
    let Some(mut server) = server() else { return };
    let full = RedisStore::connect(&server.url()).await.unwrap();
    let store = RedisStore::builder().cold_start_guard(true).connect(&server.url()).await.unwrap();
    wait_for_a_part_of_a_second(400_000..500_000).await;
    let first = ask(&full, "key", slow(), ALL).await.unwrap();
    server.restart(Data::Empty).unwrap();
    heal(&store, "other", slow()).await;
    let mut granted = first.granted;
    // The time of the start is known to a second.
    let last = loop {
        let answer = ask(&store, "key", slow(), ALL).await.unwrap();
        granted += answer.granted;
        if granted > first.granted {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let came = slow().capacity() + (last.now_us - first.now_us) * slow().per_tick();
    let taken = granted as u64 * slow().per_token();
    assert!(taken <= came, "{taken} of {came} credits");
    later_tokens_come_at_the_rate(&store, &server).await;
}

/// A restart is in the same second then, and a start that is taken too early would grant tokens.
async fn wait_for_a_part_of_a_second(micros: std::ops::Range<u64>) {
    while !micros.contains(&(now_us() % 1_000_000)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A missing bucket is full once the server has run for its time to fill. A stored bucket has its
/// own level.
async fn later_tokens_come_at_the_rate(store: &RedisStore, server: &Redis) {
    let soon = per_second(10_000, 10);
    while server.info("server", "uptime_in_seconds").unwrap() == "0" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut full = ask(store, "soon", soon, ALL).await.unwrap().granted;
    for key in 0..1_000 {
        if full == 10 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        full = ask(store, &format!("soon {key}"), soon, ALL).await.unwrap().granted;
    }
    assert_eq!(full, 10);
    let first = ask(store, "never full", slow(), ALL).await.unwrap();
    let again = ask(store, "never full", slow(), ALL).await.unwrap();
    let came = (again.now_us - first.now_us) * slow().per_tick() + slow().per_token();
    assert!(again.granted as u64 * slow().per_token() <= came, "{first:?} {again:?}");
}

#[tokio::test]
async fn data_that_is_kept_is_the_same_bucket() {
    let Some(_) = server() else { return };
    let mut server = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]).unwrap();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    assert_eq!(ask(&store, "key", slow(), ALL).await.unwrap().granted, 100_000);
    server.restart(Data::Kept).unwrap();
    heal(&store, "other", slow()).await;
    assert!(ask(&store, "key", slow(), ALL).await.unwrap().granted < 50_000);
}

#[tokio::test]
async fn a_lazy_store_starts_before_its_server() {
    let Some(mut server) = server() else { return };
    let (url, spec) = (server.url(), per_second(1, 5));
    server.process().kill();
    let connected = RedisStore::connect(&url).await;
    assert_eq!(connected.unwrap_err().kind(), StoreErrorKind::Refused);
    let store = RedisStore::builder().lazy(&url).unwrap();
    for _ in 0..3 {
        assert_eq!(ask(&store, "key", spec, ALL).await.unwrap_err().kind(), StoreErrorKind::Refused);
    }
    server.restart(Data::Empty).unwrap();
    assert_eq!(ask(&store, "key", spec, ALL).await.unwrap().granted, 5);
}

/// The window of the start is used up, whatever its kind. Later ones have their limit.
#[tokio::test]
async fn with_the_guard_two_lives_of_a_server_grant_the_limit_of_a_window() {
    let Some(mut server) = server() else { return };
    let store = RedisStore::builder().cold_start_guard(true).connect(&server.url()).await.unwrap();
    let without = RedisStore::connect(&server.url()).await.unwrap();
    let rules = ["5/d fixed", "5/d fixed utc", "5/month fixed utc", "5/d sliding"];
    let specs: Vec<CountSpec> = rules
        .iter()
        .map(|rule| CountSpec::new(rule.parse().unwrap(), Duration::from_micros(now_us())).unwrap())
        .collect();
    let soon = CountSpec::new("5/100ms fixed".parse().unwrap(), Duration::ZERO).unwrap();
    server.restart(Data::Empty).unwrap();
    heal(&store, "other", slow()).await;
    heal(&without, "other", slow()).await;
    for (rule, spec) in rules.iter().zip(&specs) {
        let granted = ask(&store, rule, *spec, ALL).await.unwrap().granted;
        assert_eq!((granted, ask(&without, rule, *spec, ALL).await.unwrap().granted), (0, 5), "{rule}");
        // A count that is there has its own numbers.
        let answer = ask(&store, rule, *spec, ALL).await.unwrap();
        assert_eq!((answer.granted, answer.credits), (0, 0), "{rule}");
    }
    let granted = loop {
        match ask(&store, "soon", soon, ALL).await.unwrap().granted {
            0 => tokio::time::sleep(Duration::from_millis(5)).await,
            granted => break granted,
        }
    };
    assert_eq!(granted, 5);
}

/// Calls that are granted together see each missing bucket and count as a call alone does.
#[tokio::test]
async fn with_the_guard_calls_together_find_nothing_that_calls_alone_would_not() {
    let Some(mut server) = server() else { return };
    let store = RedisStore::builder().cold_start_guard(true).connect(&server.url()).await.unwrap();
    server.restart(Data::Empty).unwrap();
    heal(&store, "other", slow()).await;
    let count = |rule: &str| -> Law {
        CountSpec::new(rule.parse().unwrap(), Duration::from_micros(now_us())).unwrap().into()
    };
    let (many, fast) = (Law::from(slow()), Law::from(per_second(10_000, 10)));
    let (day, soon) = (count("5/d fixed utc"), count("5/100ms fixed"));
    // Once they have run, the fast bucket is full and the short window is over.
    let both = async || {
        let mut ops = [Op::new(b"fast", fast, exactly(10)), Op::new(b"soon", soon, exactly(5))];
        let refused = store.acquire_all(&mut ops).await.unwrap();
        (refused, ops.map(|op| op.answer.granted))
    };
    let mut refused = 0;
    let granted = loop {
        match both().await {
            (None, granted) => break granted,
            (Some(_), granted) => assert_eq!(granted, [0, 0]),
        }
        refused += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    println!("{refused} refusals, then {granted:?}");
    assert_eq!(granted, [10, 5]);
    // The day of the start is used up, for a fast bucket beside it as well.
    for (first, second) in [(day, fast), (fast, day), (day, soon), (soon, day)] {
        let keys = [first, second].map(|law| if law == day { b"day".as_slice() } else { b"beside" });
        let mut ops = [Op::new(keys[0], first, exactly(1)), Op::new(keys[1], second, exactly(1))];
        let which = usize::from(second == day);
        assert_eq!(store.acquire_all(&mut ops).await.unwrap(), Some(which), "{ops:?}");
        let [day, beside] = [which, 1 - which].map(|at| ops[at].answer);
        assert_eq!((day.granted, day.credits, beside.granted), (0, 0, 0), "{ops:?}");
        assert!(beside.credits > 0, "{ops:?}");
    }
    // A stored bucket has its own level, and a missing one that of a call alone.
    let mut ops = [Op::new(b"fast", fast, exactly(1)), Op::new(b"slow", many, exactly(100_000))];
    assert_eq!(store.acquire_all(&mut ops).await.unwrap(), Some(1), "{ops:?}");
    let alone = ask(&store, "slow", slow(), Amount::default()).await.unwrap();
    // The time of the start is known to a second.
    let later = (alone.now_us - ops[1].answer.now_us + 1_000_000) * slow().per_tick();
    let apart = alone.credits.abs_diff(ops[1].answer.credits);
    assert!(ops[1].answer.credits > 0 && apart <= later, "{ops:?} {alone:?}");
}
