//! The callers of a line in order, and the stretches in which they have their places.

use std::collections::VecDeque;
use std::task::Waker;

use super::bank::Sight;
use crate::fault::{Fault, injected};

/// A position that no timer is set for.
pub(super) const UNSET: i64 = i64::MAX;

/// A caller in line.
#[derive(Debug)]
pub(super) struct Node {
    /// Its number, above those of all callers before it.
    pub(super) id: u64,
    pub(super) units: u64,
    /// Position for which the caller has set its timer.
    pub(super) armed: i64,
    pub(super) gone: bool,
    pub(super) waker: Option<Waker>,
}

/// A stretch of positions that the line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: i64,
    end: i64,
}

/// A position in one of the runs: the index of the run, and the position.
type Cursor = (usize, i64);

/// The callers of a line, and its runs.
///
/// The callers in order take the next stretch that fits in one run; a rest that is too small is
/// skipped. With one run the sums are sufficient. With more, each question walks the line.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) nodes: VecDeque<Node>,
    /// Nodes at the front that have a place, those that are gone included.
    pub(super) placed: usize,
    /// Nodes that are gone.
    gone: usize,
    /// Units of the callers with a place, and of those without.
    placed_units: u64,
    tail_units: u64,
    runs: VecDeque<Run>,
}

/// Returns the end of the first stretch of `units` at or after a cursor that lies in one run.
///
/// A rest of a run that is too small is skipped. `None` if no run has room.
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

impl Queue {
    /// Returns the number of callers that wait.
    pub(super) fn waiting(&self) -> usize {
        self.nodes.len() - self.gone
    }

    /// Returns the units of the callers without a place.
    pub(super) fn tail_units(&self) -> u64 {
        self.tail_units
    }

    /// Returns whether a caller has a place.
    pub(super) fn has_places(&self) -> bool {
        self.placed_units > 0
    }

    pub(super) fn find(&self, id: u64) -> Option<usize> {
        let index = self.nodes.binary_search_by_key(&id, |node| node.id).ok()?;
        (!self.nodes[index].gone).then_some(index)
    }

    /// Adds a caller at the end, without a place.
    pub(super) fn push(&mut self, id: u64, units: u64) {
        self.nodes.push_back(Node { id, units, armed: UNSET, gone: false, waker: None });
        self.tail_units += units;
    }

    /// Removes the head, if it has a place that is due at `now`, or its number is at most `due`.
    pub(super) fn pop_due(&mut self, now: i64, due: Option<u64>) -> Option<Node> {
        while self.nodes.front().is_some_and(|node| node.gone) {
            self.nodes.pop_front();
            self.gone -= 1;
            self.placed = self.placed.saturating_sub(1);
        }
        let &Node { id, units, .. } = self.nodes.front().filter(|_| self.placed > 0)?;
        let (run, end) = self.end_of(1)?;
        if end > now && due.is_none_or(|due| id > due) {
            return None;
        }
        self.runs.drain(..run);
        self.runs[0].start = end;
        if self.runs[0].end == end {
            self.runs.pop_front();
        }
        self.placed -= 1;
        self.placed_units -= units;
        self.nodes.pop_front()
    }

    /// Returns the units of the first caller without a place.
    pub(super) fn first_of_tail(&mut self) -> Option<u64> {
        while self.nodes.get(self.placed).is_some_and(|node| node.gone) {
            self.placed += 1;
        }
        self.nodes.get(self.placed).map(|node| node.units)
    }

    /// Returns whether a further place of `units` fits behind those of all others.
    pub(super) fn fits(&self, units: u64) -> bool {
        self.cursor().is_some_and(|cursor| next_fit(&self.runs, cursor, units).is_some())
    }

    /// Gives the first caller without a place the next stretch that fits.
    pub(super) fn place(&mut self, units: u64) {
        self.placed += 1;
        self.placed_units += units;
        self.tail_units -= units;
    }

    /// Removes a caller without a place.
    pub(super) fn remove_of_tail(&mut self, index: usize) -> Option<Node> {
        let node = self.nodes.remove(index)?;
        if node.gone {
            self.gone -= 1;
            return None;
        }
        self.tail_units -= node.units;
        Some(node)
    }

    /// Adds a stretch that was taken from the word, where all others end.
    pub(super) fn extend(&mut self, start: i64, end: i64) {
        // Tokens may have come back since the look.
        self.pull(start);
        match self.runs.back_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => self.runs.push_back(Run { start, end }),
        }
    }

    /// Returns the units at the end of the last run that no caller needs.
    pub(super) fn rest(&self) -> u64 {
        match (self.tail_units, self.cursor(), self.runs.back()) {
            (0, Some((run, from)), Some(last)) => {
                let from = if run + 1 == self.runs.len() { from } else { last.start };
                u64::try_from(last.end - from).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Cuts units off the end of the last run. Returns whether some of the run is left.
    pub(super) fn cut(&mut self, units: u64) -> bool {
        let Some(last) = self.runs.back_mut() else { return false };
        last.end -= units.cast_signed();
        let left = last.end > last.start;
        if !left {
            self.runs.pop_back();
        }
        left
    }

    /// Marks a caller as gone, and returns its waker.
    pub(super) fn take_out(&mut self, index: usize) -> Option<Waker> {
        let node = &mut self.nodes[index];
        let waker = node.waker.take();
        node.gone = true;
        *(if index < self.placed { &mut self.placed_units } else { &mut self.tail_units }) -= node.units;
        self.gone += 1;
        while self.nodes.back().is_some_and(|node| node.gone) {
            self.nodes.pop_back();
            self.gone -= 1;
        }
        self.placed = self.placed.min(self.nodes.len());
        // Compacted once in a while: on the average each caller is moved once.
        if self.gone > self.nodes.len() / 2 + 16 {
            self.placed = self.nodes.iter().take(self.placed).filter(|node| !node.gone).count();
            self.nodes.retain(|node| !node.gone);
            self.gone = 0;
        }
        waker
    }

    /// Gives up all positions before `from`. Under a lower burst, the last callers may have no
    /// place any more.
    pub(super) fn clamp(&mut self, from: i64) {
        for run in &mut self.runs {
            run.start = run.start.max(from).min(run.end);
        }
        self.runs.retain(|run| run.start < run.end);
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

    /// Moves runs to earlier positions, so that the last ends at `mark` and none is within another.
    /// Returns whether it ended behind `mark`.
    pub(super) fn pull(&mut self, mark: i64) -> bool {
        if injected(Fault::ReturnsUnseen) || self.runs.back().is_none_or(|last| last.end <= mark) {
            return false;
        }
        let (mut runs, mut until) = (VecDeque::<Run>::with_capacity(self.runs.len()), mark);
        while let Some(run) = self.runs.pop_back() {
            let over = (run.end - until).max(0);
            until = run.start - over;
            match runs.front_mut() {
                Some(next) if next.start == run.end - over => next.start = until,
                _ => runs.push_front(Run { start: until, end: run.end - over }),
            }
        }
        self.runs = runs;
        true
    }

    /// Moves all positions back by `by`.
    pub(super) fn shift(&mut self, by: i64) {
        for run in &mut self.runs {
            *run = Run { start: run.start - by, end: run.end - by };
        }
        for node in self.nodes.iter_mut().filter(|node| node.armed != UNSET) {
            node.armed -= by;
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

    /// Returns the end of the place that a further caller would have. The next place of the word
    /// begins at `mark`.
    pub(super) fn end_of_next(&self, mark: i64, units: u64) -> i64 {
        let cursor = self.cursor();
        if self.tail_units == 0
            && let Some((_, end)) = cursor.and_then(|cursor| next_fit(&self.runs, cursor, units))
        {
            return end;
        }
        self.end_of_tail(mark) + units.cast_signed()
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

    /// Returns the position of a caller's turn: to be served, or at the head to get a place.
    pub(super) fn turn_of(&self, index: usize, sight: &Sight) -> i64 {
        if index < self.placed {
            return self.end_of(index + 1).map_or(sight.now, |(_, end)| end);
        }
        let Some((mark, _)) = sight.mark else { return sight.now };
        let after: u64 = self.nodes.range(index + 1..).filter(|node| !node.gone).map(|node| node.units).sum();
        let end = self.end_of_tail(mark) - after.cast_signed();
        let is_head = self.nodes.range(..index).all(|node| node.gone);
        // The head gets a place as soon as the debt has room for it.
        let room = mark + self.nodes[index].units.cast_signed() - sight.debt;
        if is_head { room.min(end) } else { end }
    }

    /// Returns the callers that wait, in order, with their costs and the ends of their places.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn places(&self) -> Vec<(u64, u64, Option<i64>)> {
        let live = self.nodes.iter().enumerate().filter(|(_, node)| !node.gone);
        let place = |index| (index < self.placed).then(|| self.end_of(index + 1).expect("it has a place").1);
        live.map(|(index, node)| (node.id, node.units, place(index))).collect()
    }
}
