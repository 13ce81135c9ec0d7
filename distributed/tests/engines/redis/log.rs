//! The sliding log.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tokio::task::JoinSet;
use tollgate::{Clock, Quota, Reason};
use tollgate_distributed::{
    Amount, DistributedBuilder, DistributedLimiter, OnOutage, Op, RedisStore, SlidingLog, Source, Spec,
    Store, StoreErrorKind,
};
use tollgate_test_servers::redis::Redis;

use super::engine::{connection, server};

type Builder = DistributedBuilder<String, SlidingLog>;

async fn store(server: &Redis) -> RedisStore {
    RedisStore::connect(&server.url()).await.unwrap()
}

/// Returns a log that waits for a busy server.
fn log(store: &RedisStore, limit: u64, window: Duration) -> Builder {
    SlidingLog::builder(store, limit, window).unwrap().name("log").deadline(Duration::from_secs(10))
}

/// Asks a log of its own, which knows no earlier answer.
async fn asks(store: &RedisStore, limit: u64, window: Duration) -> Result<u64, Duration> {
    match log(store, limit, window).build().unwrap().ask("key").await {
        Ok(granted) => Ok(granted.remaining()),
        Err(denied) if denied.source() == Source::Store => Err(denied.retry_after().unwrap()),
        Err(denied) => panic!("{denied:?}"),
    }
}

fn entries(server: &Redis, key: &str) -> u64 {
    redis::cmd("ZCARD").arg(key).query(&mut connection(server)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_at_once_are_granted_to_the_limit_and_leave_an_entry_each() {
    let Some(server) = server() else { return };
    let store = store(&server).await;
    let logs = [(); 4].map(|()| log(&store, 40, Duration::from_secs(60)).build().unwrap());
    let calls: Vec<_> = (0..100)
        .map(|call| {
            let log = logs[call % 4].clone();
            tokio::spawn(async move { log.ask("key").await })
        })
        .collect();
    let mut granted = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(_) => granted += 1,
            Err(denied) => {
                let wait = denied.retry_after().unwrap();
                assert!(wait > Duration::ZERO && wait <= Duration::from_secs(60), "{denied:?}");
            }
        }
    }
    assert_eq!((granted, entries(&server, "tollgate::log:60000000:log:key")), (40, 40));
}

#[tokio::test]
async fn no_window_has_more_than_the_limit_and_a_refused_call_is_granted_when_it_says() {
    let Some(server) = server() else { return };
    let window = Duration::from_millis(200);
    let log = log(&store(&server).await, 3, window).build().unwrap();
    let (begin, mut grants, mut refused) = (Instant::now(), Vec::new(), false);
    while grants.len() < 12 {
        let sent = begin.elapsed();
        match log.ask("key").await {
            Ok(_) => {
                grants.push((sent, begin.elapsed()));
                refused = false;
            }
            Err(denied) => {
                assert!(!refused, "not granted when it said");
                refused = denied.source() == Source::Store;
                let wait = denied.retry_after().unwrap();
                assert!(wait > Duration::ZERO && wait <= window, "{denied:?}");
                tokio::time::sleep(wait).await;
            }
        }
    }
    assert!(entries(&server, "tollgate::log:200000:log:key") <= 3);
    for four in grants.windows(4) {
        let span = four[3].1 - four[0].0;
        assert!(span >= window, "four calls in {span:?}");
    }
}

#[tokio::test]
async fn a_refused_call_writes_nothing_and_a_log_expires_after_its_window() {
    let Some(server) = server() else { return };
    let (store, window) = (store(&server).await, Duration::from_secs(20));
    assert_eq!(asks(&store, 1, window).await, Ok(0));
    let mut raw = connection(&server);
    let ttl: i64 = redis::cmd("PTTL").arg("tollgate::log:20000000:log:key").query(&mut raw).unwrap();
    assert!((20_000..=21_002).contains(&ttl), "{ttl}");
    let dirty = server.info("persistence", "rdb_changes_since_last_save").unwrap();
    asks(&store, 1, window).await.unwrap_err();
    assert_eq!(server.info("persistence", "rdb_changes_since_last_save").unwrap(), dirty);
}

#[tokio::test]
async fn a_lower_limit_counts_the_calls_of_the_higher_one() {
    let Some(server) = server() else { return };
    let (store, window) = (store(&server).await, Duration::from_secs(10));
    for pause in [0, 60, 60] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        asks(&store, 3, window).await.unwrap();
    }
    // Two of three must leave the window.
    let begin = Instant::now();
    let first = asks(&store, 3, window).await.unwrap_err();
    let second = asks(&store, 2, window).await.unwrap_err() + begin.elapsed();
    assert!(second.saturating_sub(first) > Duration::from_millis(50), "{first:?} {second:?}");
}

/// Logs of another window or of another name are beside each other, and so are buckets.
#[tokio::test]
async fn logs_and_limiters_on_one_key_do_not_touch_each_other() {
    let Some(server) = server() else { return };
    let store = store(&server).await;
    let (minute, blink) = (Duration::from_secs(60), Duration::from_millis(20));
    let minutes = log(&store, 5, minute).build().unwrap();
    let other = log(&store, 5, minute).name("other").build().unwrap();
    let bucket = DistributedLimiter::<String, _>::builder(Quota::per_hour(5), store.clone()).name("log");
    let bucket = bucket.exact().build().unwrap();
    let mut granted = [0; 3];
    for _ in 0..3 {
        for _ in 0..6 {
            granted[0] += u64::from(minutes.ask("key").await.is_ok());
            granted[1] += u64::from(other.ask("key").await.is_ok());
            granted[2] += u64::from(bucket.ask("key").await.is_ok());
        }
        // Two calls of the short log, of which the second one deletes the first.
        asks(&store, 100, blink).await.unwrap();
        tokio::time::sleep(blink).await;
        assert_eq!(asks(&store, 100, blink).await, Ok(99));
    }
    assert_eq!(granted, [5, 5, 5]);
}

#[tokio::test]
async fn bad_limits_are_refused_by_name_and_a_bad_key_by_the_policy() {
    let Some(server) = server() else { return };
    let (store, second) = (store(&server).await, Duration::from_secs(1));
    let error = |limit, window| {
        SlidingLog::builder::<String>(&store, limit, window).map(drop).unwrap_err().to_string()
    };
    assert_eq!(error(10_001, second), "a log of 10001 calls is not between 1 and 10000");
    assert_eq!(error(0, second), "a log of 0 calls is not between 1 and 10000");
    let window = "is not between 1ms and 3162240000s";
    assert_eq!(error(1, Duration::from_micros(999)), format!("a window of 999µs {window}"));
    assert!(error(1, Duration::MAX).contains(window));
    log(&store, 10_000, Duration::from_millis(1)).build().unwrap();
    log(&store, 9_999, Duration::from_secs(100 * 366 * 86_400)).build().unwrap();

    server.command(&["SET", "tollgate::log:1000000:log:key", "text"]).unwrap();
    let deny = log(&store, 1, second).on_outage(OnOutage::Deny).build().unwrap();
    let denied = deny.ask("key").await.unwrap_err();
    assert_eq!((denied.source(), denied.reason()), (Source::FailOpen, Reason::Unavailable));
    // Leases would be used later than the log counts them. The other calls of a batch are decided.
    let spec = |limit, debt| Spec::new(Quota::per_second(limit), debt).unwrap();
    let specs = [("a", spec(5, 1)), ("b", spec(5, 0)), ("c", spec(10_001, 0))];
    let one = Amount { min: 1, max: 1, spent: 0, of_us: 0 };
    let mut ops = specs.map(|(key, spec)| Op::new(key.as_bytes(), spec, one));
    let error = SlidingLog::new(&store).acquire(&mut ops).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Permanent, "{error}");
    assert_eq!(ops.map(|op| (op.answer.granted, op.answer.now_us > 0)), [(0, false), (1, true), (0, false)]);
}

/// Four processes drop requests, refund grants, and have answers after the deadline. Each grant
/// that is used lies between two readings of a clock. A token comes back long before its window
/// ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_has_more_than_the_limit_in_disorder() {
    let Some(server) = server() else { return };
    let store =
        RedisStore::builder().response_timeout(Duration::from_millis(100)).lazy(&server.url()).unwrap();
    let (begin, window) = (Instant::now(), Duration::from_secs(1));
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let log = log(&store, 100, window).deadline(Duration::from_millis(1)).on_outage(OnOutage::Deny);
        let log = log.probes(Duration::from_millis(1), Duration::from_millis(2)).build().unwrap();
        for task in 0..4 {
            tasks.spawn(in_disorder(log.clone(), task, begin, window * 11 / 5));
        }
    }
    let used: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    let inside = |from: Duration| used.iter().filter(move |of| of.0 >= from && of.1 < from + window);
    let most = used.iter().map(|grant| inside(grant.0).count()).max();
    println!("{} calls are used, at most {most:?} of them in a window", used.len());
    assert!(most.is_some_and(|most| most <= 100), "{most:?} of {}", used.len());
}

/// Asks for a time. Returns the times before and after each grant that is used.
async fn in_disorder(
    log: DistributedLimiter<String, SlidingLog>,
    task: u64,
    begin: Instant,
    time: Duration,
) -> Vec<(Duration, Duration)> {
    let mut used = Vec::new();
    for request in task.. {
        let sent = begin.elapsed();
        if sent > time {
            break;
        }
        // Of eight requests two are dropped, and one gives its token back.
        let patience = if request % 8 < 2 { request * 37 % 1_000 } else { 10_000_000 };
        let asked = tokio::time::timeout(Duration::from_micros(patience), log.ask("key"));
        match asked.await {
            Ok(Ok(_)) if request % 8 < 3 => log.refund("key", 1),
            Ok(Ok(_)) => used.push((sent, begin.elapsed())),
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(request % 4)).await;
    }
    used
}

/// Tokens that come back are those of the oldest calls, and spent ones are entered afterwards.
#[tokio::test]
async fn refunds_and_charges_reach_the_log() {
    let Some(server) = server() else { return };
    let (store, hour) = (store(&server).await, Duration::from_secs(3_600));
    let log = log(&store, 10, hour).build().unwrap();
    assert_eq!(log.ask_n("key", 4).await.unwrap().remaining(), 6);
    log.refund("key", 3);
    log.charge("other", 2);
    log.shutdown().await;
    assert_eq!(entries(&server, "tollgate::log:3600000000:log:key"), 1);
    assert_eq!(entries(&server, "tollgate::log:3600000000:log:other"), 2);
}

/// The bytes of a bucket, and of a call in a log: README has these figures.
#[tokio::test]
async fn a_call_in_a_log_takes_37_bytes_and_140_of_more_than_128() {
    let Some(server) = server() else { return };
    let store = store(&server).await;
    let bucket = DistributedLimiter::<String, _>::builder(Quota::per_hour(5), store.clone()).name("clients");
    bucket.exact().build().unwrap().ask("127.0.0.1").await.unwrap();
    let mut raw = connection(&server);
    let mut bytes = |key: &str| -> u64 {
        redis::cmd("MEMORY").arg(&["USAGE", key, "SAMPLES", "0"]).query(&mut raw).unwrap()
    };
    let mut sizes = vec![bytes("tollgate:clients:127.0.0.1")];
    let log = log(&store, 1_000, Duration::from_secs(3_600)).build().unwrap();
    for calls in [100, 900] {
        for _ in 0..calls {
            log.ask("key").await.unwrap();
        }
        sizes.push(bytes("tollgate::log:3600000000:log:key").div_ceil(if calls == 100 {
            100
        } else {
            1_000
        }));
    }
    println!("{sizes:?} bytes");
    let most = [104, 37, 140];
    assert!(sizes.iter().zip(most).all(|(size, most)| (most * 3 / 4..=most).contains(size)), "{sizes:?}");
}

/// Runs a log in virtual time. A server that is stopped costs one deadline for each of the calls
/// that open the breaker, and no later request waits. The log has the calls of the outage later.
#[tokio::test]
async fn a_stopped_server_costs_a_deadline_a_few_times_and_then_the_policy_decides_at_once() {
    let Some(mut server) = server() else { return };
    let (store, hour) = (store(&server).await, Duration::from_secs(3_600));
    let clock = || {
        let begun = tokio::time::Instant::now();
        Clock::from_fn(move || begun.elapsed())
    };
    let logs = [OnOutage::Deny, OnOutage::Allow, OnOutage::Local { share: 1.0 }].map(|policy| {
        let log = SlidingLog::builder::<String>(&store, 5, hour).unwrap().clock(clock());
        log.name(format!("{policy:?}").replace(":", "")).on_outage(policy).build().unwrap()
    });
    for log in &logs {
        assert_eq!(log.ask("key").await.unwrap().source(), Source::Store);
    }
    server.process().freeze().unwrap();
    tokio::time::pause();
    let (mut granted, mut waits) = ([0; 3], [0; 3]);
    for call in 0..60 {
        for (which, log) in logs.iter().enumerate() {
            let begun = tokio::time::Instant::now();
            let decision = log.ask("key").await;
            let wait = begun.elapsed().as_millis();
            assert!(wait == 0 || call < 40 && (50..=51).contains(&wait), "call {call} waited for {wait} ms");
            waits[which] += u32::from(wait > 0);
            granted[which] += u32::from(decision.is_ok());
            if let Err(denied) = decision {
                let sources = [Source::FailOpen, Source::Fallback, Source::Shadow];
                assert!(sources.contains(&denied.source()), "{denied:?}");
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(waits.iter().all(|waits| (1..=6).contains(waits)), "{waits:?}");
    assert!(logs.iter().all(|log| log.stats().breaker_opened == 1));
    assert_eq!(granted, [0, 60, 4], "of 4 that were left");

    server.process().thaw().unwrap();
    tokio::time::resume();
    for log in &logs {
        while log.stats().breaker_open {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let source = log.ask("fresh").await.map_or_else(|denied| denied.source(), |granted| granted.source());
        assert_eq!(source, Source::Store);
    }
    // The calls of the outage are entered by the next call, down to a debt of one limit.
    while entries(&server, "tollgate::log:3600000000:Allow:key") < 10 {
        let _ = logs[1].ask("key").await;
    }
}

/// The times of the calls in a log.
#[derive(Default)]
struct Model(Vec<u64>);

/// Walks 3,000 steps of two logs, and compares each answer with a list of times.
#[tokio::test]
async fn each_step_is_that_of_a_list_of_times() {
    let Some(server) = server() else { return };
    let logs = SlidingLog::new(&store(&server).await);
    let mut runner = TestRunner::deterministic();
    let amounts = prop_oneof![
        6 => (0..4_i64, 0..4_i64).prop_map(|(min, more)| (min, min + more, 0)),
        1 => (1..5_i64).prop_map(|back| (0, -back, 0)),
        1 => (0..2_i64, 1..9_u64).prop_map(|(max, spent)| (max, max, spent)),
    ];
    let steps = (1..7_u64, 0..2_usize, amounts).boxed();
    let windows = [4_000, 30_000];
    let mut models = [Model::default(), Model::default()];
    let mut refused = 0;
    for step in 0..3_000 {
        let (limit, which, (min, max, spent)) = steps.new_tree(&mut runner).unwrap().current();
        let (window, Model(times)) = (windows[which], &mut models[which]);
        let quota = Quota::per(limit, Duration::from_micros(window));
        let spec = Spec::new(quota, 0).unwrap();
        let mut ops = [Op::new(b"log:key", spec, Amount { min, max, spent, of_us: 0 })];
        logs.acquire(&mut ops).await.unwrap();
        let answer = ops[0].answer;
        times.retain(|time| time + window > answer.now_us);

        let debt = spent.min((2 * limit).saturating_sub(times.len() as u64));
        times.extend((0..debt).map(|_| answer.now_us));
        let there = (limit as i64 - times.len() as i64).max(0);
        let granted = if max < 0 {
            max
        } else if there >= min {
            max.min(there)
        } else {
            0
        };
        times.extend((0..granted).map(|_| answer.now_us));
        times.drain(..times.len().min((-granted).max(0) as usize));
        assert_eq!(answer.granted, granted, "step {step}: {ops:?}");

        // The time until the log has room.
        let left = limit as i64 - times.len() as i64;
        let is_refused = granted == 0 && max > 0;
        let need = if is_refused { min } else { left + 1 };
        let room = match usize::try_from(need - left).unwrap_or(0) {
            0 => 0,
            leaves if leaves <= times.len() => times[leaves - 1] + window - answer.now_us,
            _ if times.is_empty() => 0,
            _ => window,
        };
        let wait = spec.wait(answer.credits, need * spec.per_token() as i64).as_micros() as u64;
        let token = spec.wait(0, spec.per_token() as i64).as_micros() as u64;
        let deepest = 2 * window;
        if is_refused && min <= limit as i64 {
            refused += 1;
            assert!(wait.abs_diff(room) <= spec.tick_us(), "step {step}: {wait}, {room}, {ops:?}");
        } else if !is_refused && left < limit as i64 && left >= -(limit as i64) {
            assert_eq!(wait, room.clamp(1, token).min(deepest), "step {step}: {ops:?}");
        }
    }
    assert!((500..2_500).contains(&refused), "{refused} calls were refused");
}

#[cfg(feature = "http")]
#[tokio::test]
async fn a_layer_takes_a_log() {
    let store = RedisStore::builder().lazy("redis://localhost").unwrap();
    let log = log(&store, 5, Duration::from_secs(60)).build().unwrap();
    let limiter = tollgate_http::AnyLimiter::from(log.clone());
    assert_eq!(log.rule().to_string(), "5/m burst 5");
    drop(limiter);
}
