// promise: law, never-late
//! Random sequences through the public face, held against the ideal bucket after every step.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use tollgate::{Denied, Granted, Quota, RateLimiter, Snapshot, TokenBucket};

use super::{IN_TABLE, InStore, Room};
use crate::reference::Ideal;
use crate::support::{Time, answer, cases, look, nanos, quotas, ticks, unit_of};

/// How the clock moves before a step: in nanoseconds, token times, fill times, ...
#[derive(Clone, Debug)]
enum Move {
    Still,
    Nanos(u64),
    Tokens(f64),
    Fills(f64),
    Years(f64),
    /// Behind, by a part of what counts as jitter.
    Stale(f64),
    /// Set back, by more than that and a part of an hour.
    Back(f64),
    /// To when the last refusal said, or a nanosecond before.
    Retry {
        early: bool,
    },
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => Just(Move::Still),
        2 => (0..2_000_u64).prop_map(Move::Nanos),
        6 => (0.0..3.0).prop_map(Move::Tokens),
        2 => (0.0..2.0).prop_map(Move::Fills),
        1 => (0.0..0.4).prop_map(Move::Years),
        3 => (0.0..1.0).prop_map(Move::Stale),
        1 => (0.0..1.0).prop_map(Move::Back),
        4 => any::<bool>().prop_map(|early| Move::Retry { early }),
    ]
}

fn starts() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..1_u64 << 50, 0..1_u64 << 61]
}

/// Mostly a few tokens, sometimes about the burst, sometimes none or too many.
fn amount(part: f64, burst: u64) -> u64 {
    match (part * 10.0) as u64 {
        0 => (part * 20.0) as u64,
        1 => (part * burst as f64 * 5.0) as u64,
        _ => 1 + (part * burst.min(9) as f64) as u64 / 2,
    }
}

/// What takes tokens of one bucket.
trait Bucket {
    fn take(&self, n: u64) -> Result<Granted, Denied>;
    fn look(&self) -> Snapshot;
}

impl Bucket for TokenBucket {
    fn take(&self, n: u64) -> Result<Granted, Denied> {
        self.try_acquire_n(n)
    }

    fn look(&self) -> Snapshot {
        self.peek()
    }
}

impl Bucket for RateLimiter<String> {
    fn take(&self, n: u64) -> Result<Granted, Denied> {
        if n.is_multiple_of(2) {
            self.try_acquire_n("the key", n)
        } else {
            self.pin().try_acquire_n("the key", n)
        }
    }

    fn look(&self) -> Snapshot {
        self.peek("the key")
    }
}

/// Where a move takes the clock; past 2^62 ns readings are over.
fn moved(step: &Move, now: u64, quota: Quota, jitter: u64) -> u64 {
    let token = nanos(quota.period()) as f64 / quota.tokens() as f64;
    match *step {
        Move::Still | Move::Retry { .. } => now,
        Move::Nanos(by) => now + by,
        Move::Tokens(by) => now.saturating_add((by * token) as u64),
        Move::Fills(by) => now.saturating_add((by * token * quota.capacity() as f64) as u64),
        Move::Years(by) => now.saturating_add((by * 3.15e16) as u64),
        Move::Stale(by) => now.saturating_sub((by * jitter as f64) as u64),
        Move::Back(by) => now.saturating_sub(jitter).saturating_sub((by * 3.6e12) as u64),
    }
}

fn ideal_of(quota: Quota) -> Ideal {
    Ideal::new(quota.tokens(), nanos(quota.period()), quota.capacity())
}

fn walk(
    bucket: &impl Bucket,
    mut time: Time,
    quota: Quota,
    start: u64,
    steps: &[(Move, f64)],
) -> TestCaseResult {
    let mut ideal = ideal_of(quota);
    let jitter = ideal.jitter();
    time.set(start);
    let mut retry = None;
    for (step, part) in steps {
        let mut now = moved(step, time.now(), quota, jitter);
        let mut n = amount(*part, quota.capacity());
        let mut must = None;
        if let (Move::Retry { early }, Some((wait, wanted))) = (step, retry)
            && wait > 0
        {
            now = now.saturating_add(wait - u64::from(*early));
            (n, must) = (wanted, Some(!early));
        }
        if now >= 1 << 62 {
            break;
        }
        time.set(now);
        let decision = bucket.take(n);
        if let Some(granted) = must {
            prop_assert_eq!(decision.is_ok(), granted, "retry_after of {:?} at {}", retry, now);
        }
        ideal.take(now, n, answer(decision)).map_err(TestCaseError::fail)?;
        // A look says the same as taking nothing, and changes nothing.
        let seen = look(bucket.look());
        ideal.take(now, 0, seen).map_err(TestCaseError::fail)?;
        let nothing = answer(bucket.take(0));
        prop_assert_eq!((nothing.remaining, nothing.reset_after), (seen.remaining, seen.reset_after));
        retry = decision.err().and_then(|denied| denied.retry_after()).map(|wait| (nanos(wait), n));
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn a_token_bucket_keeps_to_the_ideal(
        quota in quotas(),
        start in starts(),
        steps in prop::collection::vec((moves(), 0.0..1.0_f64), 1..120),
    ) {
        let (clock, time) = Time::new();
        walk(&TokenBucket::with_clock(quota, clock), time, quota, start, &steps)?;
    }

    /// So many takes are not enough for a lease.
    #[test]
    fn a_bucket_that_is_spread_keeps_to_the_ideal(
        quota in quotas(),
        start in starts(),
        steps in prop::collection::vec((moves(), 0.0..1.0_f64), 1..32),
    ) {
        let (clock, time) = Time::new();
        walk(&TokenBucket::with_clock(quota, clock).spread(), time, quota, start, &steps)?;
    }

    #[test]
    fn a_limiter_of_one_key_keeps_to_the_ideal(
        quota in quotas(),
        start in starts(),
        steps in prop::collection::vec((moves(), 0.0..1.0_f64), 1..120),
    ) {
        let (clock, time) = Time::new();
        let limiter = RateLimiter::<String>::stored(quota).clock(clock).room(1).build();
        walk(&limiter, time, quota, start, &steps)?;
    }
}

#[test]
fn keys_that_come_and_go_keep_to_their_ideals() {
    let steps = prop::collection::vec((moves(), verbs(), 0.0..1.0_f64), 1..160);
    let (takes, evicted) = (Cell::new(0), Cell::new(0));
    let walked = TestRunner::new(cases(3_000)).run(&(quotas(), starts(), steps), |(quota, start, steps)| {
        let done = keyed_walk(quota, start, &steps)?;
        takes.set(takes.get() + done.0);
        evicted.set(evicted.get() + done.1);
        Ok(())
    });
    walked.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{} takes, {} evicted", takes.get(), evicted.get());
    assert!(evicted.get() * 50 > takes.get(), "hardly anything was evicted: {}", evicted.get());
}

const KEYS: usize = 5;

#[derive(Clone, Debug)]
enum Verb {
    Take(usize),
    Remove(usize),
    EvictIdle,
}

fn verbs() -> impl Strategy<Value = Verb> {
    prop_oneof![
        12 => (0..KEYS).prop_map(Verb::Take),
        1 => (0..KEYS).prop_map(Verb::Remove),
        4 => Just(Verb::EvictIdle),
    ]
}

const MARGIN: u64 = 2_000_000_000;

/// One key, from the outside.
struct Seen {
    ideal: Ideal,
    held: bool,
    /// When it is full, if nobody takes more; of a held key.
    full_at: u64,
    /// It may be one of those that went to make room.
    doubtful: bool,
}

impl Seen {
    fn may_be_evicted(&self, now: u64) -> bool {
        self.held && now >= self.full_at.saturating_add(MARGIN)
    }
}

/// A limiter's keys and their ideals.
struct Model {
    limiter: RateLimiter<u64>,
    quota: Quota,
    keys: Vec<Seen>,
    /// Held keys that are not: their places were given to others. (Nobody is told whose they were, but by when a key is counted
    /// again.)
    gone: usize,
}

impl Model {
    /// Takes from a key. Whether it is held already is known, unless it is doubtful.
    fn take(&mut self, key: usize, now: u64, n: u64) -> TestCaseResult {
        let (fresh, burst) = (ideal_of(self.quota), self.quota.capacity());
        let before = self.limiter.stats();
        let decision = self.limiter.try_acquire_n(&(key as u64), n);
        let after = self.limiter.stats();
        let evicted = after.evicted - before.evicted;
        let made = after.keys as u64 + evicted - before.keys as u64;
        prop_assert!(made <= 1 && evicted <= made);
        let seen = &mut self.keys[key];
        if n == 0 || n > burst {
            prop_assert_eq!(made, 0, "n = {} makes no entry", n);
        } else {
            prop_assert!(seen.doubtful || (made == 1) != seen.held, "{} was lost or kept", key);
            if made == 1 {
                self.gone -= usize::from(seen.doubtful);
                seen.ideal = fresh;
            }
            (seen.held, seen.doubtful) = (true, false);
        }
        seen.ideal.take(now, n, answer(decision)).map_err(TestCaseError::fail)?;
        let after = look(self.limiter.peek(&(key as u64)));
        seen.ideal.take(now, 0, after).map_err(TestCaseError::fail)?;
        let reset = after.reset_after.expect("a look says when it is full");
        if n > 0 && n <= burst && reset > 0 {
            seen.full_at = now.saturating_add(reset);
        }
        if evicted == 1 {
            self.gone += 1;
            let others = self.keys.iter_mut().enumerate().filter(|(other, _)| *other != key);
            let idle = others.filter(|(_, seen)| seen.may_be_evicted(now));
            let idle: Vec<_> = idle.map(|(other, seen)| (other, seen.doubtful = true).0).collect();
            prop_assert!(!idle.is_empty(), "nobody was idle");
            // Each is asked: once the clock goes back there is a difference.
            for other in idle {
                self.take(other, now, 1)?;
            }
        }
        Ok(())
    }

    fn remove(&mut self, key: usize) -> TestCaseResult {
        let seen = &mut self.keys[key];
        let removed = self.limiter.remove(&(key as u64));
        prop_assert!(seen.doubtful || removed == seen.held);
        self.gone -= usize::from(seen.doubtful && !removed);
        *seen = Seen { ideal: ideal_of(self.quota), held: false, full_at: 0, doubtful: false };
        Ok(())
    }

    /// Evicts, and holds the number against what must go, and what may.
    fn evict(&mut self, now: u64) -> TestCaseResult {
        // The margin is counted in whole ticks, one more than it takes.
        let must_at = now.saturating_sub(ticks(self.quota, 2));
        let least = self.keys.iter().filter(|seen| seen.may_be_evicted(must_at)).count();
        let most = self.keys.iter().filter(|seen| seen.may_be_evicted(now)).count();
        let before = self.limiter.len();
        let evicted = self.limiter.evict_idle();
        prop_assert_eq!(self.limiter.len(), before - evicted);
        let range = least.saturating_sub(self.gone)..=most;
        prop_assert!(range.contains(&evicted), "{} evicted, not {:?}", evicted, range);
        let unsure: Vec<_> = (0..KEYS).filter(|key| self.keys[*key].may_be_evicted(now)).collect();
        // Either way they were full for the margin.
        self.gone += evicted;
        for key in unsure {
            let seen = &mut self.keys[key];
            if seen.may_be_evicted(must_at) {
                self.gone -= 1;
                (seen.held, seen.doubtful, seen.ideal) = (false, false, ideal_of(self.quota));
            } else {
                seen.doubtful = true;
                self.take(key, now, 1)?;
            }
        }
        Ok(())
    }
}

/// The clock never goes back behind what may be evicted, nor through the whole range of a stamp: from the outside an
/// eviction says that a bucket is full for good. Tells how many takes and evictions there were.
fn keyed_walk(quota: Quota, start: u64, steps: &[(Move, Verb, f64)]) -> Result<(u64, u64), TestCaseError> {
    let (clock, mut time) = Time::new();
    // All in one set of a table.
    let limiter = RateLimiter::stored(quota).clock(clock).room(KEYS).build();
    let unseen = || Seen { ideal: ideal_of(quota), held: false, full_at: 0, doubtful: false };
    let mut model = Model { limiter, quota, keys: (0..KEYS).map(|_| unseen()).collect(), gone: 0 };
    let jitter = ideal_of(quota).jitter();
    let unit = unit_of(quota);
    let range = (u128::from(nanos(quota.period())) << (unit.stamp + unit.scale))
        / (u128::from(quota.tokens()) << unit.fraction);
    let end = u64::try_from((u128::from(start) + range / 2).min(1 << 62)).expect("at most 2^62");
    // A jump is one of at most half an hour, or of a 128th of the range.
    let furthest =
        jitter.saturating_add(u64::try_from(range / 128).unwrap_or(u64::MAX).min(1_800_000_000_000));
    let (mut peak, mut takes, mut removed) = (start, 0, 0);
    time.set(start);
    for (step, verb, part) in steps {
        let now = moved(step, time.now(), quota, jitter).max(peak.saturating_sub(furthest));
        if now >= end {
            break;
        }
        peak = peak.max(now);
        time.set(now);
        match *verb {
            Verb::Take(key) => {
                model.take(key, now, amount(*part, quota.capacity()))?;
                takes += 1;
            }
            // Of eight places five are for the keys; in a table, one that was left is taken for 2 s.
            Verb::Remove(_) if IN_TABLE && removed == 3 => continue,
            Verb::Remove(key) => {
                model.remove(key)?;
                removed += 1;
            }
            Verb::EvictIdle => model.evict(now)?,
        }
        let held = model.keys.iter().filter(|seen| seen.held).count();
        let held = held - model.gone;
        prop_assert_eq!((model.limiter.len(), model.limiter.stats().keys), (held, held));
    }
    Ok((takes, model.limiter.stats().evicted))
}
