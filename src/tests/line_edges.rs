// promise: law
//! Callers in line at its edges: in a pause, and when their key is forgotten. In virtual time.

use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use crate::limiter::ask::Ask;
use crate::limiter::asked::Target;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::wait::{NextStep, Waiter};
use crate::rule::rate::Quota;
use crate::time::clock::{Clock, MockClock};
use crate::word::decision::{Denied, Granted, Reason};

const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MS;

struct Woken(usize, Arc<Mutex<Vec<usize>>>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

struct Caller<'k, B: Target> {
    waiter: Waiter<'k, B>,
    waker: Waker,
    timer: u64,
    polls: u64,
}

/// Callers with their timers on the mock clock.
struct Callers<'k, B: Target> {
    mock: MockClock,
    now: u64,
    all: Vec<Option<Caller<'k, B>>>,
    woken: Arc<Mutex<Vec<usize>>>,
    /// The callers whose wait is over, in order, with the time.
    done: Vec<(usize, u64, Result<Granted, Denied>)>,
    most_polls: u64,
}

impl<'k, B: Target> Callers<'k, B> {
    fn new(mock: MockClock) -> Callers<'k, B> {
        let (all, woken, done) = (Vec::new(), Arc::default(), Vec::new());
        Callers { mock, now: 0, all, woken, done, most_polls: 0 }
    }

    fn join(&mut self, request: Ask<'k, B>) {
        let index = self.all.len();
        let (waiter, waker) = (Waiter::new(request), Waker::from(Arc::new(Woken(index, self.woken.clone()))));
        self.all.push(Some(Caller { waiter, waker, timer: u64::MAX, polls: 0 }));
        self.poll(index, false);
    }

    fn poll(&mut self, index: usize, fired: bool) {
        let Some(caller) = &mut self.all[index] else { return };
        caller.polls += 1;
        self.most_polls = self.most_polls.max(caller.polls);
        let mut step = caller.waiter.poll(fired, &caller.waker);
        if let NextStep::Sets(wait) = step {
            caller.timer = self.now.saturating_add(wait.as_nanos() as u64);
            // A task polls a timer that it has set, and then the caller again.
            step = caller.waiter.poll(false, &caller.waker);
        }
        match step {
            NextStep::Waits => assert!(!fired || caller.timer > self.now),
            NextStep::Sets(_) => panic!("caller {index} polls itself without an end"),
            NextStep::Done(decision) => {
                self.all[index] = None;
                self.done.push((index, self.now, decision));
            }
        }
    }

    /// Polls the callers that were woken, the last one first.
    fn wake(&mut self) {
        loop {
            let woken = std::mem::take(&mut *self.woken.lock().unwrap());
            if woken.is_empty() {
                return;
            }
            woken.into_iter().rev().for_each(|index| self.poll(index, false));
        }
    }

    fn advance_to(&mut self, at: u64) {
        self.mock.advance(Duration::from_nanos(at - self.now));
        self.now = at;
    }

    /// Lets timers fire until a time.
    fn run_until(&mut self, until: u64) {
        self.wake();
        loop {
            let timers = self.all.iter().enumerate();
            let next = timers.filter_map(|(index, caller)| Some((caller.as_ref()?.timer, index))).min();
            match next.filter(|(timer, _)| *timer <= until) {
                None => break self.advance_to(until),
                Some((timer, index)) => {
                    self.advance_to(timer.max(self.now));
                    self.poll(index, true);
                    self.wake();
                }
            }
        }
    }

    fn order(&self) -> Vec<usize> {
        assert!(self.done.iter().all(|(.., decision)| decision.is_ok()), "{:?}", self.done);
        self.done.iter().map(|(index, ..)| *index).collect()
    }
}

/// Returns limiters on a map and in a table.
fn limiters(quota: Quota, debt: Option<u64>) -> [(RateLimiter<u64>, MockClock); 2] {
    [false, true].map(|inline| {
        let (clock, mock) = Clock::mock();
        let mut builder = RateLimiter::<u64>::builder(quota).clock(clock).max_keys(256);
        if let Some(debt) = debt {
            builder = builder.max_debt(debt).unwrap();
        }
        (if inline { builder.inline().unwrap().build() } else { builder.build() }, mock)
    })
}

/// Of other keys in the shard of the key, which make a receipt void without need.
#[test]
fn removals_of_other_keys_take_no_place() {
    for (limiter, mock) in limiters(Quota::per_second(10).burst(1), Some(100)) {
        let mut callers = Callers::new(mock);
        assert!(limiter.try_acquire(&7).is_ok());
        (0..10).for_each(|_| callers.join(limiter.key(&7)));
        for other in 1_000..9_000 {
            // A table may have no slot for it.
            let _ = limiter.try_acquire(&other);
            limiter.remove(&other);
        }
        callers.run_until(HOUR);
        let served: Vec<_> = callers.done.iter().map(|(index, at, _)| (*index, at / MS)).collect();
        assert_eq!(served, Vec::from_iter((0..10).map(|index| (index, 100 * (index as u64 + 1)))));
    }
}

/// The tokens of a caller that left are too few for the head, and too old by the time of a refund.
#[test]
fn an_old_rest_joins_no_place_when_tokens_come_back() {
    const SECOND: u64 = 1_000 * MS;
    for (limiter, mock) in limiters(Quota::per_second(1).burst(50), Some(200)) {
        let mut callers = Callers::new(mock);
        assert!(limiter.try_acquire_n(&7, 50).is_ok());
        callers.join(limiter.key(&7).n(1));
        callers.join(limiter.key(&7).n(48));
        let reserved = limiter.key(&7).n(1).reserve().unwrap();
        callers.join(limiter.key(&7).n(50));
        callers.run_until(SECOND / 2);
        callers.all[1] = None;
        callers.run_until(51 * SECOND);
        let _: Granted = reserved.commit();
        callers.run_until(99 * SECOND - MS);
        assert_eq!(callers.done.len(), 1);
        callers.run_until(99 * SECOND);
        limiter.refund(&7, 1);
        callers.run_until(99 * SECOND + MS);
        assert_eq!(callers.order(), [0, 2]);
        assert!(limiter.peek(&7).remaining() <= 1, "{:?}", limiter.peek(&7));
    }
}

#[test]
fn callers_sleep_through_a_pause() {
    let (quota, keys) = (Quota::per_second(10).burst(1), Vec::from_iter(0..100));
    for (limiter, mock) in limiters(quota, None) {
        let mut callers = Callers::new(mock);
        for key in &keys {
            assert!(limiter.try_acquire(key).is_ok());
            (0..3).for_each(|_| callers.join(limiter.key(key)));
        }
        limiter.set_rule(Quota::BLOCKED).unwrap();
        callers.run_until(HOUR);
        // The first of each key had a promised token.
        assert_eq!(callers.done.len(), 100);
        assert!(callers.most_polls <= 4, "{} polls of one caller in an hour", callers.most_polls);
        limiter.set_rule(quota).unwrap();
        callers.run_until(HOUR + 200 * MS);
        assert_eq!(callers.order().len(), 300);
        assert!(callers.most_polls <= 7, "{} polls of one caller", callers.most_polls);
        for key in 0..100 {
            let order: Vec<_> = callers.order().into_iter().filter(|caller| caller / 3 == key).collect();
            assert_eq!(order, [3 * key, 3 * key + 1, 3 * key + 2]);
        }
    }
}

/// The patience of a caller ends in a pause, too. The callers before and behind it wait on.
#[test]
fn patience_ends_in_a_pause() {
    let quota = Quota::per_second(10).burst(1);
    for (limiter, mock) in limiters(quota, None) {
        let mut callers = Callers::new(mock);
        assert!(limiter.try_acquire(&7).is_ok());
        for seconds in [60, 60, 5, 10, 60] {
            callers.join(limiter.key(&7).within(Duration::from_secs(seconds)));
        }
        limiter.set_rule(Quota::BLOCKED).unwrap();
        callers.run_until(20_000 * MS);
        let denied = |(index, at, decision): &(usize, u64, Result<Granted, Denied>)| {
            (*index, at / MS, decision.err().map(|denied| (denied.reason(), denied.retry_after())))
        };
        let blocked = Some((Reason::Blocked, None));
        let done: Vec<_> = callers.done.iter().map(denied).collect();
        assert_eq!(done, [(0, 100, None), (2, 5_000, blocked), (3, 10_000, blocked)]);
        limiter.set_rule(quota).unwrap();
        callers.run_until(20_200 * MS);
        let done: Vec<_> = callers.done[3..].iter().map(denied).collect();
        assert_eq!(done, [(1, 20_000, None), (4, 20_100, None)]);
        assert!(callers.most_polls <= 6, "{}", callers.most_polls);
    }
}

/// Forgets the key of a line.
type Forget = fn(&RateLimiter<u64>);

#[test]
fn callers_keep_their_order_when_their_key_is_forgotten() {
    let acts: [(&str, Forget); 3] = [
        ("remove", |limiter| assert!(limiter.remove(&7))),
        ("clear", RateLimiter::clear),
        ("evict_idle", |limiter| _ = limiter.evict_idle()),
    ];
    for (name, forget) in acts {
        for debt in [None, Some(3), Some(100)] {
            for at in [0, 50, 150, 450] {
                for (limiter, mock) in limiters(Quota::per_second(10).burst(1), debt) {
                    let mut callers = Callers::new(mock);
                    assert!(limiter.try_acquire(&7).is_ok());
                    (0..10).for_each(|_| callers.join(limiter.key(&7)));
                    callers.run_until(at * MS);
                    forget(&limiter);
                    callers.run_until(2_000 * MS);
                    assert_eq!(callers.order(), Vec::from_iter(0..10), "{name} at {at} ms, debt {debt:?}");
                    let times: Vec<_> = callers.done.iter().map(|(_, at, _)| at / MS).collect();
                    // No caller waits longer than it was told.
                    let told = |(index, at): (usize, &u64)| *at <= 100 * (index as u64 + 1);
                    assert!(times.iter().enumerate().all(told), "{name} at {at} ms: {times:?}");
                    assert!(callers.most_polls <= 6, "{}", callers.most_polls);
                }
            }
        }
    }
}

/// Forty callers wait for an overflow bucket until their key enters the store, and then for its own
/// bucket. Each has its one token at the time that it was told.
#[test]
fn callers_keep_their_turns_when_their_key_finds_room() {
    for debt in [None, Some(3), Some(100)] {
        for at in [2_150, 2_200, 3_030] {
            for (limiter, mock) in limiters(Quota::per_second(10).burst(1), debt) {
                (1_000..3_000).for_each(|other| _ = limiter.try_acquire(&other));
                let has_none = |key: &u64| {
                    let keys = limiter.stats().keys;
                    limiter.try_acquire(key).is_ok() && limiter.stats().keys == keys
                };
                let key = (0..1_000).find(has_none).expect("a key without room, whose bucket is full");
                let mut callers = Callers::new(mock);
                (0..40).for_each(|_| callers.join(limiter.key(&key)));
                callers.run_until(at * MS);
                limiter.evict_idle();
                assert!(limiter.try_acquire(&key).is_err(), "callers are before it");
                assert_eq!(limiter.stats().keys, 1);
                callers.run_until(5_000 * MS);
                let turns: Vec<_> = callers.done.iter().map(|(index, time, _)| (*index, time / MS)).collect();
                let told = Vec::from_iter((0..40).map(|index| (index, 100 * (index as u64 + 1))));
                assert_eq!(turns, told, "at {at} ms, debt {debt:?}");
            }
        }
    }
}

/// The key is evicted when its callers are long due, because their timers are late.
#[test]
fn callers_that_are_due_are_served_when_their_key_is_evicted() {
    for (limiter, mock) in limiters(Quota::per_second(10).burst(1), Some(100)) {
        let mut callers = Callers::new(mock);
        assert!(limiter.try_acquire(&7).is_ok());
        (0..10).for_each(|_| callers.join(limiter.key(&7)));
        callers.advance_to(HOUR);
        assert_eq!(limiter.evict_idle(), 1);
        callers.run_until(HOUR);
        // All at once: the test polls the last one first.
        assert_eq!((callers.order().len(), callers.most_polls), (10, 2));
    }
}

/// A caller is turned away, and dropped or never polled again: those behind it go on.
#[test]
fn a_caller_that_is_turned_away_holds_up_no_others() {
    let acts: [(Forget, usize, [usize; 4]); 2] = [
        (|limiter| assert!(limiter.remove(&7)), 0, [1, 2, 3, 4]),
        // The first one has a promised token, and keeps it.
        (|limiter| limiter.set_rule(Quota::UNLIMITED).unwrap(), 1, [0, 2, 3, 4]),
    ];
    for ((turn_away, stopped, order), is_dropped) in acts.iter().flat_map(|act| [(act, true), (act, false)]) {
        for (limiter, mock) in limiters(Quota::per_second(10).burst(1), None) {
            let mut callers = Callers::new(mock);
            assert!(limiter.try_acquire(&7).is_ok());
            (0..5).for_each(|_| callers.join(limiter.key(&7)));
            turn_away(&limiter);
            let kept = callers.all[*stopped].take().filter(|_| !is_dropped);
            callers.run_until(3_000 * MS);
            let mut served = callers.order();
            served.sort_unstable();
            assert_eq!(served, order);
            assert!(callers.most_polls <= 6, "{}", callers.most_polls);
            drop(kept);
        }
    }
}

/// Without debt no caller is promised a token: a pause stops those in line, too, for as long as it
/// lasts. It may end early.
#[test]
fn a_pause_stops_callers_in_line_that_are_promised_nothing() {
    let quota = Quota::per_second(100).burst(1);
    for pause in [1_000 * MS, 10_000 * MS, 24 * HOUR] {
        for (limiter, mock) in limiters(quota, Some(0)) {
            let mut callers = Callers::new(mock);
            (0..21).for_each(|_| callers.join(limiter.key(&7)));
            limiter.set_rule(Quota::BLOCKED).unwrap();
            callers.run_until(pause);
            assert_eq!((callers.order(), callers.most_polls <= 3), (vec![0], true));
            limiter.set_rule(quota).unwrap();
            callers.run_until(pause + 190 * MS);
            assert_eq!(callers.order(), Vec::from_iter(0..21), "after {pause} ns");
        }
    }
}
