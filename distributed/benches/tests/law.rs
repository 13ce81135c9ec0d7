//! Every contender limits: its grants on a real server are those of the law, and those that it is
//! known to grant beyond.

use std::sync::Arc;
use std::time::Duration;

use tollgate::Quota;
use tollgate_distributed_benches::contenders::{ON_REDIS, PROCESSES, on_redis};
use tollgate_distributed_benches::limit::Setup;
use tollgate_distributed_benches::load::{Lap, Load, TASKS};
use tollgate_test_servers::redis::{Redis, redis_is_installed};

const RATE: u64 = 200;
const TIME: Duration = Duration::from_millis(1_500);

/// Returns the tokens that a contender may grant beyond the burst and the rate.
fn surplus(name: &str) -> u64 {
    match name {
        // Each task has a request between its check and its count, and a second window begins.
        "check, then count" => RATE + (TASKS * PROCESSES) as u64,
        "counter" => RATE,
        _ => 0,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_contender_limits() {
    if !redis_is_installed() {
        return;
    }
    let server = Redis::start(&[]).unwrap();
    let mut fleets = Vec::new();
    for (place, name) in ON_REDIS.into_iter().enumerate() {
        let setup = Setup { quota: Quota::per_second(RATE), url: server.url(), name: format!("law{place}") };
        fleets.push(on_redis(name, &setup).await.unwrap());
    }
    // All at the same time, each with four times the rate.
    let load = Load { keys: Arc::from(["one".to_owned()]), time: TIME, rate: Some(4.0 * RATE as f64) };
    let laps = fleets.iter().map(|fleet| fleet.lap(&load)).collect::<Vec<_>>();
    let [one, two, three, four, five, six] = <[_; ON_REDIS.len()]>::try_from(laps).ok().unwrap();
    let laps: [Lap; ON_REDIS.len()] = tokio::join!(one, two, three, four, five, six).into();
    for ((name, fleet), lap) in ON_REDIS.into_iter().zip(&fleets).zip(laps) {
        let (rate, granted) = (RATE as f64, lap.granted as f64);
        // The burst, and the rate from the first request on; a window has one burst for its length.
        let most = rate * (1.0 + lap.elapsed.as_secs_f64()) + surplus(name) as f64 + 1.0;
        let least = rate * 1.8;
        println!("{name}: {granted} of {}, from {least:.0} to {most:.0}", lap.decisions);
        assert!((least..=most).contains(&granted), "{name}: {granted} of {least:.0} to {most:.0}");
        assert!(lap.granted < lap.decisions, "{name} refuses nothing");
        let [trips, keys] = fleet.calls();
        assert!(0 < trips && trips <= keys, "{name}: {trips} calls of {keys} keys");
    }
}
