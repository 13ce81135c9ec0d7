//! The sliding log.

use std::time::{Duration, Instant};

use tollgate::Quota;
use tollgate_distributed::{DistributedLimiter, RedisStore, SlidingLog, Source, StoreErrorKind};

use crate::helpers::{connection, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_at_once_are_granted_to_the_limit_and_leave_an_entry_each() {
    let Some(server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let log = SlidingLog::new(&store, 40, Duration::from_secs(60)).unwrap();
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let log = log.clone();
            tokio::spawn(async move { log.try_acquire("key").await.unwrap() })
        })
        .collect();
    let mut granted = Vec::new();
    for call in calls {
        let answer = call.await.unwrap();
        if answer.granted {
            assert_eq!(answer.retry_after, Duration::ZERO);
            granted.push(answer.remaining);
        } else {
            let window = Duration::from_secs(50)..=Duration::from_secs(60);
            assert!(answer.remaining == 0 && window.contains(&answer.retry_after), "{answer:?}");
        }
    }
    granted.sort_unstable();
    assert_eq!(granted, (0..40).collect::<Vec<_>>());
    let entries: u64 = redis::cmd("ZCARD").arg("tollgate::log:key").query(&mut connection(&server)).unwrap();
    assert_eq!(entries, 40);
}

#[tokio::test]
async fn no_window_has_more_than_the_limit_and_a_refused_call_is_granted_when_it_says() {
    let Some(server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let window = Duration::from_millis(200);
    let log = SlidingLog::new(&store, 3, window).unwrap();
    let (begin, mut grants) = (Instant::now(), Vec::new());
    while grants.len() < 12 {
        let sent = begin.elapsed();
        let answer = log.try_acquire("key").await.unwrap();
        if answer.granted {
            grants.push((sent, begin.elapsed()));
        } else {
            assert!(answer.retry_after > Duration::ZERO && answer.retry_after <= window, "{answer:?}");
            tokio::time::sleep(answer.retry_after).await;
            assert!(log.try_acquire("key").await.unwrap().granted, "not granted when it said");
            grants.push((sent + answer.retry_after, begin.elapsed()));
        }
    }
    let kept: u64 = redis::cmd("ZCARD").arg("tollgate::log:key").query(&mut connection(&server)).unwrap();
    assert!(kept <= 3, "{kept} entries are kept");
    for four in grants.windows(4) {
        let span = four[3].1 - four[0].0;
        assert!(span >= window, "four calls in {span:?}");
    }
}

#[tokio::test]
async fn a_refused_call_writes_nothing_and_a_log_expires_after_its_window() {
    let Some(server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let log = SlidingLog::new(&store, 1, Duration::from_secs(20)).unwrap();
    assert!(log.try_acquire("key").await.unwrap().granted);
    let mut raw = connection(&server);
    let ttl: i64 = redis::cmd("PTTL").arg("tollgate::log:key").query(&mut raw).unwrap();
    assert!((20_000..=21_002).contains(&ttl), "{ttl}");
    let dirty = server.info("persistence", "rdb_changes_since_last_save").unwrap();
    assert!(!log.try_acquire("key").await.unwrap().granted);
    assert_eq!(server.info("persistence", "rdb_changes_since_last_save").unwrap(), dirty);
}

#[tokio::test]
async fn a_lower_limit_counts_the_calls_of_the_higher_one() {
    let Some(server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let window = Duration::from_secs(10);
    let (high, low) =
        (SlidingLog::new(&store, 3, window).unwrap(), SlidingLog::new(&store, 2, window).unwrap());
    for pause in [0, 60, 60] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        assert!(high.try_acquire("key").await.unwrap().granted);
    }
    // Two of three must leave the window.
    let (first, second) = (high.try_acquire("key").await.unwrap(), low.try_acquire("key").await.unwrap());
    let later = second.retry_after.saturating_sub(first.retry_after);
    assert!(later > Duration::from_millis(50) && !second.granted, "{first:?} {second:?}");
}

#[tokio::test]
async fn bad_limits_are_refused_by_name_and_bad_keys_by_the_server() {
    let Some(server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let second = Duration::from_secs(1);
    let error = |limit, window| SlidingLog::new(&store, limit, window).unwrap_err().to_string();
    assert_eq!(error(10_001, second), "a log of 10001 calls is not between 1 and 10000");
    assert_eq!(error(0, second), "a log of 0 calls is not between 1 and 10000");
    assert_eq!(error(1, Duration::ZERO), "a window of 0ns is not between a microsecond and 100 years");
    assert!(SlidingLog::new(&store, 10_000, second).is_ok());
    server.command(&["SET", "tollgate::log:key", "text"]).unwrap();
    let log = SlidingLog::new(&store, 1, second).unwrap();
    let error = log.try_acquire("key").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Permanent, "{error}");
}

/// A log and a limiter of the name `log` have keys of their own.
#[tokio::test]
async fn a_limiter_of_the_name_log_shares_no_key_with_a_log() {
    let Some(server) = server() else { return };
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let log = SlidingLog::new(&store, 2, Duration::from_secs(10)).unwrap();
    let builder = DistributedLimiter::<String, _>::builder(Quota::per_hour(2), store).name("log");
    let limiter = builder.exact().build().unwrap();
    for _ in 0..2 {
        assert!(log.try_acquire("key").await.unwrap().granted);
        assert_eq!(limiter.ask("key").await.unwrap().source(), Source::Store);
    }
    assert!(!log.try_acquire("key").await.unwrap().granted && limiter.ask("key").await.is_err());
}
