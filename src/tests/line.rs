// promise: law
//! A line beside a reference that computes all places from the beginning, after each step.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::bucket::line::bank::{Bank, Credit, Mark, Sight};
use crate::bucket::line::caller_line::{CallerLine, Entered, InLine, LineTurn, Wakes, Wish};
use crate::limiter::limit::TokenBucket;
use crate::rule::rate::Quota;
use crate::word::decision::{Denied, Granted, Reason};
use tollgate_testing::{Random, size};

/// A bucket that earns a unit at each tick of a clock in milliseconds.
struct Scale {
    now: i64,
    /// The level is `now - mark`.
    mark: i64,
    burst: i64,
    debt: i64,
    /// The refusal of a take for which there are too few units.
    empty: Denied,
    /// Each stretch that the line took and has not given back.
    taken: Vec<(i64, i64)>,
}

impl Scale {
    fn new(burst: i64, debt: i64) -> Scale {
        let bucket = TokenBucket::new(Quota::per_hour(1));
        assert!(bucket.try_acquire().is_ok());
        let empty = bucket.try_acquire().unwrap_err();
        Scale { now: 0, mark: -burst, burst, debt, empty, taken: Vec::new() }
    }

    fn level(&mut self) -> i64 {
        self.mark = self.mark.max(self.now - self.burst);
        self.now - self.mark
    }
}

impl Bank for Scale {
    fn sight(&mut self, base: Option<u64>) -> Sight {
        self.level();
        let base = base.map_or(self.now, u64::cast_signed);
        let (tick, now) = (self.now.cast_unsigned(), self.now - base);
        let Scale { mark, burst, debt, .. } = *self;
        // Early, so that runs count positions anew.
        let stands = Mark { empty_at: mark.cast_unsigned(), stamp: 0 };
        Sight {
            tick,
            now,
            mark: Some((mark - base, stands)),
            burst,
            debt,
            is_shut: false,
            is_gone: false,
            far: now > 500,
        }
    }

    fn take_now(&mut self, n: u64) -> Option<Result<Granted, Denied>> {
        if self.level() < n.cast_signed() {
            return Some(Err(self.empty));
        }
        self.mark += n.cast_signed();
        Some(Ok(self.granted(n)))
    }

    fn take(&mut self, base: u64, units: u64) -> Credit {
        let units = units.cast_signed();
        if units > self.burst {
            return Credit::TooLong;
        }
        if self.level() < units - self.debt {
            return Credit::NoRoom;
        }
        self.taken.push((self.mark, self.mark + units));
        self.mark += units;
        let mark = Mark { empty_at: self.mark.cast_unsigned(), stamp: 0 };
        Credit::Stretch { end: self.mark - base.cast_signed(), mark }
    }

    fn give_back(&mut self, units: u64, mark: Mark) -> Option<Mark> {
        if mark.empty_at != self.mark.cast_unsigned() {
            return None;
        }
        self.mark -= units.cast_signed();
        // The end of the line's stretches: all of what is above the new mark is the word's again.
        let left = self.mark;
        self.taken.retain_mut(|(start, end)| {
            *end = if *end > left && *start < left { left } else { *end };
            *end <= left
        });
        Some(Mark { empty_at: self.mark.cast_unsigned(), stamp: 0 })
    }

    fn granted(&self, n: u64) -> Granted {
        Granted::anyway(n, 0)
    }

    fn version(&self) -> u64 {
        0
    }

    fn units(&self, n: u64) -> u64 {
        n
    }

    fn nanos(&self, units: i64) -> u64 {
        u64::try_from(units).unwrap_or(0) * MILLISECOND
    }
}

/// A tick.
const MILLISECOND: u64 = 1_000_000;

/// A caller that waits, as the reference knows it.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    units: i64,
    /// The end of its place and the time since which it has that.
    place: Option<(i64, i64)>,
    /// The time at which its timer is over.
    timer: i64,
    /// The time by which it was told to be served.
    told: i64,
    caller: InLine,
}

/// A run: the line, its bucket, and the grants.
struct Run {
    random: Random,
    scale: Scale,
    line: CallerLine,
    waiting: BTreeMap<u64, Waiting>,
    /// The due times and units of all grants.
    granted: Vec<(i64, i64)>,
    /// Whether tokens come back. Then the law holds from the beginning on, for all that did not.
    returns: bool,
    /// Whether told times hold: the debt has room for the head before the word is out of debt, even
    /// beside a late timer, so that no plain take passes the head.
    told: bool,
    /// Whether the step was one of the line.
    touched: bool,
}

impl Run {
    fn new(seed: u64) -> Run {
        let (mut random, returns) = (Random(seed), seed % 2 == 1);
        let burst = 1 + random.below(30).cast_signed();
        let debt =
            [burst, burst, 3 * burst + 4, 1 + random.below(30).cast_signed(), 0][random.below(5) as usize];
        // Times of a token: each unit is a token here.
        let scale = Scale::new(burst, debt);
        let (told, touched) = (debt >= 2 * burst + 4, true);
        let (waiting, granted) = (BTreeMap::new(), Vec::new());
        Run { random, scale, line: CallerLine::default(), waiting, granted, returns, told, touched }
    }

    fn below(&mut self, n: i64) -> i64 {
        self.random.below(n.cast_unsigned()).cast_signed()
    }

    /// Takes up the new places, and grants of callers that are no longer in line.
    fn note(&mut self) {
        let places: BTreeMap<_, _> =
            self.line.positions().into_iter().map(|(id, units, end)| (id, (units, end))).collect();
        let now = self.scale.now;
        let served: Vec<u64> = self.waiting.keys().copied().filter(|id| !places.contains_key(id)).collect();
        for id in served {
            let one = self.waiting.remove(&id).unwrap();
            // A caller may get its place in the step that serves it: then it is due now.
            let due = one.place.filter(|(end, _)| *end <= now).map_or(now, |(end, since)| end.max(since));
            if self.told {
                // A timer is at most 2 late.
                assert!(now <= one.told + 2, "told {}, served at {now}", one.told);
            }
            self.granted.push((due, one.units));
            let before = self.waiting.keys().next();
            assert!(before.is_none_or(|before| *before > id), "caller {id} is served before another");
        }
        for (id, (units, end)) in &places {
            let one = self.waiting.get_mut(id).expect("it waits");
            assert_eq!(one.units, units.cast_signed());
            match (*end, one.place) {
                (Some(end), Some((before, _))) => {
                    assert!(end <= before, "a place never moves to a later time");
                    if end < before {
                        one.place = Some((end, now));
                    }
                }
                (Some(end), None) => one.place = Some((end, now)),
                (None, Some(_)) => panic!("a place is lost"),
                (None, None) => {}
            }
        }
        self.compare(&places);
    }

    /// Computes all places from the stretches of the line.
    fn compare(&self, places: &BTreeMap<u64, (u64, Option<i64>)>) {
        let mut end_before = i64::MIN;
        for (id, (units, end)) in places {
            let Some(end) = *end else { continue };
            let start = end - units.cast_signed();
            assert!(start >= end_before, "places overlap: {places:?}");
            assert!(!self.touched || end > self.scale.now, "caller {id} is due and still waits");
            assert!(!self.touched || end <= self.scale.mark, "caller {id} waits for tokens that came back");
            end_before = end;
            if self.returns {
                continue;
            }
            // Stretches that follow each other are one.
            let mut covered = start;
            for (from, to) in &self.scale.taken {
                if *from <= covered && covered < *to {
                    covered = *to;
                }
            }
            assert!(covered >= end, "{start} to {end} is not of the line: {:?}", self.scale.taken);
        }
    }

    fn step(&mut self) {
        let mut wakes = Wakes::default();
        let act = self.below(12);
        self.touched = act < 8;
        match act {
            0..=3 => {
                let units = 1 + self.below(self.scale.burst.min(5));
                let max_wait = [u64::MAX, 60, 200][self.below(3) as usize];
                let max_wait =
                    if max_wait == u64::MAX { max_wait } else { self.random.below(max_wait) * MILLISECOND };
                let n = units.cast_unsigned();
                let wish = Wish { n, max_wait, max_waiting: usize::MAX, waker: Waker::noop() };
                let now = self.scale.now;
                match self.line.join(&mut self.scale, &wish, &mut wakes) {
                    Ok(Entered::Granted(_)) => self.granted.push((now, units)),
                    Ok(Entered::Waits(caller)) => {
                        let InLine { id, wait, told, .. } = caller;
                        let wait = (wait / MILLISECOND).cast_signed();
                        let told = now + (told / MILLISECOND).cast_signed();
                        let one = Waiting { units, place: None, timer: now + wait, told, caller };
                        self.waiting.insert(id, one);
                    }
                    Err(denied) => assert_eq!(denied.reason(), Reason::Deadline),
                    other => panic!("{other:?}"),
                }
            }
            4..=6 => {
                let Some(id) = self.any() else { return };
                self.line.leave(&mut self.scale, id, &mut wakes);
                // It leaves, or it was due.
                if let Some(one) = self.waiting.remove(&id)
                    && let Some((end, since)) = one.place
                    && end <= self.scale.now
                {
                    self.granted.push((end.max(since), one.units));
                }
            }
            7 => {
                // A reservation of another caller, which is refused beside a tail.
                let units = 1 + self.below(self.scale.burst);
                let tail = self.line.serve(&mut self.scale, &mut wakes);
                if tail == 0 && self.scale.level() >= units - self.scale.debt {
                    self.scale.mark += units;
                    self.granted.push((self.scale.mark.max(self.scale.now), units));
                }
            }
            8 => {
                let units = 1 + self.below(3);
                if self.scale.level() >= units {
                    self.scale.mark += units;
                    self.granted.push((self.scale.now, units));
                }
            }
            9 if self.returns => {
                let level = self.scale.level();
                self.scale.mark -= 1 + self.below(self.scale.burst.min(6));
                let back = self.scale.level() - level;
                self.granted.push((self.scale.now, -back));
                self.line.serve(&mut self.scale, &mut wakes);
                self.touched = true;
            }
            _ => {
                // The next timers, at most 3 late.
                let next = self.waiting.values().map(|one| one.timer).min();
                let until = self.scale.now + 1 + self.below(20);
                self.scale.now = next.map_or(until, |next| {
                    until.min(next.max(self.scale.now) + self.random.below(3).cast_signed())
                });
                self.timers(&mut wakes);
            }
        }
        self.note();
        // The head is told of an earlier turn.
        if !wakes.is_empty() {
            self.look();
        }
    }

    fn any(&mut self) -> Option<u64> {
        let index = self.random.below(self.waiting.len().max(1) as u64);
        self.waiting.keys().nth(index as usize).copied()
    }

    fn timers(&mut self, wakes: &mut Wakes) {
        let now = self.scale.now;
        let over: Vec<u64> =
            self.waiting.iter().filter(|(_, one)| one.timer <= now).map(|(id, _)| *id).collect();
        for id in over {
            if self.waiting.contains_key(&id) {
                self.look_as(id, true, wakes);
                self.note();
            }
        }
    }

    /// Lets the head look at its turn.
    fn look(&mut self) {
        let Some(id) = self.waiting.keys().next().copied() else { return };
        let mut wakes = Wakes::default();
        self.look_as(id, false, &mut wakes);
        assert!(wakes.is_empty(), "the head alone is woken");
        self.touched = true;
        self.note();
    }

    fn look_as(&mut self, id: u64, fired: bool, wakes: &mut Wakes) {
        let caller = self.waiting[&id].caller;
        let (turn, _) = self.line.look(&mut self.scale, &caller, fired, Waker::noop(), wakes);
        if let LineTurn::Sets { wait } = turn {
            let wait = (wait / MILLISECOND).cast_signed();
            self.waiting.get_mut(&id).expect("it waits").timer = self.scale.now + wait;
        }
    }

    /// Asserts the law on each interval of due times.
    fn assert_law(&mut self) {
        self.granted.sort_unstable();
        if self.returns {
            self.granted.insert(0, (0, 0));
        }
        for first in 0..if self.returns { 1 } else { self.granted.len() } {
            let mut sum = 0;
            for (until, units) in &self.granted[first..] {
                sum += units;
                let most = self.scale.burst + until - self.granted[first].0;
                assert!(sum <= most, "{sum} of {most} from {} to {until}", self.granted[first].0);
            }
        }
    }
}

#[test]
fn each_place_is_that_of_a_reference_and_the_law_holds() {
    for seed in 0..size(300, 10_000) {
        let mut run = Run::new(seed);
        println!("seed {seed}");
        for _ in 0..300 {
            run.step();
        }
        run.assert_law();
    }
}
