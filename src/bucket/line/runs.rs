//! The stretches in which the callers of a line have their positions.
//!
//! A look-up takes logarithmic time in the callers and the runs; a lower burst takes linear time.
//!
//! The callers in order take the next stretch that fits in one run; a rest that is too small is
//! skipped. When a caller leaves, those behind it in its run move up. Those of later runs are
//! *packed*: some runs in each step, in turns from the first run to the last. So with up to
//! [`AT_ONCE`] runs each caller always has the first stretch that fits.
//!
//! * *Invariant:* each run has the callers from its `first` to that of the next run, and they fit.
//! * *Invariant:* the runs that are not packed in this turn have no caller before `upto`.
//! * *Invariant:* the runs from `used` on have no callers, and their `first` says nothing.

use std::collections::VecDeque;

use super::bank::Sight;
use super::sums::{Sums, visit};
use crate::fault::{Fault, injected};

/// Runs that one step packs.
pub(crate) const AT_ONCE: usize = 4;

/// Rests that a stretch skips, with the one in which it lies.
const SKIPPED: usize = 8;

/// A stretch of positions that the line holds.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: i64,
    end: i64,
    /// Slot from which on callers have their positions here.
    first: usize,
}

impl Run {
    fn len(self) -> u64 {
        (self.end - self.start).cast_unsigned()
    }
}

/// A position in one of the runs: the index of the run, and the position.
type Cursor = (usize, i64);

/// The runs of a line, and the units of its callers by their slots.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    units: Sums,
    /// Slots of the head, and of the first caller without a position; the next slot if none is.
    head: usize,
    tail: usize,
    /// Units of the callers with a position, and of those without.
    placed_units: u64,
    tail_units: u64,
    runs: VecDeque<Run>,
    /// Runs up to the last one with a caller.
    used: usize,
    /// Runs that are packed in this turn, and the slot behind their callers. 0 between two turns.
    packed: usize,
    upto: usize,
    /// Whether callers may move up since the turn began.
    loose: bool,
}

impl Runs {
    pub(super) fn count(&self) -> usize {
        self.runs.len()
    }

    /// Returns the units of the callers without a position.
    pub(crate) fn tail_units(&self) -> u64 {
        self.tail_units
    }

    /// Returns whether a caller has a position.
    pub(crate) fn has_positions(&self) -> bool {
        self.used > 0
    }

    /// Returns whether the caller of a slot has a position.
    pub(crate) fn is_placed(&self, slot: usize) -> bool {
        slot < self.tail
    }

    /// Returns the slot of the head.
    pub(crate) fn head(&self) -> Option<usize> {
        self.caller(self.head)
    }

    /// Returns the slot of the first caller without a position.
    pub(super) fn head_of_tail(&self) -> Option<usize> {
        self.caller(self.tail)
    }

    fn caller(&self, slot: usize) -> Option<usize> {
        (slot < self.units.len()).then_some(slot)
    }

    /// Adds a caller at the end, without a position.
    pub(super) fn push(&mut self, units: u64) {
        self.units.push(units);
        self.tail_units += units;
    }

    /// Gives slots their new numbers.
    pub(super) fn number_anew(&mut self, slots: &[usize]) {
        for run in &mut self.runs {
            visit();
            run.first = slots[run.first];
        }
        let [head, tail, upto] = [self.head, self.tail, self.upto].map(|slot| slots[slot]);
        (self.head, self.tail, self.upto, self.loose) = (head, tail, upto, true);
        self.units.drop_zeros();
    }

    /// Takes a caller out. Those behind it in its run move up.
    pub(super) fn take_out(&mut self, slot: usize) {
        self.loose |= self.is_placed(slot);
        self.subtract(slot);
    }

    /// Takes out the head, which has a position, and all positions up to its end.
    pub(super) fn serve(&mut self, slot: usize) {
        let (run, end) = self.stretch_of(slot);
        self.drop_runs(run);
        self.runs[0].start = end;
        self.subtract(slot);
        if self.runs[0].end == end {
            self.drop_runs(1);
        }
    }

    fn subtract(&mut self, slot: usize) {
        let units = self.units.take(slot);
        if self.is_placed(slot) {
            self.placed_units -= units;
            self.end_runs();
        } else {
            self.tail_units -= units;
        }
        if slot == self.head {
            self.head = self.units.reach(0);
        }
        if slot == self.tail {
            self.tail = self.units.reach(self.placed_units);
        }
    }

    /// Drops the first `count` runs, in which no caller has a position.
    fn drop_runs(&mut self, count: usize) {
        self.runs.drain(..count);
        self.used = self.used.saturating_sub(count);
        self.packed = self.packed.saturating_sub(count);
    }

    /// Looks for the last run with a caller: one has left, or has no position any more.
    fn end_runs(&mut self) {
        self.used = match (self.placed_units, self.used) {
            (0, _) => 0,
            (_, 1) => 1,
            (units, _) => self.run_of(self.units.reach(units - 1)) + 1,
        };
        self.end_turn();
    }

    /// Ends the turn if all runs with callers are packed.
    fn end_turn(&mut self) {
        if self.packed >= self.used {
            (self.packed, self.upto) = (0, 0);
        }
    }

    /// Lets callers of later runs move up into the rests of earlier ones.
    pub(crate) fn pack(&mut self) {
        for _ in 0..AT_ONCE {
            if (self.packed, self.upto) == (0, 0) {
                if !self.loose || self.used <= 1 {
                    return;
                }
                self.loose = false;
            }
            self.pack_next();
        }
    }

    /// Packs one run: the callers from `upto` on that fit in it are there already, or move up.
    fn pack_next(&mut self) {
        let (index, first) = (self.packed, self.upto);
        let run = &mut self.runs[index];
        run.first = first;
        let (len, before) = (run.len(), self.units.before(first));
        self.upto = self.units.reach(before + len).min(self.tail);
        if injected(Fault::PlaceAcrossRuns) && index + 1 < self.used {
            let rest = (before + len - self.units.before(self.upto)).cast_signed();
            self.runs[index].end -= rest;
            self.runs[index + 1].start -= rest;
        }
        self.packed += 1;
        if self.upto == self.tail {
            self.used = self.packed;
        }
        self.end_turn();
    }

    /// Returns the units of the first caller without a position.
    pub(crate) fn first_of_tail(&self) -> Option<u64> {
        self.head_of_tail().map(|slot| self.units.of(slot))
    }

    /// Returns the end of the first stretch of `units` behind all others that lies in one run.
    ///
    /// A rest of a run that is too small is skipped. `None` if none of the next runs has room.
    fn next_fit(&self, units: u64) -> Option<Cursor> {
        let (mut run, mut from) = self.cursor()?;
        for _ in 0..SKIPPED {
            visit();
            let end = from + units.cast_signed();
            if end <= self.runs[run].end {
                return Some((run, end));
            }
            run += 1;
            from = self.runs.get(run)?.start;
        }
        None
    }

    /// Returns whether a further stretch of `units` fits behind those of all others.
    pub(crate) fn fits(&self, units: u64) -> bool {
        self.next_fit(units).is_some()
    }

    /// Gives the first caller without a position the next stretch that fits.
    pub(crate) fn place(&mut self, units: u64) {
        let (Some(slot), Some((run, _))) = (self.head_of_tail(), self.next_fit(units)) else { return };
        for next in self.used..=run {
            self.runs[next].first = slot;
        }
        self.used = run + 1;
        self.placed_units += units;
        self.tail_units -= units;
        self.tail = self.units.reach(self.placed_units);
    }

    /// Takes their positions from all callers. Returns the units of the last run.
    pub(crate) fn displace(&mut self) -> u64 {
        let last = self.runs.back().map_or(0, |run| run.len());
        self.runs.clear();
        (self.used, self.packed, self.upto) = (0, 0, 0);
        self.tail_units += std::mem::take(&mut self.placed_units);
        self.tail = self.head;
        last
    }

    /// Adds a stretch that was taken from the word, where all others end.
    pub(crate) fn extend(&mut self, start: i64, end: i64) {
        // Tokens may have come back since the look.
        self.pull(start);
        match self.runs.back_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => self.runs.push_back(Run { start, end, first: 0 }),
        }
        // Rests that are too small: a caller that looks for a position would skip them all.
        let last = self.runs.len() - 1;
        if last + 1 >= self.used + SKIPPED {
            self.runs.drain(self.used..last);
        }
    }

    /// Returns the units at the end of the last run that no caller needs.
    pub(crate) fn rest(&self) -> u64 {
        match (self.tail_units, self.cursor(), self.runs.back()) {
            (0, Some((run, from)), Some(last)) => {
                let from = if run + 1 == self.runs.len() { from } else { last.start };
                u64::try_from(last.end - from).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Cuts units off the end of the last run. Returns whether some of the run is left.
    pub(crate) fn cut(&mut self, units: u64) -> bool {
        let Some(last) = self.runs.back_mut() else { return false };
        last.end -= units.cast_signed();
        let left = last.end > last.start;
        if !left {
            self.runs.pop_back();
        }
        left
    }

    /// Gives up all positions before `from`. Under a lower burst, the last callers may have no
    /// position any more.
    pub(crate) fn clamp(&mut self, from: i64) {
        // Only after a lower burst: else the head's stretch began less than one burst ago.
        if self.forget(from) {
            self.place_anew(from);
        }
    }

    /// Gives up the positions before `from` and before the head's run. Returns whether that run
    /// begins before `from`.
    pub(crate) fn forget(&mut self, from: i64) -> bool {
        let is_old = |run: &Run| run.start < from;
        if !self.runs.front().is_some_and(is_old) {
            return false;
        }
        let free = match self.head().filter(|_| self.used > 0) {
            Some(head) => self.run_of(head),
            None => self.runs.len(),
        };
        let old = self.runs.iter().take(free).take_while(|run| run.end <= from).count();
        self.drop_runs(old);
        match self.runs.front_mut().filter(|run| is_old(run)) {
            Some(run) if old < free => {
                run.start = from;
                false
            }
            run => run.is_some(),
        }
    }

    /// Computes all positions from `from` on.
    #[cold]
    fn place_anew(&mut self, from: i64) {
        for run in &mut self.runs {
            visit();
            run.start = run.start.max(from).min(run.end);
        }
        self.runs.retain(|run| run.start < run.end);
        let (mut upto, tail) = (0, self.tail);
        for run in &mut self.runs {
            run.first = upto;
            upto = self.units.reach(self.units.before(upto) + run.len()).min(tail);
        }
        (self.packed, self.upto, self.used) = (0, 0, self.runs.len());
        let placed = self.units.before(upto);
        self.tail_units += self.placed_units - placed;
        self.placed_units = placed;
        self.tail = self.units.reach(placed);
        self.end_runs();
    }

    /// Moves runs to earlier positions, so that the last ends at `mark` and none is within another.
    /// Returns whether it ended behind `mark`.
    pub(crate) fn pull(&mut self, mark: i64) -> bool {
        if injected(Fault::ReturnsUnseen) || self.runs.back().is_none_or(|last| last.end <= mark) {
            return false;
        }
        // Runs that reach the next one become one stretch with it.
        let (mut start, mut index) = (mark, self.runs.len());
        while index > 0 && self.runs[index - 1].end >= start {
            visit();
            index -= 1;
            start -= self.runs[index].len().cast_signed();
        }
        let first = self.first_of(index);
        self.runs.truncate(index);
        self.runs.push_back(Run { start, end: mark, first });
        self.used = self.used.min(index + 1);
        if self.packed > index {
            (self.packed, self.upto) = (0, 0);
        }
        self.loose = true;
        self.pack();
        true
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn units_of(&self, slot: usize) -> u64 {
        self.units.of(slot)
    }

    /// Moves all positions back by `by`.
    pub(super) fn shift(&mut self, by: i64) {
        for run in &mut self.runs {
            *run = Run { start: run.start - by, end: run.end - by, first: run.first };
        }
    }

    /// Returns the slot from which on callers have their positions in a run.
    fn first_of(&self, run: usize) -> usize {
        let first = self.runs[run].first;
        if run < self.packed { first } else { first.max(self.upto) }
    }

    /// Returns the run in which a caller has its position.
    fn run_of(&self, slot: usize) -> usize {
        let (mut from, mut to) = if slot < self.upto { (0, self.packed) } else { (self.packed, self.used) };
        while from + 1 < to {
            visit();
            let middle = from.midpoint(to);
            *(if self.runs[middle].first <= slot { &mut from } else { &mut to }) = middle;
        }
        from
    }

    /// Returns the run and the position of a caller.
    pub(super) fn stretch_of(&self, slot: usize) -> Cursor {
        let run = self.run_of(slot);
        if slot == self.head {
            return (run, self.runs[run].start + self.units.of(slot).cast_signed());
        }
        (run, self.end_in(run, self.units.before(slot + 1)))
    }

    /// Returns the position in a run behind `units` of all callers up to there.
    fn end_in(&self, run: usize, units: u64) -> i64 {
        let units = units - self.units.before(self.first_of(run));
        self.runs[run].start + units.cast_signed()
    }

    /// Returns the position of the last caller.
    fn cursor(&self) -> Option<Cursor> {
        match self.used.checked_sub(1) {
            Some(run) => Some((run, self.end_in(run, self.placed_units))),
            None => self.runs.front().map(|run| (0, run.start)),
        }
    }

    /// Returns the position that a further caller would have. The next stretch of the word
    /// begins at `mark`.
    pub(crate) fn end_of_next(&self, mark: i64, units: u64) -> i64 {
        match self.next_fit(units) {
            Some((_, end)) if self.tail_units == 0 => end,
            _ => self.end_of_tail(mark) + units.cast_signed(),
        }
    }

    /// Returns the end of the tail: all of its callers behind the word's mark, less the rest before
    /// it.
    fn end_of_tail(&self, mark: i64) -> i64 {
        let rest = match (self.runs.back(), self.cursor()) {
            (Some(last), Some(cursor)) if last.end == mark => last.end - cursor.1.max(last.start),
            _ => 0,
        };
        mark - rest + self.tail_units.cast_signed()
    }

    /// Returns the position of a caller's turn: to be served, or at the head to get a position.
    pub(super) fn turn_of(&self, slot: usize, sight: &Sight) -> i64 {
        if self.is_placed(slot) {
            return self.stretch_of(slot).1;
        }
        let Some((mark, _)) = sight.mark else { return sight.now };
        let after = self.placed_units + self.tail_units - self.units.before(slot + 1);
        let end = self.end_of_tail(mark) - after.cast_signed();
        // The head gets a position as soon as the debt has room for it.
        let room = mark + self.units.of(slot).cast_signed() - sight.debt;
        if self.head() == Some(slot) { room.min(end) } else { end }
    }
}
