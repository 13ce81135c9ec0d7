// promise: law
//! Random runs of waiting, in virtual time: callers that leave, costs, deadlines, plain takes,
//! reservations and changes of quota, at a bucket and at a key of either store.
//!
//! The callers are those of the waiting verbs, without their timers: a run has timers of its own,
//! on the mock clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use crate::limiter::ask::Ask;
use crate::limiter::asked::Target as Asked;
use crate::limiter::limit::TokenBucket;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::wait::{NO_LIMIT, NextStep, Waiter};
use crate::rule::rate::Quota;
use crate::time::clock::{Clock, MockClock};
use crate::word::decision::Reason;
use tollgate_testing::{Random, size};

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;

/// A caller of a bucket or of a key: it polls.
type Poll = Box<dyn FnMut(bool, &Waker) -> NextStep>;

/// Returns a caller that makes a request.
fn caller<B: Asked + 'static>(request: Ask<'static, B>) -> Poll {
    let mut waiter = Waiter::new(request);
    Box::new(move |fired, waker| waiter.poll(fired, waker))
}

/// A bucket, or a key of a limiter.
#[derive(Clone, Copy)]
enum Target {
    Bucket(&'static TokenBucket),
    Key(&'static RateLimiter<u64>),
}

impl Target {
    fn new(form: u64, quota: Quota, clock: Clock) -> Target {
        let limiter = RateLimiter::builder(quota).clock(clock.clone());
        match form {
            0 => Target::Bucket(Box::leak(Box::new(TokenBucket::builder(quota).clock(clock).build()))),
            1 => Target::Key(Box::leak(Box::new(limiter.max_keys(1).build()))),
            _ => Target::Key(Box::leak(Box::new(limiter.max_keys(1).inline().unwrap().build()))),
        }
    }

    /// Returns a caller that waits for at most some nanoseconds.
    fn waiter(self, n: u64, max_wait: u64) -> Poll {
        let within = Duration::from_nanos(max_wait);
        match self {
            Target::Bucket(bucket) => caller(bucket.ask().n(n).within(within)),
            Target::Key(limiter) => caller(limiter.key(&7).n(n).within(within)),
        }
    }

    fn take(self, n: u64) -> bool {
        match self {
            Target::Bucket(bucket) => bucket.try_acquire_n(n).is_ok(),
            Target::Key(limiter) => limiter.try_acquire_n(&7, n).is_ok(),
        }
    }

    /// Reserves tokens, and returns the nanoseconds until they are earned.
    fn reserve(self, n: u64) -> Option<u64> {
        let reservation = match self {
            Target::Bucket(bucket) => bucket.ask().n(n).reserve(),
            Target::Key(limiter) => limiter.key(&7).n(n).reserve(),
        };
        let delay = reservation.ok().map(|reservation| {
            let delay = reservation.delay();
            let _ = reservation.commit();
            delay
        });
        delay.map(|delay| delay.as_nanos() as u64)
    }

    fn set_quota(self, quota: Quota) {
        match self {
            Target::Bucket(bucket) => bucket.set_rule(quota),
            Target::Key(limiter) => limiter.set_rule(quota),
        }
        .expect("a slower quota fits");
    }
}

/// Notes that a caller was woken.
struct Woken(u64, Arc<Mutex<Vec<u64>>>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

struct Caller {
    waiter: Poll,
    n: u64,
    waker: Waker,
    /// The time at which its timer is over.
    timer: u64,
    /// The time by which it is ready to be served.
    until: u64,
}

/// The number of a plain take, behind all callers.
const PLAIN: u64 = u64::MAX;

/// The kinds of events, in order of the instants at which they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Timer(u64),
    Leaves(u64),
    Arrives,
    Changes,
}

/// What happened in some runs.
#[derive(Debug, Default)]
struct Counts {
    granted: u64,
    left: u64,
    refused: u64,
    polls: u64,
    /// Grants of callers while an earlier one waited.
    before_an_earlier_caller: u64,
    /// Grants of plain takes while a caller waited.
    plain_before_a_caller: u64,
    served_too_late: u64,
}

struct Run {
    random: Random,
    mock: MockClock,
    target: Target,
    quota: Quota,
    /// Whether reservations are mixed in.
    reserves: bool,
    /// Most nanoseconds by which a timer is late.
    late: u64,
    changes: bool,
    now: u64,
    next: u64,
    callers: BTreeMap<u64, Caller>,
    events: BTreeSet<(u64, Event)>,
    woken: Arc<Mutex<Vec<u64>>>,
    /// Times and tokens of all grants.
    granted: Vec<(u64, u64)>,
    /// Times from which quotas are in force.
    quotas: Vec<(u64, Quota)>,
    counts: Counts,
}

impl Run {
    fn new(seed: u64, form: u64, late: u64, changes: bool) -> Run {
        let mut random = Random(seed);
        let quota = Quota::per_second(1 + random.below(1_000)).burst(1 + random.below(30));
        let (clock, mock) = Clock::mock();
        let target = Target::new(form, quota, clock);
        let reserves = !changes && random.below(3) == 0;
        Run {
            random,
            mock,
            target,
            quota,
            reserves,
            late,
            changes,
            now: 0,
            next: 0,
            callers: BTreeMap::new(),
            events: BTreeSet::new(),
            woken: Arc::default(),
            granted: Vec::new(),
            quotas: vec![(0, quota)],
            counts: Counts::default(),
        }
    }

    fn run(&mut self, calls: u64) {
        // Tokens a second that callers ask for, at half to five times the rate.
        let load = self.quota.tokens() * (5 + self.random.below(45)) / 10 + 1;
        let gap = 3 * SECOND / load;
        let mut at = 0;
        for _ in 0..calls {
            at += self.random.below(2 * gap + 1);
            self.events.insert((at, Event::Arrives));
        }
        for _ in 0..if self.changes { 4 } else { 0 } {
            let change = self.random.below(at + 1);
            self.events.insert((change, Event::Changes));
        }
        while let Some((at, event)) = self.events.pop_first() {
            self.mock.advance(Duration::from_nanos(at - self.now));
            self.now = at;
            match event {
                Event::Arrives => self.arrive(),
                Event::Changes => self.change(),
                Event::Leaves(id) => {
                    self.counts.left += u64::from(self.callers.remove(&id).is_some());
                }
                Event::Timer(id) => {
                    if self.callers.get(&id).is_some_and(|caller| caller.timer == at) {
                        self.poll(id, true);
                    }
                }
            }
            self.wake();
        }
        assert!(self.callers.is_empty(), "callers hang: {:?}", self.callers.keys());
    }

    fn wake(&mut self) {
        loop {
            let woken = std::mem::take(&mut *self.woken.lock().unwrap());
            if woken.is_empty() {
                return;
            }
            for id in woken {
                self.poll(id, false);
            }
        }
    }

    fn arrive(&mut self) {
        let n = (1 + self.random.below(5)).min(self.quota.capacity());
        match self.random.below(10) {
            0 => {
                if self.target.take(n) {
                    self.grant(PLAIN, n, self.now);
                }
                return;
            }
            1 if self.reserves => {
                if let Some(delay) = self.target.reserve(n) {
                    self.granted.push((self.now + delay, n));
                }
                return;
            }
            _ => {}
        }
        let (id, fill) = (self.next, SECOND * self.quota.capacity() / self.quota.tokens());
        self.next += 1;
        let patience = 1 + self.random.below(3 * fill + 10 * MILLISECOND);
        let within = self.random.below(3) == 0;
        let max_wait = if within { patience } else { NO_LIMIT };
        let waiter = self.target.waiter(n, max_wait);
        let waker = Waker::from(Arc::new(Woken(id, self.woken.clone())));
        let until = if within { self.now + patience } else { u64::MAX };
        self.callers.insert(id, Caller { waiter, n, waker, timer: u64::MAX, until });
        self.poll(id, false);
        // Some are patient; others leave.
        if !within && self.random.below(4) > 0 {
            self.events.insert((self.now + patience, Event::Leaves(id)));
        }
    }

    /// Sets a rate from a tenth of the first one to all of it, and a burst from half of it.
    fn change(&mut self) {
        let tokens = (self.quota.tokens() * (1 + self.random.below(10)) / 10).max(1);
        let burst = (self.quota.capacity() - self.random.below(self.quota.capacity() / 2 + 1)).max(1);
        let quota = Quota::per_second(tokens).burst(burst);
        self.target.set_quota(quota);
        self.quotas.push((self.now, quota));
    }

    fn poll(&mut self, id: u64, fired: bool) {
        let Some(caller) = self.callers.get_mut(&id) else { return };
        self.counts.polls += 1;
        match (caller.waiter)(fired, &caller.waker) {
            NextStep::Waits => assert!(!fired, "a caller whose timer is over sets another one"),
            NextStep::Sets(wait) => {
                let late = if self.late == 0 { 0 } else { self.random.below(self.late) };
                caller.timer = self.now + wait.as_nanos() as u64 + late;
                self.events.insert((caller.timer, Event::Timer(id)));
            }
            NextStep::Done(decision) => {
                let caller = self.callers.remove(&id).expect("it was polled");
                match decision {
                    Ok(granted) => {
                        assert_eq!(granted.tokens(), caller.n);
                        self.counts.served_too_late +=
                            u64::from(self.now > caller.until.saturating_add(self.late));
                        self.grant(id, caller.n, self.now);
                    }
                    Err(denied) => {
                        let reasons = [Reason::Deadline, Reason::TooMany];
                        assert!(reasons.contains(&denied.reason()), "{denied}");
                        self.counts.refused += 1;
                    }
                }
            }
        }
    }

    fn grant(&mut self, id: u64, n: u64, at: u64) {
        self.counts.granted += n;
        self.granted.push((at, n));
        if self.callers.range(..id).next().is_some() && !self.is_woken_before(id) {
            let counts = &mut self.counts;
            *(if id == PLAIN {
                &mut counts.plain_before_a_caller
            } else {
                &mut counts.before_an_earlier_caller
            }) += 1;
        }
    }

    /// Returns whether all earlier callers are served too, and have not been polled yet.
    fn is_woken_before(&self, id: u64) -> bool {
        let woken = self.woken.lock().unwrap();
        self.callers.range(..id).all(|(earlier, _)| woken.contains(earlier))
    }

    /// Returns the nanotokens earned from one time to another.
    fn earned(&self, from: u64, until: u64) -> u128 {
        let ends = self.quotas.iter().skip(1).map(|(at, _)| *at).chain([u64::MAX]);
        let spans = self.quotas.iter().zip(ends).map(|((at, quota), end)| {
            let span = end.min(until).saturating_sub((*at).max(from));
            u128::from(span) * u128::from(quota.tokens())
        });
        spans.sum()
    }

    /// Asserts that at most the burst and the earned tokens are granted in each interval.
    fn assert_law(&mut self, what: &str) {
        self.granted.sort_unstable();
        // A tick is at most a 256th of a token, for each of the grants' times.
        let slack = u128::from(SECOND) / 100 + u128::from(self.late) * u128::from(self.quota.tokens());
        let burst = u128::from(self.quota.capacity()) * u128::from(SECOND);
        for (first, (from, _)) in self.granted.iter().enumerate() {
            let mut sum = 0;
            for (until, n) in &self.granted[first..] {
                sum += u128::from(*n) * u128::from(SECOND);
                let most = burst + self.earned(*from, *until) + slack;
                assert!(sum <= most, "{what}: {sum} of {most} from {from} to {until}, {}", self.quota);
            }
        }
    }
}

/// Runs random calls and returns the counts.
fn runs(late: u64, changes: bool, calls: u64) -> Counts {
    let runs = size(40, 200);
    let mut all = Counts::default();
    for seed in 0..runs {
        let mut run = Run::new(seed, seed % 3, late, changes);
        run.run(calls);
        run.assert_law(&format!("seed {seed}"));
        let Counts { granted, left, refused, polls, .. } = run.counts;
        all.granted += granted;
        all.left += left;
        all.refused += refused;
        all.polls += polls;
        all.before_an_earlier_caller += run.counts.before_an_earlier_caller;
        all.plain_before_a_caller += run.counts.plain_before_a_caller;
        all.served_too_late += run.counts.served_too_late;
    }
    println!("{runs} runs, timers up to {late} ns late, changes {changes}: {all:?}");
    assert!(all.granted > 0 && all.left > 0 && all.refused > 0);
    all
}

#[test]
fn random_runs_of_waiting_keep_the_law_and_the_order() {
    let counts = runs(0, false, 300);
    let Counts { before_an_earlier_caller, plain_before_a_caller, served_too_late, .. } = counts;
    assert_eq!((before_an_earlier_caller, plain_before_a_caller, served_too_late), (0, 0, 0), "{counts:?}");
}

/// Beside a late timer the word may be out of debt while callers wait that have no place yet. Then
/// a plain take may pass them, and so may the first try of a new caller: once in a thousand tokens
/// at the most. All are still served when they were told.
#[test]
fn random_runs_with_late_timers_keep_the_law_and_the_deadlines() {
    let counts = runs(3 * MILLISECOND, false, 300);
    assert_eq!(counts.served_too_late, 0, "{counts:?}");
    let passed = counts.before_an_earlier_caller + counts.plain_before_a_caller;
    assert!(passed * 1_000 < counts.granted, "{counts:?}");
}

#[test]
fn random_runs_with_changes_of_quota_keep_the_law_and_the_order() {
    let counts = runs(0, true, 300);
    assert_eq!((counts.before_an_earlier_caller, counts.plain_before_a_caller), (0, 0), "{counts:?}");
}
