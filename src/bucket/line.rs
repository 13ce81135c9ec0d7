//! The line of callers that wait for tokens of one bucket. Pure: no atomics, no clock.
//!
//! A *position* is a virtual time in units, from the line's base tick on: the bucket earns one unit
//! at each. A caller's *place* is a stretch of positions as long as its cost, and is due at its
//! end. Each place was taken from the word, as a debt. The stretches of the line are its *runs*:
//! more than one only where a reservation or a charge came in between.
//!
//! ```text
//!            now                          mark of the word
//!             |                                  |
//!   run 1  [==A==|==B==|=C=]   run 2     [==D==| ]      then the tail: E, F
//!             head                             rest
//! ```
//!
//! When a caller leaves, all behind it move up: the callers in order take the next stretch that fits
//! in one run. The rest at the end goes back to the word if the word stands as the line left it. A
//! caller for whom the debt has no room stands in the tail, without a place.
//!
//! # Invariants
//!
//! * *Invariant:* the law holds, because places are disjoint, and each lies within one burst before
//!   its grant. The head is not due, so its place begins less than its cost ago. Where no caller has
//!   a place, or one leaves, the runs are clamped to one burst before now.
//! * *Invariant:* no place moves to a later position, because with fewer callers each takes the same
//!   stretch or an earlier one. A lower burst is the exception.
//! * *Invariant:* a place lies in one run, because across two it could be longer than a burst.
//! * *Invariant:* when the mutex is free, the timer of the head is at its turn or a wake-up is on
//!   its way, because each change of the head's turn ends with `wake_head`.

use std::collections::VecDeque;
use std::task::Waker;

use crate::fault::{Fault, injected};
use crate::word::state::{Left, Reading, Refill, State};
use crate::word::terms::Terms;
use crate::word::verb::Give;

/// The word as a step of the line left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The [mark](crate::word::state::State::empty_at) of the bucket.
    pub(crate) empty_at: u64,
    pub(crate) stamp: u64,
}

impl Mark {
    /// Returns the word as a state at a tick.
    pub(crate) fn of(state: State, terms: &Terms, tick: u64) -> Mark {
        Mark { empty_at: state.empty_at(terms, tick), stamp: state.word() & terms.mask }
    }

    /// Gives back `units` if the state still stands at this mark: returns the mark after that, and
    /// the state to commit.
    ///
    /// `plans` returns whether a key may be under a plan: the stamp then has to be the same, too.
    pub(crate) fn give_back<P: Refill>(
        self,
        state: State,
        reading: &Reading<P>,
        units: u64,
        plans: impl FnOnce() -> bool,
    ) -> (Option<Mark>, Option<State>) {
        let (terms, tick) = (reading.refill.terms(), reading.tick);
        let stood = if injected(Fault::MarkUnseen) { Mark::of(state, terms, tick) } else { self };
        let left = Left { empty_at: stood.empty_at, stamp: plans().then_some(stood.stamp) };
        let next = Give::Cancel { units, left }.apply(&reading.refill, state, tick);
        (next.map(|next| Mark::of(next, terms, tick)), next)
    }
}

/// A bucket and its clock at one reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    pub(crate) tick: u64,
    /// Position of the reading.
    pub(crate) now: i64,
    /// Position at which the next place of the word begins; `None` if the bucket is lost.
    pub(crate) mark: Option<i64>,
    /// Units of a burst.
    pub(crate) burst: i64,
    /// Units that may be promised.
    pub(crate) debt: i64,
    /// Whether positions are far from the base tick, and so must be counted anew.
    pub(crate) far: bool,
}

/// The outcome of a take for a place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken {
    /// The position at which the tokens are earned, and the word after the take.
    Place { end: i64, mark: Mark },
    /// The debt has no room now.
    NoRoom,
    /// The place would be longer than a burst.
    TooLong,
    /// The bucket is lost.
    Lost,
}

/// The bucket of a line.
pub(crate) trait Bank {
    /// Reads the bucket and the clock. Positions count from the tick `base`, or without it from the
    /// reading.
    fn sight(&mut self, base: Option<u64>) -> Sight;
    /// Takes `units` on credit.
    fn take(&mut self, base: u64, units: u64) -> Taken;
    /// Gives back `units` if the word still stands at `mark`, and returns the word after that.
    fn give_back(&mut self, units: u64, mark: Mark) -> Option<Mark>;
    /// Returns the nanoseconds until `units` are earned, from the latest reading on.
    fn nanos(&self, units: i64) -> u64;
}

/// A caller that joins a line.
pub(crate) struct Caller<'a> {
    /// Its number, above those of all callers before it.
    pub(crate) id: u64,
    pub(crate) units: u64,
    /// Nanoseconds that it is ready to wait.
    pub(crate) max_wait: u64,
    /// Most callers in line.
    pub(crate) max_waiting: usize,
    pub(crate) waker: &'a Waker,
}

/// The outcome of joining. Waits are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// The tokens are there.
    Served,
    /// The caller waits, and sets its timer to `wait`. Its tokens come after `told` at the latest.
    Waits { wait: u64, told: u64 },
    /// The tokens would come after `wait`, which is more than the caller is ready for.
    Late { wait: u64 },
    /// The line is full. The head's turn is after `wait`.
    Full { wait: u64 },
    /// The bucket is lost.
    Lost,
}

/// The outcome of a look at one's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The tokens are the caller's.
    Served,
    /// The caller waits on, by its timer.
    Waits,
    /// The caller waits on, and sets its timer anew: to `wait` nanoseconds from now.
    Sets { wait: u64 },
    /// The caller has no place here, and may join again.
    Joins,
}

/// The event for which a caller looks at its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Its timer is over, and was set under the terms in force.
    Due,
    /// The terms have changed since its timer was set.
    Changed,
    Woken,
}

#[derive(Debug)]
struct Node {
    id: u64,
    units: u64,
    /// Position for which the caller has set its timer.
    armed: i64,
    gone: bool,
    waker: Option<Waker>,
}

/// A stretch of positions that the line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: i64,
    end: i64,
}

/// Shortest wait of a caller without a place whose time has come, in nanoseconds.
const MIN_WAIT: u64 = 1_000_000;

/// A position that no timer is set for.
const UNSET: i64 = i64::MAX;

#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Tick of position 0.
    base: u64,
    nodes: VecDeque<Node>,
    /// Nodes at the front that have a place, those that are gone included.
    placed: usize,
    /// Nodes that are gone.
    gone: usize,
    /// Units of the callers with a place, and of those without.
    placed_units: u64,
    tail_units: u64,
    runs: VecDeque<Run>,
    /// The word as the line left it, at the end of the last run.
    mark: Option<Mark>,
    /// Callers that have to join again.
    turned_away: Vec<u64>,
}

/// A place among the runs: an index and a position.
type Cursor = (usize, i64);

/// Returns the next stretch of `units` that fits in one run, by its run and its end.
fn next_fit(runs: &VecDeque<Run>, (mut run, mut from): Cursor, units: u64) -> Option<Cursor> {
    let mut units = units.cast_signed();
    loop {
        let rest = runs.get(run)?.end - from;
        if rest >= units {
            return Some((run, from + units));
        }
        if injected(Fault::PlaceAcrossRuns) {
            units -= rest;
        }
        run += 1;
        from = runs.get(run)?.start;
    }
}

impl Line {
    /// Returns whether no caller waits here or has to be told that it joins again.
    pub(crate) fn is_over(&self) -> bool {
        self.waiting() == 0 && self.turned_away.is_empty()
    }

    /// Returns the number of callers that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.nodes.len() - self.gone
    }

    /// Adds a caller at the end, unless it is served at once or refused.
    pub(crate) fn join(
        &mut self,
        bank: &mut impl Bank,
        caller: &Caller<'_>,
        wakes: &mut Vec<Waker>,
    ) -> Joined {
        let Caller { id, units, max_wait, max_waiting, waker } = *caller;
        let sight = self.sight(bank, wakes);
        self.pump(bank, sight, None, wakes);
        let sight = self.sight(bank, wakes);
        let Some(mark) = sight.mark else { return Joined::Lost };
        if self.waiting() >= max_waiting {
            let head = self.nodes.iter().position(|node| !node.gone).unwrap_or(0);
            return Joined::Full { wait: bank.nanos(self.turn_of(head, &sight) - sight.now) };
        }
        let told = bank.nanos(self.end_of_next(mark, units) - sight.now);
        if told > max_wait {
            return Joined::Late { wait: told };
        }
        self.nodes.push_back(Node { id, units, armed: UNSET, gone: false, waker: None });
        self.tail_units += units;
        self.pump(bank, sight, None, wakes);
        let Some(index) = self.find(id) else {
            return if self.take_turned_away(id) { Joined::Lost } else { Joined::Served };
        };
        let turn = self.turn_of(index, &sight);
        let wait = self.wait(bank, index, turn - sight.now);
        // Another thread may have charged the bucket since the look.
        if index < self.placed && wait > max_wait {
            self.leave(bank, id, wakes);
            return Joined::Late { wait };
        }
        let node = &mut self.nodes[index];
        (node.armed, node.waker) = (turn, Some(waker.clone()));
        Joined::Waits { wait, told }
    }

    /// Serves all callers that are due, and returns the turn of one of them.
    pub(crate) fn look(
        &mut self,
        bank: &mut impl Bank,
        id: u64,
        event: Event,
        waker: &Waker,
        wakes: &mut Vec<Waker>,
    ) -> Turn {
        let sight = self.sight(bank, wakes);
        let mut due = None;
        if let Some(index) = self.find(id) {
            // The caller is here, and needs no wake-up.
            self.nodes[index].waker = None;
            let armed = self.nodes[index].armed;
            let had_place = index < self.placed && armed != UNSET;
            due = (event == Event::Due && had_place && self.turn_of(index, &sight) <= armed).then_some(id);
        }
        self.pump(bank, sight, due, wakes);
        let Some(index) = self.find(id) else {
            return if self.take_turned_away(id) { Turn::Joins } else { Turn::Served };
        };
        self.nodes[index].waker = Some(waker.clone());
        if event == Event::Woken && index > 0 {
            return Turn::Waits;
        }
        let turn = self.turn_of(index, &sight);
        if event == Event::Woken && turn >= self.nodes[index].armed {
            return Turn::Waits;
        }
        self.nodes[index].armed = turn;
        Turn::Sets { wait: self.wait(bank, index, turn - sight.now) }
    }

    /// Takes a caller out of the line. All behind it move up.
    pub(crate) fn leave(&mut self, bank: &mut impl Bank, id: u64, wakes: &mut Vec<Waker>) {
        let sight = self.sight(bank, wakes);
        self.pump(bank, sight, None, wakes);
        let Some(index) = self.find(id) else {
            self.take_turned_away(id);
            return;
        };
        self.take_out(index);
        self.clamp(&sight);
        self.pump(bank, sight, None, wakes);
    }

    /// Serves all that are due. Returns the units that callers without a place wait for.
    pub(crate) fn serve(&mut self, bank: &mut impl Bank, wakes: &mut Vec<Waker>) -> u64 {
        if self.nodes.is_empty() {
            return 0;
        }
        let sight = self.sight(bank, wakes);
        self.pump(bank, sight, None, wakes);
        self.tail_units
    }

    /// Lets each caller set its timer anew when it is the head: the terms have changed.
    pub(crate) fn unset_timers(&mut self, wakes: &mut Vec<Waker>) {
        for node in &mut self.nodes {
            node.armed = UNSET;
        }
        wakes.extend(self.nodes.iter_mut().find(|node| !node.gone).and_then(|node| node.waker.take()));
    }

    fn find(&self, id: u64) -> Option<usize> {
        let index = self.nodes.binary_search_by_key(&id, |node| node.id).ok()?;
        (!self.nodes[index].gone).then_some(index)
    }

    fn take_turned_away(&mut self, id: u64) -> bool {
        let index = self.turned_away.iter().position(|other| *other == id);
        index.map(|index| self.turned_away.swap_remove(index)).is_some()
    }

    /// Looks at the bucket. Without it, no caller gets a place any more.
    fn sight(&mut self, bank: &mut impl Bank, wakes: &mut Vec<Waker>) -> Sight {
        if self.nodes.is_empty() {
            let sight = bank.sight(None);
            self.base = sight.tick;
            return sight;
        }
        let mut sight = bank.sight(Some(self.base));
        if sight.far {
            self.count_from(&mut sight);
        }
        if sight.mark.is_none() {
            self.lose(wakes);
        }
        sight
    }

    /// Counts positions from a reading on.
    fn count_from(&mut self, sight: &mut Sight) {
        let now = sight.now;
        for run in &mut self.runs {
            *run = Run { start: run.start - now, end: run.end - now };
        }
        for node in self.nodes.iter_mut().filter(|node| node.armed != UNSET) {
            node.armed -= now;
        }
        self.base = sight.tick;
        *sight = Sight { now: 0, mark: sight.mark.map(|mark| mark - now), ..*sight };
    }

    /// Turns away all callers without a place.
    fn lose(&mut self, wakes: &mut Vec<Waker>) {
        self.mark = None;
        while let Some(node) = self.nodes.len().checked_sub(self.placed + 1) {
            self.turn_away(self.placed + node, wakes);
        }
    }

    /// Turns away a caller without a place.
    fn turn_away(&mut self, index: usize, wakes: &mut Vec<Waker>) {
        let Some(node) = self.nodes.remove(index) else { return };
        if node.gone {
            self.gone -= 1;
            return;
        }
        self.tail_units -= node.units;
        self.turned_away.push(node.id);
        wakes.extend(node.waker);
    }

    /// Lets go the callers that are due, places others, and gives back the rest.
    fn pump(&mut self, bank: &mut impl Bank, sight: Sight, due: Option<u64>, wakes: &mut Vec<Waker>) {
        loop {
            self.let_go(sight.now, due, wakes);
            if self.placed_units == 0 {
                self.clamp(&sight);
            }
            if !self.place_next(bank, wakes) {
                break;
            }
        }
        self.give_rest(bank);
        if self.waiting() == 0 {
            let (base, turned_away) = (self.base, std::mem::take(&mut self.turned_away));
            *self = Line { base, turned_away, ..Line::default() };
        }
        if !injected(Fault::HeadUnwoken) {
            self.wake_head(&sight, wakes);
        }
    }

    /// Lets go the callers that are due at `now`, and those up to `due`, in order.
    fn let_go(&mut self, now: i64, due: Option<u64>, wakes: &mut Vec<Waker>) {
        loop {
            self.drop_gone_head();
            let Some(&Node { id, units, .. }) = self.nodes.front().filter(|_| self.placed > 0) else {
                return;
            };
            let Some((run, end)) = self.end_of(1) else { return };
            if end > now && due.is_none_or(|due| id > due) {
                return;
            }
            self.runs.drain(..run);
            self.runs[0].start = end;
            if self.runs[0].end == end {
                self.runs.pop_front();
            }
            self.placed -= 1;
            self.placed_units -= units;
            wakes.extend(self.nodes.pop_front().and_then(|node| node.waker));
        }
    }

    fn drop_gone_head(&mut self) {
        while self.nodes.front().is_some_and(|node| node.gone) {
            self.nodes.pop_front();
            self.gone -= 1;
            self.placed = self.placed.saturating_sub(1);
        }
    }

    /// Gives a place to the first caller that has none. Returns whether another may get one.
    fn place_next(&mut self, bank: &mut impl Bank, wakes: &mut Vec<Waker>) -> bool {
        while self.nodes.get(self.placed).is_some_and(|node| node.gone) {
            self.placed += 1;
        }
        let Some(&Node { units, .. }) = self.nodes.get(self.placed) else { return false };
        let fits = self.cursor().is_some_and(|cursor| next_fit(&self.runs, cursor, units).is_some());
        if !fits {
            match bank.take(self.base, units) {
                Taken::Place { end, mark } => self.extend(end - units.cast_signed(), end, mark),
                Taken::NoRoom => return false,
                Taken::TooLong => {
                    self.turn_away(self.placed, wakes);
                    return true;
                }
                Taken::Lost => {
                    self.lose(wakes);
                    return false;
                }
            }
        }
        self.placed += 1;
        self.placed_units += units;
        self.tail_units -= units;
        true
    }

    /// Adds a stretch that was taken from the word.
    fn extend(&mut self, start: i64, end: i64, mark: Mark) {
        match self.runs.back_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => self.runs.push_back(Run { start, end }),
        }
        self.mark = Some(mark);
    }

    /// Gives back the end of the last run, which no caller needs.
    fn give_rest(&mut self, bank: &mut impl Bank) {
        if self.tail_units > 0 {
            return;
        }
        let (Some(cursor), Some(mark)) = (self.cursor(), self.mark) else { return };
        let index = self.runs.len() - 1;
        let run = &mut self.runs[index];
        let from = if cursor.0 == index { cursor.1 } else { run.start };
        let rest = u64::try_from(run.end - from).unwrap_or(0);
        if rest == 0 {
            return;
        }
        let Some(left) = bank.give_back(rest, mark) else { return };
        run.end = from;
        self.mark = Some(left);
        if run.start == run.end {
            self.runs.pop_back();
            self.mark = None;
        }
    }

    /// Wakes the head if its turn is before its timer.
    fn wake_head(&mut self, sight: &Sight, wakes: &mut Vec<Waker>) {
        if let Some(head) = self.nodes.front()
            && head.waker.is_some()
            && self.turn_of(0, sight) < head.armed
        {
            wakes.extend(self.nodes[0].waker.take());
        }
    }

    /// Marks a caller as gone.
    fn take_out(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        (node.gone, node.waker) = (true, None);
        *(if index < self.placed { &mut self.placed_units } else { &mut self.tail_units }) -= node.units;
        self.gone += 1;
        while self.nodes.back().is_some_and(|node| node.gone) {
            self.nodes.pop_back();
            self.gone -= 1;
        }
        self.placed = self.placed.min(self.nodes.len());
        if self.gone > self.nodes.len() / 2 + 16 {
            self.placed = self.nodes.iter().take(self.placed).filter(|node| !node.gone).count();
            self.nodes.retain(|node| !node.gone);
            self.gone = 0;
        }
    }

    /// Gives up all positions that are more than one burst ago.
    fn clamp(&mut self, sight: &Sight) {
        if injected(Fault::PlacesUnclamped) {
            return;
        }
        let from = sight.now - sight.burst;
        for run in &mut self.runs {
            run.start = run.start.max(from).min(run.end);
        }
        self.runs.retain(|run| run.start < run.end);
        if self.runs.is_empty() {
            self.mark = None;
        }
        // Under a lower burst, the last callers may have no place any more.
        let mut cursor = self.start();
        for index in 0..self.placed {
            let Node { units, gone, .. } = self.nodes[index];
            if gone {
                continue;
            }
            cursor = cursor.and_then(|cursor| next_fit(&self.runs, cursor, units));
            if cursor.is_none() {
                let lost = self.nodes.range(index..self.placed).filter(|node| !node.gone);
                let units = lost.map(|node| node.units).sum::<u64>();
                self.placed_units -= units;
                self.tail_units += units;
                self.placed = index;
                return;
            }
        }
    }

    /// Returns the beginning of the first run.
    fn start(&self) -> Option<Cursor> {
        self.runs.front().map(|run| (0, run.start))
    }

    /// Returns the end of the last caller's place.
    fn cursor(&self) -> Option<Cursor> {
        self.end_of(self.placed)
    }

    /// Returns the end of the place of the last of the first `count` callers, which have places.
    fn end_of(&self, count: usize) -> Option<Cursor> {
        let (_, start) = self.start()?;
        if self.runs.len() == 1 && count == self.placed {
            return Some((0, start + self.placed_units.cast_signed()));
        }
        let live = self.nodes.range(..count).filter(|node| !node.gone);
        live.map(|node| node.units).try_fold((0, start), |cursor, units| next_fit(&self.runs, cursor, units))
    }

    /// Returns the end of the place that a further caller would have.
    fn end_of_next(&self, mark: i64, units: u64) -> i64 {
        let cursor = self.cursor();
        if self.tail_units == 0
            && let Some((_, end)) = cursor.and_then(|cursor| next_fit(&self.runs, cursor, units))
        {
            return end;
        }
        self.end_of_tail(mark) + units.cast_signed()
    }

    /// Returns the end of the tail: all of its callers after the word's mark, less the rest before
    /// that.
    fn end_of_tail(&self, mark: i64) -> i64 {
        let rest = match (self.runs.back(), self.cursor()) {
            (Some(last), Some(cursor)) if last.end == mark => last.end - cursor.1.max(last.start),
            _ => 0,
        };
        mark - rest + self.tail_units.cast_signed()
    }

    /// Returns the position of a caller's turn: to be served, or at the head to get a place.
    fn turn_of(&self, index: usize, sight: &Sight) -> i64 {
        if index < self.placed {
            return self.end_of(index + 1).map_or(sight.now, |(_, end)| end);
        }
        let Some(mark) = sight.mark else { return sight.now };
        let after: u64 = self.nodes.range(index + 1..).filter(|node| !node.gone).map(|node| node.units).sum();
        let end = self.end_of_tail(mark) - after.cast_signed();
        let is_head = self.nodes.range(..index).all(|node| node.gone);
        // The head gets a place as soon as the debt has room for it.
        let room = mark + self.nodes[index].units.cast_signed() - sight.debt;
        if is_head { room.min(end) } else { end }
    }

    /// Returns the wait until a turn.
    fn wait(&self, bank: &impl Bank, index: usize, units: i64) -> u64 {
        let wait = bank.nanos(units);
        if index < self.placed || wait > 0 { wait } else { MIN_WAIT }
    }

    /// Returns the callers that wait, in order, with their costs and the ends of their places; for
    /// tests. Positions count from tick 0.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn places(&self) -> Vec<(u64, u64, Option<i64>)> {
        let live = self.nodes.iter().enumerate().filter(|(_, node)| !node.gone);
        let place = |index| (index < self.placed).then(|| self.end_of(index + 1).expect("it has a place").1);
        live.map(|(index, node)| (node.id, node.units, place(index).map(|end| end + self.base.cast_signed())))
            .collect()
    }
}
