//! Many keys: a small limiter, floods, evictions, all policies, on a clock that is moved both ways, against an exact bucket
//! for each key that is held and for each that is shared.
//!
//! Whether a key is held is seen from outside: a look that finds its entry compares its key. So it is known after each
//! step who was evicted, and that they might be; that a new key was turned away only for want of room; and which
//! bucket an answer must be of. A table calls no code of keys: there it is known by what is counted (`keyed/table.rs`).
//! A key is asked for under its own quota and under plans. Plans are made before and after changes of
//! quota.

mod model;
mod probe;
mod table;

use arbitrary::{Arbitrary, Unstructured};
use tollgate::WhenFull;

use self::model::Model;
use self::probe::{Alike, Limiter};
use crate::bytes::Bytes;
use crate::reference::Asked;
use crate::reference::steps::{Amount, Move, Scale, counted, near, quota};
use crate::reference::time::{LAST, Time};
use crate::reference::{Ideal, Unit};
use crate::steps::asked;

const MOST_STEPS: usize = 64;
/// Half of the least range that a stamp has, in nanoseconds.
const STRAIGHT: u64 = 1 << 45;

#[derive(Debug)]
pub struct Case {
    quota: Asked,
    policy: WhenFull,
    max_keys: usize,
    /// In a table, not in a map.
    inline: bool,
    hasher: Alike,
    initial: Option<Amount>,
    /// Plans are made: how many times the rate and the burst there is room for.
    plans: Option<(u8, u8)>,
    start: u64,
    steps: Vec<(Move, u64, Pace, Verb)>,
}

/// The quota that a step is under.
#[derive(Clone, Copy, Debug)]
enum Pace {
    Own,
    /// One of the latest plans, counted back from 1.
    Plan(u8),
    /// A plan that is made for it, of times the rate and the burst.
    NewPlan(u8, u8),
}

impl Pace {
    fn read(bytes: &mut Bytes<'_>) -> Pace {
        match bytes.byte() {
            which @ 0..224 if which % 4 == 0 => Pace::Own,
            which @ 0..224 => Pace::Plan(which % 4),
            _ => Pace::NewPlan(bytes.byte(), bytes.byte()),
        }
    }
}

/// The end of a reservation.
#[derive(Clone, Copy, Debug)]
enum End {
    Used,
    Dropped,
    /// Dropped after the time of some tokens and a take at another pace.
    DroppedLater(u8, Pace, Amount),
}

impl End {
    fn read(plans: bool, bytes: &mut Bytes<'_>) -> End {
        if !plans || bytes.byte() < 128 {
            return End::Dropped;
        }
        let tokens = bytes.byte() % 8;
        End::DroppedLater(tokens, Pace::read(bytes), Amount::read(bytes))
    }
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Take(Amount),
    TakePinned(Amount),
    UpTo(Amount),
    Reserve(Amount, End),
    /// And settled at once.
    Hold(Amount, Amount),
    Refund(Amount),
    Peek,
    Remove,
    Clear,
    EvictIdle,
    /// So many new keys.
    Flood(u8),
    SetQuota(u8, u8),
}

impl Verb {
    fn read(kind: u8, plans: bool, bytes: &mut Bytes<'_>) -> Verb {
        match kind % 16 {
            0..=3 => Verb::Take(Amount::read(bytes)),
            4 => Verb::TakePinned(Amount::read(bytes)),
            5 => Verb::UpTo(Amount::read(bytes)),
            6 => Verb::Reserve(Amount::read(bytes), End::Used),
            7 => Verb::Reserve(Amount::read(bytes), End::read(plans, bytes)),
            8 => Verb::Hold(Amount::read(bytes), Amount::read(bytes)),
            9 => Verb::Refund(Amount::read(bytes)),
            10 => Verb::Peek,
            11 => Verb::Remove,
            12 if bytes.byte() < 64 => Verb::Clear,
            12 | 13 => Verb::EvictIdle,
            14 => Verb::Flood(bytes.byte() % 16),
            _ => Verb::SetQuota(bytes.byte(), bytes.byte()),
        }
    }
}

impl Case {
    pub fn read(bytes: &[u8]) -> Case {
        let mut bytes = Bytes::new(bytes);
        let (quota, room) = (asked(&mut bytes), bytes.byte());
        let (inline, plans) =
            [(false, false), (false, true), (true, true), (true, false)][usize::from(room / 64)];
        let mut case = Case {
            quota,
            // Room for more, mostly.
            plans: plans.then(|| (bytes.byte() % 144, bytes.byte() % 144)),
            policy: [WhenFull::Share, WhenFull::Deny, WhenFull::Allow, WhenFull::Share]
                [usize::from(room % 4)],
            hasher: Alike::ALL[usize::from(room / 4 % 4).saturating_sub(1)],
            initial: (room / 16 % 4 == 3).then(|| Amount::read(&mut bytes)),
            inline,
            max_keys: usize::from(bytes.byte() % 65),
            start: bytes.spread(62),
            steps: Vec::with_capacity(MOST_STEPS),
        };
        while !bytes.is_empty() && case.steps.len() < MOST_STEPS {
            let (kind, key) = (bytes.byte(), bytes.byte());
            // Mostly one of a few.
            let key = u64::from(if key >= 64 { key % 8 } else { key });
            let by = Move::read(kind >> 4, &mut bytes);
            let pace = if plans { Pace::read(&mut bytes) } else { Pace::Own };
            case.steps.push((by, key, pace, Verb::read(kind, plans, &mut bytes)));
        }
        case
    }

    /// Tokens that a key starts with, if not full.
    fn initial(&self) -> Option<u64> {
        self.initial.map(|n| n.of(self.quota.2))
    }

    /// The limiter, and its unit.
    fn build(&self) -> Option<(Limiter, Unit, Time)> {
        let own = counted(self.quota)?;
        let (clock, time) = Time::at(self.start);
        let mut builder = Limiter::builder(own).clock(clock).hasher(self.hasher).when_full(self.policy);
        if let Some(n) = self.initial() {
            builder = builder.initial_tokens(n);
        }
        let head = self.plans.map(|(rate, size)| near(self.quota, rate, size));
        if let Some(head) = head {
            builder = builder.headroom(quota(head)?).ok()?;
        }
        let builder =
            if self.inline { builder.inline(self.max_keys) } else { builder.max_keys(self.max_keys) };
        let unit = Unit::with_room(self.quota, head, None).expect("the quota was accepted");
        Some((builder.build(), unit, time))
    }

    pub fn run(&self) {
        let Some((limiter, unit, time)) = self.build() else { return };
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
            // As in the target `bucket`: under plans the clock is off by hours, not by years.
            let by = match by {
                Move::Turn(_) | Move::Ahead(_) | Move::Rewind(_) if self.plans.is_some() => Move::Still,
                by => by,
            };
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
                return;
            }
        }
    }
}

impl<'a> Arbitrary<'a> for Case {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Case> {
        Ok(Case::read(bytes.bytes(bytes.len())?))
    }
}
