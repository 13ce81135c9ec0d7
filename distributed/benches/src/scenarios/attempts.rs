//! A thread that asks 100,000 times a second, and is refused without a call.

use std::hint;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tollgate::Quota;
use tollgate_benches::scenarios::say;
use tollgate_test_servers::redis::Redis;

use super::effort::Effort;
use super::outage::POLICIES;
use crate::contenders::Ours;
use crate::limit::{Failure, Limit, Setup};
use crate::servers::Server;
use tollgate_benches::rows::Rows;

/// The rows of a key without tokens, a case for each store.
pub const REFUSED: &str = "Attempts, no token";
/// The rows of a frozen server, a case for each policy.
pub const FROZEN: &str = "Attempts, frozen server";

/// Time between two attempts on a limiter.
const GAP: Duration = Duration::from_micros(10);
const KEY: &str = "one key";

/// A limiter under attempts, and its numbers.
struct Attempted {
    limit: Ours,
    /// Nanoseconds of single decisions.
    times: Histogram<u64>,
    granted: u64,
    /// The time of the first grant.
    first: Option<Instant>,
}

impl Attempted {
    fn new(limit: Ours) -> Result<Attempted, Failure> {
        Ok(Attempted {
            limit,
            times: Histogram::new_with_bounds(1, 1_000_000_000, 3)?,
            granted: 0,
            first: None,
        })
    }

    fn attempt(&mut self) {
        let begun = Instant::now();
        let decided = self.limit.0.try_acquire_local(KEY);
        self.times.saturating_record(begun.elapsed().as_nanos() as u64);
        if decided.is_ok() {
            self.granted += 1;
            self.first.get_or_insert(begun);
        }
    }

    fn write_times(&self, rows: &mut Rows, section: &str, case: &str) {
        for (name, part) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            let nanos = self.times.value_at_quantile(part) as f64;
            rows.number([section, case, "tollgate", name], "ns", nanos);
        }
        rows.number([section, case, "tollgate", "attempts"], "", self.times.len() as f64);
    }
}

/// Asks all limiters in turn, each of them 100,000 times a second. A limiter is done at its first
/// grant if `until_grant` says so.
fn attempts(runners: &mut [Attempted], time: Duration, until_grant: bool) {
    let (begun, mut at) = (Instant::now(), Duration::ZERO);
    while at < time {
        at += GAP;
        while begun.elapsed() < at {
            hint::spin_loop();
        }
        let waiting = runners.iter_mut().filter(|runner| !until_grant || runner.first.is_none());
        waiting.for_each(Attempted::attempt);
    }
}

/// Measures both.
///
/// # Errors
///
/// A server does not start.
pub async fn measure(effort: &Effort) -> Result<Rows, Failure> {
    let mut rows = Rows::default();
    refused(&mut rows, effort).await?;
    frozen(&mut rows, effort).await?;
    Ok(rows)
}

/// A key whose only token is taken, on each store at the same time, until it has the next one.
async fn refused(rows: &mut Rows, effort: &Effort) -> Result<(), Failure> {
    say(format_args!("100,000 attempts a second, no token"));
    let (mut servers, mut runners, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    let period = effort.period;
    for store in Server::NAMES {
        let Some(server) = Server::start(store)? else { continue };
        let quota = Quota::per(1, period);
        let setup = Setup { quota, url: server.url(), name: "attempts".to_owned() };
        runners.push(Attempted::new(Ours::new("leased", &setup).await?)?);
        servers.push((store, server));
    }
    for runner in &runners {
        let sent = Instant::now();
        runner.limit.0.ask(KEY).await.map_err(|denied| denied.to_string())?;
        taken.push((sent, sent.elapsed(), runner.limit.calls()[0]));
    }
    // A little longer than a period: the first grant ends it.
    attempts(&mut runners, period + Duration::from_secs(1), true);
    for ((runner, (sent, took, calls)), (store, _)) in runners.iter().zip(taken).zip(&servers) {
        runner.write_times(rows, REFUSED, store);
        rows.number([REFUSED, store, "tollgate", "round trip"], "ms", took.as_secs_f64() * 1e3);
        let calls = (runner.limit.calls()[0] - calls) as f64 / period.as_secs_f64();
        rows.number([REFUSED, store, "tollgate", "calls"], "1/s", calls);
        if let Some(first) = runner.first {
            // The bucket had its next token a period after the server took this one: not before.
            let late = (first - sent).as_secs_f64() - period.as_secs_f64();
            rows.number([REFUSED, store, "tollgate", "late, at most"], "ms", late * 1e3);
        }
    }
    Ok(())
}

/// Limiters of each policy on a server that is frozen, after the breaker has opened.
async fn frozen(rows: &mut Rows, effort: &Effort) -> Result<(), Failure> {
    say(format_args!("100,000 attempts a second, frozen server"));
    let (mut server, mut runners) = (Redis::start(&[])?, Vec::new());
    for (name, policy) in POLICIES {
        let setup = Setup { quota: Quota::per_second(1_000), url: server.url(), name: name.to_owned() };
        let limit = Ours::with("leased", &setup, |builder| builder.on_outage(policy)).await?;
        runners.push(Attempted::new(limit)?);
    }
    server.process().freeze()?;
    for runner in &runners {
        // Each request of another key is a call, and one that fails.
        let mut keys = (0..1_000).map(|key| key.to_string());
        while !runner.limit.0.stats().breaker_open {
            let _ = runner.limit.0.ask(&keys.next().ok_or("the breaker does not open")?).await;
        }
    }
    attempts(&mut runners, effort.period / 6, false);
    for (runner, (name, _)) in runners.iter().zip(POLICIES) {
        runner.write_times(rows, FROZEN, name);
        let part = runner.granted as f64 * 100.0 / runner.times.len() as f64;
        rows.number([FROZEN, name, "tollgate", "granted"], "%", part);
    }
    Ok(())
}
