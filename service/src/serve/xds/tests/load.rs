//! Updates under load, and the time of a large one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::control_plane::{World, limited, update, yearly};
use crate::serve::messages::Code;

/// Each answer is an acceptance or a refusal, each call is decided, and each hit is counted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_thousand_updates_under_load_lose_no_call_and_no_count() {
    const LIMIT: u32 = 1_000_000_000;
    let world = Arc::new(World::new(&[]));
    world.load(update("0", &[yearly("shop", "user", LIMIT)])).unwrap();
    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let callers: Vec<_> = (0..2)
        .map(|_| {
            let (world, stop, asked) = (world.clone(), stop.clone(), asked.clone());
            tokio::spawn(async move {
                while !stop.load(Relaxed) {
                    assert_eq!(world.ask("shop", &[("user", "a")], 1).await.0, Code::Ok);
                    asked.fetch_add(1, Relaxed);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let mut pipes = world.follow();
    let mut stream = pipes.stream().await;
    stream.request().await.unwrap();
    let (mut accepted, mut refused) = (0, 0);
    for turn in 1..=1_000_u32 {
        let version = turn.to_string();
        let mut configs = vec![yearly("shop", "user", LIMIT - turn % 7), yearly("mall", "user", turn)];
        if turn % 3 == 0 {
            configs[1].descriptors[0].key.clear();
        }
        let answer = stream.update(&update(&version, &configs)).await;
        assert_eq!(answer.response_nonce, format!("n{version}"));
        match answer.error_detail {
            None => (accepted, _) = (accepted + 1, assert_eq!(answer.version_info, version)),
            Some(detail) => {
                assert!(detail.message.starts_with("mall-config, descriptor 1: descriptor has empty key"));
                assert_ne!(answer.version_info, version);
                refused += 1;
            }
        }
    }
    assert_eq!((accepted, refused), (667, 333));
    stop.store(true, Relaxed);
    for caller in callers {
        caller.await.expect("each call is decided");
    }
    // The last update that was accepted is the thousandth.
    let limit = LIMIT - 1_000 % 7;
    let left = world.ask("shop", &[("user", "a")], 0).await.1;
    assert_eq!(limit - left, asked.load(Relaxed));
    assert_eq!(world.counted("config_load_success"), 1 + 667);
    assert_eq!(world.counted("config_load_error"), 333);
}

/// Prints the time from a message to its acceptance, of which the goal is 100 ms, and the slowest
/// call of a thousand beside one of before: at most 2 times as slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: cargo test --release xds -- --ignored --nocapture"]
async fn the_time_of_ten_thousand_rules() {
    let world = Arc::new(World::new(&[]));
    let mut pipes = world.follow();
    let mut stream = pipes.stream().await;
    stream.request().await.unwrap();
    let update = |turn: u32| {
        let mut config = yearly("shop", "user", 1_000_000_000);
        config.descriptors.extend((0..10_000).map(|rule| limited("path", &format!("/{rule}"), turn)));
        update(&turn.to_string(), &[config])
    };
    stream.update(&update(0)).await;
    let (world, stop) = (&world, &AtomicBool::new(false));
    let slowest = || async move {
        let mut calls = Vec::new();
        while !stop.load(Relaxed) || calls.len() < 10_000 {
            let began = Instant::now();
            assert_eq!(world.ask("shop", &[("user", "a")], 1).await.0, Code::Ok);
            calls.push(began.elapsed());
            tokio::task::yield_now().await;
        }
        calls.sort_unstable();
        calls[calls.len() * 999 / 1_000]
    };
    let calm = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        stop.store(true, Relaxed);
    };
    let (before, ()) = tokio::join!(slowest(), calm);
    stop.store(false, Relaxed);
    let mut times = Vec::new();
    let updates = async {
        for turn in 1..=20 {
            let update = update(turn);
            let began = Instant::now();
            assert_eq!(stream.update(&update).await.error_detail, None);
            times.push(began.elapsed());
        }
        stop.store(true, Relaxed);
    };
    let (during, ()) = tokio::join!(slowest(), updates);
    times.sort_unstable();
    println!("10,000 rules, from the message to the acceptance: {:?} (least {:?})", times[10], times[0]);
    println!("the slowest call of 1,000: {before:?} before, {during:?} during the updates");
}
