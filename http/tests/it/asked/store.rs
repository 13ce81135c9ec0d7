//! A limiter that a layer asks: buckets in this process, and a record of the calls.

use std::future::poll_fn;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tollgate::{AnyRule, Clock, Denied, Granted, Quota, RateLimiter, Reason, Stats};
use tollgate_http::{Answer, AnyLimiter, LayerLimiter, LayerPlan, LayerRequest};

/// The hasher of limiters that are asked.
pub(super) type Fixed = BuildHasherDefault<DefaultHasher>;

/// A question to the limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) key: Option<u64>,
    pub(super) n: u64,
    pub(super) plan: Option<Quota>,
}

/// Buckets that are asked. A clone is the same limiter.
#[derive(Clone)]
pub(super) struct Shared(Arc<State>);

struct State {
    buckets: RateLimiter<u64, Quota, Fixed>,
    /// The bucket of requests without a key, under any key.
    keyless: RateLimiter<u64, Quota, Fixed>,
    clock: Clock,
    silent: AtomicBool,
    down: AtomicBool,
    waiting: AtomicU64,
    asked: Mutex<Vec<Asked>>,
    refunds: Mutex<Vec<u64>>,
}

/// A question that is not answered yet.
struct Waiting(Arc<State>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

pub(super) fn shared(quota: Quota, clock: &Clock) -> Shared {
    let buckets = || {
        let builder = RateLimiter::<u64>::builder(quota).hasher(Fixed::default()).clock(clock.clone());
        builder.headroom(Quota::per_second(1_000)).expect("there is room").build()
    };
    Shared(Arc::new(State {
        buckets: buckets(),
        keyless: buckets(),
        clock: clock.clone(),
        silent: AtomicBool::new(false),
        down: AtomicBool::new(false),
        waiting: AtomicU64::new(0),
        asked: Mutex::default(),
        refunds: Mutex::default(),
    }))
}

impl Shared {
    pub(super) fn any(&self) -> AnyLimiter<u64> {
        AnyLimiter::of(self.clone())
    }

    /// Sets whether questions wait for their answers.
    pub(super) fn set_silent(&self, silent: bool) {
        self.0.silent.store(silent, Relaxed);
    }

    /// Sets whether the store is down.
    pub(super) fn set_down(&self, down: bool) {
        self.0.down.store(down, Relaxed);
    }

    /// Returns the questions that wait.
    pub(super) fn waiting(&self) -> u64 {
        self.0.waiting.load(Relaxed)
    }

    /// Returns the questions since the last call.
    pub(super) fn questions(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.0.asked.lock().unwrap())
    }

    /// Returns the refunds since the last call, in tokens.
    pub(super) fn refunds(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.refunds.lock().unwrap())
    }

    pub(super) fn left(&self, key: u64) -> u64 {
        self.0.buckets.peek(&key).remaining()
    }

    pub(super) fn set_quota(&self, quota: Quota) {
        self.0.buckets.set_rule(quota).expect("there is room");
    }
}

impl State {
    fn of(&self, key: Option<u64>) -> (&RateLimiter<u64, Quota, Fixed>, u64) {
        key.map_or((&self.keyless, 0), |key| (&self.buckets, key))
    }

    fn take(&self, Asked { key, n, plan }: Asked) -> Result<Granted, Denied> {
        let (limiter, key) = self.of(key);
        if self.down.load(Relaxed) {
            return Err(Denied::from_parts(Reason::Unavailable, n, 0, Some(Duration::from_millis(300))));
        }
        match plan.map(|plan| limiter.plan(plan).expect("there is room")) {
            Some(plan) => limiter.key(&key).n(n).under(&plan).try_acquire(),
            None => limiter.try_acquire_n(&key, n),
        }
    }
}

fn quota_of(plan: &LayerPlan) -> Quota {
    match plan.rule() {
        AnyRule::Quota(quota) => quota,
        rule => panic!("{rule} is no quota"),
    }
}

impl LayerLimiter<u64> for Shared {
    fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn rule(&self, plan: Option<&LayerPlan>) -> AnyRule {
        plan.map_or_else(|| self.0.buckets.rule().into(), LayerPlan::rule)
    }

    fn clock(&self) -> Clock {
        self.0.clock.clone()
    }

    fn stats(&self) -> Stats {
        self.0.buckets.stats()
    }

    fn take(&self, request: LayerRequest<'_, u64>) -> Answer {
        let plan = request.plan.map(quota_of);
        let asked = Asked { key: request.key.copied(), n: request.n, plan };
        self.0.asked.lock().unwrap().push(asked);
        self.0.waiting.fetch_add(1, Relaxed);
        let waiting = Waiting(self.0.clone());
        Answer::Later(Box::pin(poll_fn(move |_| match waiting.0.silent.load(Relaxed) {
            true => Poll::Pending,
            false => Poll::Ready(waiting.0.take(asked)),
        })))
    }

    fn refund(&self, request: LayerRequest<'_, u64>) {
        self.0.refunds.lock().unwrap().push(request.n);
        let (limiter, key) = self.0.of(request.key.copied());
        match request.plan.map(|plan| limiter.plan(quota_of(plan)).expect("there is room")) {
            Some(plan) => limiter.key(&key).n(request.n).under(&plan).refund(),
            None => limiter.refund(&key, request.n),
        }
    }

    fn charge(&self, request: LayerRequest<'_, u64>) {
        let (limiter, key) = self.0.of(request.key.copied());
        let hold = limiter.key(&key).n(0).hold().expect("a hold of nothing is granted");
        hold.settle(request.n);
    }

    fn peek(&self, request: LayerRequest<'_, u64>) -> Granted {
        let (limiter, key) = self.0.of(request.key.copied());
        let there = limiter.peek(&key);
        Granted::from_parts(0, there.remaining(), there.reset_after())
    }
}
