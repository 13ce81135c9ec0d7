// promise: law, never-late
//! One bucket, alone or a key's: any quota with any room, a clock that is moved both ways, all verbs but those that sleep. Each
//! answer is held against the ideal bucket, and so is a look into it afterwards; each `retry_after` is tried a nanosecond early
//! and when due. A key is asked for under plans, which are made before and after changes of quota, and is removed.

mod face;

use std::array;
use std::cell::OnceCell;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use tollgate::{Hold, Moment, Plan, Quota, RateLimiter, Reason, Reservation, TokenBucket};

use self::face::Face;

use crate::answers::{denied, granted, look, nanos, taken};
use crate::bytes::Bytes;
use crate::reference;
use crate::reference::verbs::Promise;
use crate::reference::{Answer, Ideal, Unit};
use crate::steps::{Amount, Asked, Move, Scale, asked, counted, counts_plan, near, quota};
use crate::time::{LAST, Time};
use crate::worlds::Worlds;

const MOST_STEPS: usize = 64;
/// Of a bucket that is spread: no more than it takes without a lease.
const MOST_AT_LEISURE: usize = 31;
/// The reference's sums of what was earned keep below 2^127.
const MOST_CHANGES: usize = 16;
/// Readings that are kept for a later decision.
const MOMENTS: usize = 4;
const PLANS: usize = 8;
/// A place of a table that a key has left is free again 2 s later.
const MOST_REMOVED: usize = 4;

#[derive(Debug)]
pub struct Case {
    quota: Asked,
    /// How many times the rate and the burst there is room for.
    headroom: Option<(u8, u8)>,
    max_debt: Option<Amount>,
    initial: Option<Amount>,
    /// Over cores.
    spread: bool,
    /// A key's, in a map or in a table.
    keyed: Option<Store>,
    start: u64,
    steps: Vec<(Move, Ahead, Verb)>,
}

#[derive(Clone, Copy, Debug)]
enum Store {
    Map,
    Table,
}

/// What goes ahead of a step.
#[derive(Clone, Copy, Debug)]
enum Ahead {
    /// It is under one of the latest plans, or under the own quota.
    Under(u8),
    /// A plan is made, of times the rate and the burst, and it is under that.
    Plan(u8, u8),
    Remove,
}

impl Ahead {
    fn read(bytes: &mut Bytes<'_>) -> Ahead {
        match bytes.byte() {
            which @ 0..216 => Ahead::Under(which % 4),
            216..240 => Ahead::Plan(bytes.byte(), bytes.byte()),
            _ => Ahead::Remove,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Take(Amount),
    UpTo(Amount),
    /// At one of the latest readings.
    TakeAt(u8, Amount),
    Reserve(Amount),
    /// With a patience of 256ths of the time of a token.
    ReserveWithin(Amount, u16),
    Refund(Amount),
    /// What is pending is dropped, or used: which.
    Drop(u8),
    Use(u8, Amount),
    Hold(Amount),
    /// Times the rate and the burst.
    SetQuota(u8, u8),
}

impl Verb {
    fn read(kind: u8, bytes: &mut Bytes<'_>) -> Verb {
        match kind % 16 {
            0..=3 => Verb::Take(Amount::read(bytes)),
            4 => Verb::UpTo(Amount::read(bytes)),
            5 => Verb::TakeAt(bytes.byte(), Amount::read(bytes)),
            6 | 7 => Verb::Reserve(Amount::read(bytes)),
            8 => Verb::ReserveWithin(Amount::read(bytes), bytes.short()),
            9 => Verb::Refund(Amount::read(bytes)),
            10 | 11 => Verb::Drop(bytes.byte()),
            12 | 13 => Verb::Use(bytes.byte(), Amount::read(bytes)),
            14 => Verb::Hold(Amount::read(bytes)),
            _ => Verb::SetQuota(bytes.byte(), bytes.byte()),
        }
    }
}

impl Case {
    pub fn read(bytes: &[u8]) -> Case {
        let mut bytes = Bytes::new(bytes);
        let (quota, room) = (asked(&mut bytes), bytes.byte());
        let mut case = Case {
            quota,
            headroom: (room & 1 > 0).then(|| (bytes.byte(), bytes.byte())),
            max_debt: (room & 2 > 0).then(|| Amount::read(&mut bytes)),
            initial: (room & 4 > 0).then(|| Amount::read(&mut bytes)),
            spread: room & 8 > 0,
            keyed: [None, Some(Store::Map), None, Some(Store::Table)][usize::from(room >> 6)],
            start: bytes.spread(62),
            steps: Vec::with_capacity(MOST_STEPS),
        };
        if case.keyed.is_some() {
            // What a key begins with is a matter of the target `keyed`.
            (case.spread, case.initial) = (false, None);
        }
        let most = if case.spread { MOST_AT_LEISURE } else { MOST_STEPS };
        while !bytes.is_empty() && case.steps.len() < most {
            let kind = bytes.byte();
            let ahead = case.keyed.map_or(Ahead::Under(0), |_| Ahead::read(&mut bytes));
            case.steps.push((Move::read(kind >> 4, &mut bytes), ahead, Verb::read(kind, &mut bytes)));
        }
        case
    }

    /// A limiter for the key, and its unit.
    fn build_keyed(&self, quota: Quota, store: Store) -> Option<(RateLimiter<u64>, Unit, Time)> {
        let (clock, time) = Time::at(self.start);
        let head = self.headroom.map(|(rate, size)| near(self.quota, rate, size));
        let debt = self.max_debt.map(|debt| debt.of(self.quota.2));
        let unit = Unit::with_room(self.quota, head, debt);
        let mut builder = RateLimiter::builder(quota).clock(clock);
        if let Store::Table = store {
            builder = builder.inline(64);
        }
        if let Some(debt) = debt {
            builder = builder.max_debt(debt).ok()?;
        }
        if let Some(head) = head {
            builder = builder.headroom(crate::steps::quota(head)?).ok()?;
        }
        Some((builder.build(), unit.expect("it was built"), time))
    }

    /// The bucket, and its unit: it must be refused exactly when there is none.
    fn build(&self, quota: Quota, initial: Option<u64>) -> Option<(TokenBucket, Unit, Time)> {
        let (clock, time) = Time::at(self.start);
        let head = self.headroom.map(|(rate, size)| near(self.quota, rate, size));
        let debt = self.max_debt.map(|debt| debt.of(self.quota.2));
        let unit = |head| Unit::with_room(self.quota, head, debt);
        if let (None, None, None) = (head, debt, initial) {
            return Some((TokenBucket::with_clock(quota, clock), unit(None).expect("it has one"), time));
        }
        let mut builder = TokenBucket::builder(quota).clock(clock);
        if let Some(n) = initial {
            builder = builder.initial_tokens(n);
        }
        if let Some(debt) = debt {
            let built = builder.max_debt(debt);
            assert_eq!(built.is_ok(), unit(None).is_some(), "{quota} with a debt of {debt}");
            builder = built.ok()?;
        }
        if let Some(head) = head {
            let built = builder.headroom(crate::steps::quota(head)?);
            assert_eq!(built.is_ok(), unit(Some(head)).is_some(), "{quota} with room for {head:?}");
            builder = built.ok()?;
        }
        Some((builder.build(), unit(head).expect("it was built"), time))
    }

    pub fn run(&self) {
        let Some(quota) = counted(self.quota) else { return };
        let initial = self.initial.map(|n| n.of(self.quota.2));
        let (face, unit, time) = match self.keyed {
            None => {
                let Some((bucket, unit, time)) = self.build(quota, initial) else { return };
                let bucket = if self.spread { bucket.spread() } else { bucket };
                (Face::Alone(Box::new(bucket)), unit, time)
            }
            Some(store) => {
                let Some((limiter, unit, time)) = self.build_keyed(quota, store) else { return };
                (Face::Key(limiter), unit, time)
            }
        };
        let plans = array::from_fn(|_| OnceCell::new());
        let (tokens, period, burst) = self.quota;
        let mut ideal = Ideal::in_unit(tokens, period, burst, unit);
        let scale = Scale::new(self.quota, unit, &ideal);
        if let Some(n) = initial {
            // More than any bucket has are as many.
            ideal = ideal.starting_with(n.min(1 << 41), Some(time.now()));
        }
        let mut pair = Pair {
            bucket: &face,
            plans: &plans,
            made: Vec::new(),
            under: None,
            removed: 0,
            worlds: Worlds::new(ideal),
            time,
            quota: self.quota,
            unit,
            scale,
            moments: [None; MOMENTS],
            pending: Vec::new(),
            changes: 0,
        };
        // The latest refusal, while nothing has changed it: what it was of, and when it is due.
        let mut refused: Option<(Verb, u64)> = None;
        for (number, &(by, ahead, verb)) in self.steps.iter().enumerate() {
            let before = pair.time.now();
            // A plan knows nothing of a clock that is years off, nor of a stamp that wraps: that is of a bucket alone.
            let by = match by {
                Move::Turn(_) | Move::Ahead(_) | Move::Rewind(_) if self.keyed.is_some() => Move::Still,
                by => by,
            };
            pair.time.go_to(pair.scale.moved(before, by));
            let now = pair.time.now();
            let due = refused.filter(|(_, due)| (now + 1..=LAST).contains(due));
            if let (Move::Retry, Some((verb, due))) = (by, due) {
                pair.time.go_to(due - 1);
                assert!(pair.step(verb).is_some(), "{verb:?} granted before it was due at {due} ns");
                pair.time.go_to(due);
                assert!(pair.step(verb).is_none(), "{verb:?} refused when it was due at {due} ns");
                refused = None;
            } else {
                pair.moments[number % MOMENTS] = Some((face.now(), now));
                pair.go_ahead(ahead);
                let wait = pair.step(verb);
                let (under, ideal) = (pair.under.is_some(), pair.worlds.any());
                let wait =
                    wait.filter(|wait| !under || ideal.is_straight_until(now, now.saturating_add(*wait)));
                // No longer than what no range takes for a clock that was set back.
                let lasts = wait.filter(|wait| *wait <= 1 << 61);
                refused = lasts.map(|wait| (verb, now + wait));
            }
            if pair.worlds.are_lost() {
                return;
            }
        }
        // Backwards, so that all may come back.
        while !pair.worlds.are_lost() && pair.drop(usize::MAX) {}
    }
}

impl<'a> Arbitrary<'a> for Case {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Case> {
        Ok(Case::read(bytes.bytes(bytes.len())?))
    }
}

/// What may be given back, or settled.
enum Pending<'a> {
    /// And what a look said when it was made.
    Reservation(Reservation<'a>, u64, Answer),
    Hold(Hold<'a>, u64),
}

/// A plan, as the crate and the reference have it.
#[derive(Clone, Copy)]
struct Made<'a> {
    plan: &'a Plan,
    ideal: reference::plan::Plan,
}

struct Pair<'a> {
    bucket: &'a Face,
    plans: &'a [OnceCell<Plan>; PLANS],
    made: Vec<Made<'a>>,
    /// Of what is asked now.
    under: Option<Made<'a>>,
    /// How often the key was.
    removed: usize,
    worlds: Worlds,
    time: Time,
    quota: Asked,
    unit: Unit,
    scale: Scale,
    moments: [Option<(Moment, u64)>; MOMENTS],
    /// The worlds have a slot for each. Beside it the plan it is under, and how often the key was removed before.
    pending: Vec<(Pending<'a>, Option<Made<'a>>, usize)>,
    changes: usize,
}

/// The wait of what was refused, if it ever ends.
type Wait = Option<u64>;

impl<'a> Pair<'a> {
    fn go_ahead(&mut self, ahead: Ahead) {
        match ahead {
            Ahead::Under(0) => self.ask_under(None),
            Ahead::Under(which) => {
                let which = self.made.iter().rev().nth(usize::from(which) - 1).copied();
                self.ask_under(which);
            }
            Ahead::Plan(rate, size) => self.plan(near(self.quota, rate, size)),
            Ahead::Remove if self.removed < MOST_REMOVED => {
                if self.bucket.remove() {
                    self.removed += 1;
                    self.worlds.each(|world| world.ideal.begin_anew());
                }
            }
            Ahead::Remove => {}
        }
    }

    fn ask_under(&mut self, made: Option<Made<'a>>) {
        self.under = made;
        self.worlds.each(|world| world.ideal.under(made.map(|made| made.ideal)));
    }

    fn plan(&mut self, asked @ (tokens, period, burst): Asked) {
        let small = counts_plan(self.quota, asked) && self.worlds.any().ticks_are_slow();
        if let Some(place) = self.plans.get(self.made.len()).filter(|_| small)
            && let Some(quota) = quota(asked)
            && let Some(plan) = self.bucket.plan(quota)
        {
            let plan = place.get_or_init(|| plan);
            self.worlds.each(|world| _ = world.ideal.plan(tokens, period, burst));
            let ideal = self.worlds.any().clone().plan(tokens, period, burst);
            self.made.push(Made { plan, ideal });
            self.ask_under(self.made.last().copied());
        }
    }

    fn under(&self) -> Option<&'a Plan> {
        self.under.map(|made| made.plan)
    }

    fn burst(&self) -> u64 {
        self.under().map_or(self.quota.2, |plan| plan.quota().capacity())
    }

    /// Does it, and holds it and a look against the ideal.
    fn step(&mut self, verb: Verb) -> Wait {
        let burst = self.burst();
        let wait = match verb {
            Verb::Take(n) => self.take(n.of(burst)),
            Verb::UpTo(n) => self.up_to(n.of(burst)),
            Verb::TakeAt(which, n) => self.take_at(usize::from(which) % MOMENTS, n.of(burst)),
            Verb::Reserve(n) => self.reserve(n.of(burst), None),
            Verb::ReserveWithin(n, by) => self.reserve(n.of(burst), Some(self.scale.time(by.into(), 256))),
            Verb::Refund(n) => {
                self.refund(n.of(burst));
                None
            }
            Verb::Drop(which) => {
                self.drop(usize::from(which) % MOST_STEPS);
                None
            }
            Verb::Use(which, actual) => {
                self.make_use(which.into(), actual.of(burst));
                None
            }
            Verb::Hold(n) => self.hold(n.of(burst)),
            Verb::SetQuota(rate, size) => {
                self.set_quota(near(self.quota, rate, size));
                None
            }
        };
        self.look();
        wait
    }

    fn look(&mut self) {
        let (now, seen) = (self.time.now(), look(self.bucket.peek(self.under())));
        self.worlds.check(|world| world.ideal.take(now, 0, seen));
    }

    fn take(&mut self, n: u64) -> Wait {
        let (now, burst) = (self.time.now(), self.burst());
        let answer = taken(self.bucket.take(n, self.under()), n, burst);
        self.worlds.check(|world| world.ideal.take(now, n.min(burst + 1), answer));
        answer.retry_after
    }

    fn take_at(&mut self, which: usize, n: u64) -> Wait {
        let (moment, then) = self.moments[which]?;
        let (now, burst) = (self.time.now(), self.burst());
        let answer = taken(self.bucket.take_at(moment, n, self.under()), n, burst);
        self.worlds.check(|world| {
            let at = if world.ideal.admits(then) { then } else { now };
            world.ideal.take(at, n.min(burst + 1), answer)
        });
        None
    }

    fn up_to(&mut self, n: u64) -> Wait {
        let (now, given) = (self.time.now(), self.bucket.up_to(n, self.under()));
        let (tokens, mut answer) = (given.tokens(), granted(given));
        if tokens > 0 || n == 0 {
            self.worlds.check(|world| world.ideal.take_up_to(now, n, tokens, answer));
            return None;
        }
        // When there is one is told to who asks for one.
        let refused = denied(self.bucket.take(1, self.under()).expect_err("there is none"));
        (answer.granted, answer.retry_after) = (false, refused.retry_after);
        self.worlds.check(|world| world.ideal.take_up_to(now, n, 0, answer));
        self.worlds.check(|world| world.ideal.take(now, 1, refused));
        None
    }

    fn reserve(&mut self, n: u64, patience: Option<u64>) -> Wait {
        let (now, burst) = (self.time.now(), self.burst());
        let reserved = self.bucket.reserve(n, patience.map(Duration::from_nanos), self.under());
        // Reading the clock again tells the same.
        let reading = self.bucket.now();
        self.worlds.slot(now, n.min(burst + 1));
        let promise = match &reserved {
            Ok(reservation) => {
                let delay = nanos(reservation.delay());
                // The longest delay there is ends when readings do.
                assert_eq!(nanos(reservation.ready_at().since(reading)), delay.min(u64::MAX - now));
                // What it says of the bucket is told when it is used.
                Promise { answer: look(self.bucket.peek(self.under())), delay: Some(delay), indebted: false }
            }
            Err(refused) => {
                let indebted = refused.reason() == Reason::Debt;
                assert_eq!(refused.reason() == Reason::TooMany, n > burst);
                Promise { answer: denied(*refused), delay: None, indebted }
            }
        };
        let n = n.min(burst + 1);
        self.worlds.check(|world| match patience {
            // It is a take, and refused as one.
            Some(0) => {
                assert!(promise.delay.unwrap_or(0) == 0 && !promise.indebted);
                world.ideal.take(now, n, promise.answer)
            }
            _ => world.ideal.reserve(now, n, patience, promise),
        });
        match reserved {
            Ok(reservation) => self.keep(Pending::Reservation(reservation, n, promise.answer)),
            Err(_) => self.worlds.forget(self.pending.len()),
        }
        promise.answer.retry_after
    }

    fn hold(&mut self, n: u64) -> Wait {
        let (now, burst) = (self.time.now(), self.burst());
        // A key that is held nothing of has an entry, which no answer tells.
        let n = if self.bucket.is_key() { n.max(1) } else { n };
        self.worlds.slot(now, n.min(burst + 1));
        let held = self.bucket.hold(n, self.under());
        let answer = taken(held.as_ref().map(Hold::granted).map_err(|refused| *refused), n, burst);
        self.worlds.check(|world| world.ideal.take(now, n.min(burst + 1), answer));
        match held {
            Ok(hold) => self.keep(Pending::Hold(hold, n)),
            Err(_) => self.worlds.forget(self.pending.len()),
        }
        answer.retry_after
    }

    fn refund(&mut self, n: u64) {
        self.bucket.refund(n, self.under());
        self.worlds.refund(self.time.now(), n.min(1 << 41));
    }

    fn keep(&mut self, pending: Pending<'a>) {
        self.pending.push((pending, self.under, self.removed));
    }

    /// What is pending, under its plan. Whether its bucket is still there.
    fn pick(&mut self, which: usize) -> (Pending<'a>, bool) {
        let (pending, under, removed) = self.pending.swap_remove(which);
        self.ask_under(under);
        (pending, removed == self.removed)
    }

    /// Drops what is pending. False if nothing is.
    fn drop(&mut self, which: usize) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let which = which.min(self.pending.len() - 1);
        match self.pick(which) {
            (Pending::Reservation(reservation, n, _), true) => {
                drop(reservation);
                self.worlds.give_back(self.time.now(), which, n);
            }
            // It stays as it was estimated, or is of a key that was removed.
            (pending, _) => {
                drop(pending);
                self.worlds.forget(which);
            }
        }
        self.look();
        true
    }

    fn make_use(&mut self, which: usize, actual: u64) {
        if self.pending.is_empty() {
            return;
        }
        let (which, now) = (which % self.pending.len(), self.time.now());
        let (pending, is_there) = self.pick(which);
        match pending {
            Pending::Reservation(reservation, n, seen) => {
                let given = reservation.commit();
                let told = granted(given);
                assert_eq!(given.tokens(), n);
                assert_eq!((told.remaining, told.reset_after), (seen.remaining, seen.reset_after));
            }
            Pending::Hold(hold, estimate) => {
                let rest = hold.settle(actual);
                match actual.checked_sub(estimate) {
                    Some(more) if !is_there => assert_eq!(rest, more),
                    None if is_there => self.worlds.refund(now, estimate - actual),
                    None | Some(0) => {}
                    Some(more) => {
                        let taken = more.checked_sub(rest).expect("the rest is a part");
                        self.worlds.check(|world| world.ideal.charge_up_to(now, more, taken));
                    }
                }
                assert!(rest == 0 || actual > estimate);
            }
        }
        self.worlds.forget(which);
    }

    fn set_quota(&mut self, asked @ (tokens, _, burst): Asked) {
        let Some(quota) = quota(asked) else { return };
        let wraps = !self.made.is_empty() && !self.worlds.any().ticks_are_slow();
        if self.changes == MOST_CHANGES || wraps {
            return;
        }
        let set = self.bucket.set_quota(quota).is_ok();
        assert_eq!(set, self.unit.takes(asked), "{asked:?} after {:?}", self.quota);
        if set {
            let now = self.time.now();
            self.worlds.each(|world| world.ideal.set_quota(now, tokens, burst));
            self.scale = Scale::new(asked, self.unit, self.worlds.any());
            self.quota = asked;
            self.changes += 1;
        }
        let told = self.bucket.quota();
        assert_eq!((told.tokens(), nanos(told.period()), told.capacity()), self.quota);
    }
}
