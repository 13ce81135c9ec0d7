//! Two proxies on one store under load, on each engine, with the figures. First wrk loads both:
//! together they grant as one limit does. Then the server of the store is killed and started again
//! (the file of SQLite is locked by another process). It needs a machine without other work.
//!
//! ```text
//! cargo test --release -p tollgate-proxy --all-features --test it -- --ignored --nocapture --test-threads 1 acceptance
//! ```

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::engines::{Server, servers};
use super::wrk::{Answers, FLOOD, STEADY, load};
use crate::support::{Connection, PATIENCE, Proxy};

/// The longest time of a decision: the deadline of the store, and 10 ms. Only a decision waits for
/// the store, and its time is by the proxy's clock. The times of requests depend on the processors
/// that the clients leave: they are printed.
const LONGEST: Duration = Duration::from_millis(60);
const HEALED: Duration = Duration::from_secs(1);
const OUTAGE: Duration = Duration::from_secs(2);

#[test]
#[ignore = "it loads the machine for a minute"]
fn sqlite() {
    accept("SQLite");
}

#[cfg(feature = "redis")]
#[test]
#[ignore = "it loads the machine for a minute"]
fn redis() {
    accept("Redis");
}

#[cfg(feature = "postgres")]
#[test]
#[ignore = "it loads the machine for a minute"]
fn postgres() {
    accept("PostgreSQL");
}

#[cfg(feature = "mysql")]
#[test]
#[ignore = "it loads the machine for a minute"]
fn mysql() {
    accept("MariaDB");
}

fn accept(engine: &str) {
    let Some(mut server) = servers().find(|server| server.name() == engine) else { return };
    let wrong = [one_limit(&server), outage(&mut server)].concat();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn start(server: &Server, options: &str) -> Proxy {
    let store = format!("--store {} --store-share 0.5", server.url());
    Proxy::start(&format!("{store} --limit 1000/s {options}"))
}

fn sum(proxies: &[Proxy; 2], series: &str) -> u64 {
    proxies.iter().map(|proxy| proxy.metric(series)).sum()
}

/// Together the proxies grant what one limit grants. Returns the figures that are out of bounds.
fn one_limit(server: &Server) -> Vec<String> {
    println!("\n1000/s burst 1000 for ten seconds, wrk on two proxies: 10,900 to 11,100 answers 200");
    println!(
        "{:<11} {:<7} {:<7} {:>7} {:>9} {:>10} {:>12} {:>13}",
        "store", "mode", "load", "200", "429", "answers/s", "store ops/s", "by own share"
    );
    let runs = [STEADY, FLOOD].into_iter().flat_map(|demand| ["leased", "exact"].map(|mode| (demand, mode)));
    let mut wrong = Vec::new();
    for (demand, mode) in runs {
        let options = format!("--store-mode {mode} --store-name {mode}-{}", demand.name);
        let proxies = [start(server, &options), start(server, &options)];
        let begun = Instant::now();
        let loads = proxies.each_ref().map(|proxy| load(proxy, demand));
        let answers = loads.map(|load| load.join().expect("it counts"));
        let seconds = begun.elapsed().as_secs_f64();
        let total = |status| answers.iter().map(|answers| answers.of(status)).sum::<u64>();
        let all: u64 = answers.iter().map(Answers::all).sum();
        let (granted, refused) = (total(200), total(429));
        let ops = sum(&proxies, "tollgate_store_keys_total{policy=\"default\"}") as f64 / seconds;
        let away = sum(&proxies, "tollgate_shared_decisions_total{policy=\"default\",source=\"fallback\"}");
        let row = format!("{:<11} {mode:<7} {:<7} {granted:>7} {refused:>9}", server.name(), demand.name);
        println!("{row} {:>10.0} {ops:>12.0} {away:>13}", all as f64 / seconds);
        // A flood may leave the store no time of the processors. Then the figure is the policy's.
        let is_of_store = demand.pause_ms > 0 || away == 0;
        if is_of_store && !(10_900..=11_100).contains(&granted) || granted + refused != all {
            wrong.push(format!("{row}, {away} by own share"));
        }
    }
    wrong
}

/// A request: its moment, its time, and its status.
type Seen = (Instant, Duration, u16);

/// Asks a proxy each 5 ms until it is told to stop.
fn ask(mut client: Connection, over: &AtomicBool) -> Vec<Seen> {
    let mut seen = Vec::new();
    let begun = Instant::now();
    for turn in 0.. {
        let due = begun + Duration::from_millis(5) * turn;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if over.load(Relaxed) {
            break;
        }
        let asked = Instant::now();
        let status = client.get("/").status;
        seen.push((asked, asked.elapsed(), status));
    }
    seen
}

/// Waits until the store answers calls of both proxies again. Returns the time since it is there.
fn await_healing(proxies: &[Proxy; 2], back: Instant) -> Duration {
    let answered = "tollgate_store_calls_total{policy=\"default\",outcome=\"answered\"}";
    let before = proxies.each_ref().map(|proxy| proxy.metric(answered));
    for (proxy, before) in proxies.iter().zip(before) {
        while proxy.metric("tollgate_store_down{policy=\"default\"}") > 0 || proxy.metric(answered) == before
        {
            assert!(back.elapsed() < PATIENCE, "it does not heal");
            thread::sleep(Duration::from_millis(5));
        }
    }
    back.elapsed()
}

/// The requests around an outage.
struct Watched {
    seen: Vec<Seen>,
    away: Instant,
    healed: Duration,
}

/// Asks both proxies, takes the store away for two seconds, and waits until they use it again.
fn watch(server: &mut Server, proxies: &[Proxy; 2]) -> Watched {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients = proxies.each_ref().map(|proxy| proxy.connect());
        let asking = clients.map(|client| scope.spawn(|| ask(client, &over)));
        thread::sleep(Duration::from_secs(4));
        server.take_away();
        let away = Instant::now();
        thread::sleep(OUTAGE);
        server.bring_back();
        let healed = await_healing(proxies, Instant::now());
        thread::sleep(Duration::from_secs(1));
        over.store(true, Relaxed);
        Watched { seen: asking.map(|asking| asking.join().expect("it asks")).concat(), away, healed }
    })
}

/// Returns the decisions of a proxy, by its own clock: all, and those above the longest time.
fn decisions(proxy: &Proxy) -> (u64, u64) {
    let name = "tollgate_decision_seconds";
    let all = proxy.metric(&format!("{name}_count"));
    (all, all - proxy.metric(&format!("{name}_bucket{{le=\"{}\"}}", LONGEST.as_secs_f64())))
}

/// No request waits for a store that is away. Returns the figures that are out of bounds.
fn outage(server: &mut Server) -> Vec<String> {
    println!("\nthe same load, and the store is away for two of the ten seconds, deadline 50 ms, share 0.5");
    println!(
        "{:<11} {:<7} {:>9} {:>11} {:>10} {:>6} {:>9} {:>9} {:>7} {:>9}",
        "store",
        "policy",
        "decisions",
        "above 60 ms",
        "longest ms",
        "at ms",
        "of wrk ms",
        "by policy",
        "others",
        "healed ms"
    );
    let mut wrong = Vec::new();
    for (policy, expected) in [("deny", &[503][..]), ("allow", &[200]), ("local", &[200, 429])] {
        let options = format!("--store-mode exact --store-on-outage {policy} --store-name {policy}");
        let proxies = [start(server, &options), start(server, &options)];
        let loads = proxies.each_ref().map(|proxy| load(proxy, STEADY));
        let Watched { seen, away, healed } = watch(server, &proxies);
        let answers = loads.map(|load| load.join().expect("it counts"));
        let of_wrk = answers.iter().map(|answers| answers.longest).max().unwrap_or_default();
        let (all, late) = proxies
            .each_ref()
            .map(decisions)
            .into_iter()
            .fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let (at, longest, _) = *seen.iter().max_by_key(|(_, took, _)| *took).expect("requests");
        let at_ms = at.saturating_duration_since(away).as_millis();
        // The calls under way fail first.
        let is_within = |at: &Instant| (away + OUTAGE / 4..away + OUTAGE).contains(at);
        let (kept, others): (Vec<&Seen>, Vec<_>) =
            seen.iter().filter(|(at, ..)| is_within(at)).partition(|(.., status)| expected.contains(status));
        let [longest_ms, of_wrk_ms, healed_ms] =
            [longest, of_wrk, healed].map(|time| time.as_secs_f64() * 1e3);
        let row =
            format!("{:<11} {policy:<7} {all:>9} {late:>11} {longest_ms:>10.1} {at_ms:>6}", server.name());
        let row = format!("{row} {of_wrk_ms:>9.1} {:>9} {:>7} {healed_ms:>9.1}", kept.len(), others.len());
        println!("{row}");
        if late > 0 || healed > HEALED || !others.is_empty() || kept.is_empty() {
            wrong.push(row);
        }
    }
    wrong
}
