//! A fleet under random load, and its grants beside those of ideal buckets.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::Quota;

use super::ideal::Ideal;
use super::random::Random;
use super::world::{Limiter, World};

/// The time from a call to its answer. Virtual time goes in whole milliseconds, so it takes two.
const RTT: Duration = Duration::from_millis(1);

/// The processes of a simulation, and their load.
#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    pub(crate) quota: Quota,
    /// Requests a second of each process.
    pub(crate) demands: Vec<f64>,
    /// Keys, of which number `k` is asked for in proportion to `1 / k`.
    pub(crate) keys: usize,
    pub(crate) seconds: f64,
    /// The horizon of leases. `None` is the exact mode.
    pub(crate) horizon: Option<Duration>,
    /// Seconds with load and seconds without, in turns.
    pub(crate) turns: Option<(f64, f64)>,
}

/// The figures of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) decisions: u64,
    pub(crate) granted: u64,
    /// The tokens that the requests of each process used.
    pub(crate) used: Vec<u64>,
    /// The grants of ideal buckets, and the share of them that was not granted.
    pub(crate) ideal: u64,
    pub(crate) under: f64,
    /// Round trips to the store, and the keys in them.
    pub(crate) calls: u64,
    pub(crate) ops: u64,
    /// Decisions that waited for a call.
    pub(crate) waited: u64,
    /// The most tokens that a key was granted in any window, above `burst + rate * window`.
    pub(crate) over: f64,
    /// The most unused tokens that all processes held at a time, of one key, and those at the end.
    pub(crate) unspent: u64,
    pub(crate) held: u64,
}

impl Fleet {
    /// Returns processes of the same demand, on one key.
    pub(crate) fn new(quota: Quota, processes: usize, demand: f64, seconds: f64) -> Fleet {
        Fleet { quota, demands: vec![demand; processes], keys: 1, seconds, horizon: None, turns: None }
    }

    pub(crate) fn leased(&self, horizon: Duration) -> Fleet {
        Fleet { horizon: Some(horizon), ..self.clone() }
    }

    /// Runs the fleet in virtual time.
    pub(crate) async fn run(&self) -> Run {
        let world = World::new(RTT);
        let limiters = self.processes(&world);
        let audit = Arc::new(Mutex::new(Audit::new(self)));
        let (mut random, mut requests) = (Random(0x9E37_79B9_7F4A_7C15), JoinSet::new());
        let total: f64 = self.demands.iter().sum();
        let (mut at, mut look, mut waited) = (0.0, 0.0, 0);
        loop {
            at += random.gap(total);
            if at > self.seconds {
                break;
            }
            if at > world.now().as_secs_f64() {
                world.sleep_until(at).await;
                while requests.try_join_next().is_some() {}
            }
            if self.keys == 1 && at > look {
                look = at + 0.02;
                audit.lock().unwrap().look(&limiters);
            }
            let (process, key) = (random.weighted(&self.demands, total), random.rank(self.keys));
            if self.rests(at) {
                continue;
            }
            let (limiter, now) = (limiters[process].clone(), world.now().as_secs_f64());
            audit.lock().unwrap().ask(key, now);
            let (audit, world) = (audit.clone(), world.clone());
            let request = async move {
                if limiter.ask(&(key as u64)).await.is_ok() {
                    audit.lock().unwrap().grant(key, world.now().as_secs_f64());
                }
            };
            if let Some(waits) = begun(request).await {
                waited += 1;
                requests.spawn(waits);
            }
        }
        requests.join_all().await;
        audit.lock().unwrap().look(&limiters);
        let without = limiters.iter().map(|limiter| limiter.stats().by_fallback).sum::<u64>();
        assert_eq!(without, 0, "the store answers each call");
        let (calls, ops) = (world.calls.load(Relaxed), world.ops.load(Relaxed));
        let used = limiters.iter().map(|limiter| limiter.stats().tokens_used).collect();
        Run { used, calls, ops, waited, ..audit.lock().unwrap().figures() }
    }

    fn processes(&self, world: &World) -> Vec<Limiter> {
        let process = |_: &f64| {
            let builder = world.process(self.quota).max_keys(self.keys);
            let builder = match self.horizon {
                Some(horizon) => builder.leased(horizon),
                None => builder.exact(),
            };
            builder.build().unwrap()
        };
        self.demands.iter().map(process).collect()
    }

    fn rests(&self, at: f64) -> bool {
        self.turns.is_some_and(|(on, off)| at % (on + off) > on)
    }
}

/// Begins a request. Returns it if it waits.
async fn begun<F: Future<Output = ()>>(request: F) -> Option<Pin<Box<F>>> {
    let mut request = Box::pin(request);
    let decided = poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await;
    decided.is_pending().then_some(request)
}

/// For each key, an ideal bucket under the same requests, and one that is charged for all grants.
struct Audit {
    buckets: Vec<[Ideal; 2]>,
    run: Run,
}

impl Audit {
    fn new(fleet: &Fleet) -> Audit {
        Audit { buckets: vec![[Ideal::new(fleet.quota); 2]; fleet.keys], run: Run::default() }
    }

    fn ask(&mut self, key: usize, now: f64) {
        self.run.decisions += 1;
        self.run.ideal += u64::from(self.buckets[key][0].take(1, now));
    }

    fn grant(&mut self, key: usize, now: f64) {
        let level = self.buckets[key][1].at(now);
        *level -= 1.0;
        self.run.over = self.run.over.max(-*level);
        self.run.granted += 1;
    }

    /// Notes the tokens that the store granted and no request has used.
    fn look(&mut self, limiters: &[Limiter]) {
        let given = limiters.iter().map(|limiter| {
            let stats = limiter.stats();
            stats.tokens_granted - stats.tokens_returned
        });
        self.run.held = given.sum::<u64>().saturating_sub(self.run.granted);
        self.run.unspent = self.run.unspent.max(self.run.held);
    }

    fn figures(&self) -> Run {
        Run { under: 1.0 - self.run.granted as f64 / self.run.ideal as f64, ..self.run.clone() }
    }
}

impl Random {
    /// Returns a number in proportion to its weight.
    fn weighted(&mut self, weights: &[f64], total: f64) -> usize {
        let mut rest = self.next() * total;
        let place = weights.iter().position(|weight| {
            rest -= weight;
            rest < 0.0
        });
        place.unwrap_or(weights.len() - 1)
    }

    /// Returns a number below `n`, in proportion to the logarithm of `(k + 2) / (k + 1)`.
    fn rank(&mut self, n: usize) -> usize {
        let logarithm = self.next() * ((n + 1) as f64).ln();
        (logarithm.exp() as usize).clamp(1, n) - 1
    }
}
