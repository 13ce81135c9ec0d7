//! A small limiter of many keys, with floods, evictions and all policies, on a clock that is moved
//! both ways. There is an exact bucket for each held key and for each shared bucket.
//!
//! A look at a held key compares the key, which tells from outside that it is held. So after each
//! step the evicted keys are known, and that they might be evicted. It is also known that a new key
//! was turned away only for want of room, and which bucket gave an answer. A table calls no code of
//! keys: there the counts tell (`keyed/table.rs`).
//!
//! A key is asked for under its own quota and under plans. Plans are made before and after changes
//! of quota.

#![allow(dead_code, reason = "not every user of the reference has keys")]

mod model;
pub(crate) mod probe;
mod table;

use tollgate::{RateLimiter, WhenFull};
use tollgate_testing::reference::steps::{Amount, LAST, Move, Scale, near};
use tollgate_testing::reference::{Asked, Ideal, Unit};

use self::model::Model;
use self::probe::{Alike, Limiter};
use super::quotas::{counted, quota};
use super::time::Time;

/// Half of the least range of a stamp, in nanoseconds.
const STRAIGHT: u64 = 1 << 45;

#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) quota: Asked,
    pub(crate) policy: WhenFull,
    pub(crate) max_keys: usize,
    /// Whether the store is a table.
    pub(crate) inline: bool,
    pub(crate) hasher: Alike,
    pub(crate) initial: Option<Amount>,
    /// The multiples of the rate and the burst that plans have room for, if any.
    pub(crate) plans: Option<(u8, u8)>,
    pub(crate) start: u64,
    pub(crate) steps: Vec<(Move, u64, Pace, Verb)>,
}

/// The quota that a step is under.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    Own,
    /// One of the latest plans, counted back from 1.
    Plan(u8),
    /// A plan that is made for the step, of multiples of the rate and the burst.
    NewPlan(u8, u8),
}

/// The end of a reservation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Used,
    Dropped,
    /// Dropped after the time of some tokens and a take at another pace.
    DroppedLater(u8, Pace, Amount),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Take(Amount),
    TakePinned(Amount),
    /// Some tokens, if a part of the burst stays, in percent.
    Above(Amount, u8),
    UpTo(Amount),
    Reserve(Amount, End),
    /// A hold that is settled at once.
    Hold(Amount, Amount),
    Refund(Amount),
    Peek,
    Remove,
    Clear,
    EvictIdle,
    /// A number of new keys.
    Flood(u8),
    SetQuota(u8, u8),
}

impl Case {
    /// Returns the initial tokens of a key, if not full.
    fn initial(&self) -> Option<u64> {
        self.initial.map(|n| n.of(self.quota.2))
    }

    /// Returns the limiter, its unit and its clock.
    fn build(&self) -> Option<(Limiter, Unit, Time)> {
        let own = counted(self.quota)?;
        let (clock, time) = Time::at(self.start);
        let mut builder =
            RateLimiter::<u64>::builder(own).clock(clock).hasher(self.hasher).when_full(self.policy);
        if let Some(n) = self.initial() {
            builder = builder.initial_tokens(n);
        }
        let head = self.plans.map(|(rate, size)| near(self.quota, rate, size));
        if let Some(head) = head {
            builder = builder.headroom(quota(head)?).ok()?;
        }
        let builder = if self.inline {
            builder.max_keys(self.max_keys).inline().unwrap()
        } else {
            builder.max_keys(self.max_keys)
        };
        let unit = Unit::with_room(self.quota, head, None).expect("the quota was accepted");
        Some((builder.build(), unit, time))
    }

    /// Runs the case, and returns the number of evictions.
    pub(crate) fn run(&self) -> u64 {
        let Some((limiter, unit, time)) = self.build() else { return 0 };
        let (tokens, period, burst) = self.quota;
        let mut unused = Ideal::in_unit(tokens, period, burst, unit);
        let scale = Scale::new(self.quota, unit, &unused);
        if let Some(n) = self.initial() {
            unused = unused.starting_with(n.min(1 << 41), None);
        }
        let mut model = Model::new(limiter, self, unused, unit, scale, time);
        let mut refused: Option<(u64, Verb, u64)> = None;
        for &(by, key, pace, verb) in &self.steps {
            let before = model.time.now();
            // Under plans the clock is off by hours, not by years, as in the target `bucket`.
            let by = if self.plans.is_some() { by.of_hours() } else { by };
            model.time.go_to(model.scale.moved(before, by));
            let now = model.time.now();
            model.straight &= (before..self.start.saturating_add(STRAIGHT)).contains(&now);
            if now < before {
                model.begin_a_turn();
            }
            let due = refused.filter(|(_, _, due)| (now + 1..=LAST).contains(due));
            if let (Move::Retry, Some((key, verb, due))) = (by, due) {
                model.time.go_to(due - 1);
                assert!(model.step(key, verb).is_some(), "{key}: {verb:?} before it was due at {due} ns");
                model.time.go_to(due);
                assert!(model.step(key, verb).is_none(), "{key}: {verb:?} when it was due at {due} ns");
                refused = None;
            } else {
                model.ask_at(pace);
                let wait = model.step(key, verb).filter(|wait| *wait <= 1 << 61);
                let wait = wait.filter(|wait| model.is_exact(key, *wait));
                refused = wait.map(|wait| (key, verb, now + wait));
            }
            if model.is_lost() {
                break;
            }
        }
        model.evicted
    }
}
