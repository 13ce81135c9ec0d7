// promise: law
//! The queue of a line beside a naive one, and its steps as callers join and leave.

use tollgate_testing::{Random, size};

use crate::bucket::line::queue::Queue;
use crate::bucket::line::runs::AT_ONCE;
use crate::bucket::line::sums::VISITS;

/// A queue that computes each place from the beginning.
#[derive(Default)]
struct Naive {
    /// Numbers and units, in order.
    callers: Vec<(u64, u64)>,
    placed: usize,
    runs: Vec<(i64, i64)>,
}

impl Naive {
    /// Returns the runs and positions at which the first callers end, as far as they fit.
    fn ends(&self, count: usize) -> Vec<(usize, i64)> {
        let (mut ends, mut run) = (Vec::new(), 0);
        let Some(mut from) = self.runs.first().map(|first| first.0) else { return ends };
        for (_, units) in &self.callers[..count] {
            while from + units.cast_signed() > self.runs[run].1 {
                run += 1;
                let Some(next) = self.runs.get(run) else { return ends };
                from = next.0;
            }
            from += units.cast_signed();
            ends.push((run, from));
        }
        ends
    }

    fn cursor(&self) -> Option<(usize, i64)> {
        self.ends(self.placed).last().copied().or(self.runs.first().map(|first| (0, first.0)))
    }

    fn places(&self) -> Vec<(u64, u64, Option<i64>)> {
        let mut ends = self.ends(self.placed).into_iter();
        self.callers.iter().map(|(id, units)| (*id, *units, ends.next().map(|end| end.1))).collect()
    }

    fn tail_units(&self) -> u64 {
        self.callers[self.placed..].iter().map(|caller| caller.1).sum()
    }

    /// Returns the end of the next stretch that fits.
    fn next_fit(&self, units: u64) -> Option<i64> {
        let (run, from) = self.cursor()?;
        let mut ends = self.runs[run..].iter().map(|run| (run.0.max(from) + units.cast_signed(), run.1));
        ends.find(|(end, upto)| end <= upto).map(|(end, _)| end)
    }

    /// Returns the end of a further caller: in the next stretch, or behind all callers without one.
    fn end_of_next(&self, mark: i64, units: u64) -> i64 {
        let from = match (self.cursor(), self.runs.last()) {
            (Some((_, from)), Some(last)) if last.1 == mark => from.max(last.0),
            _ => mark,
        };
        let behind = from + (self.tail_units() + units).cast_signed();
        self.next_fit(units).filter(|_| self.tail_units() == 0).unwrap_or(behind)
    }

    fn rest(&self) -> u64 {
        match (self.tail_units(), self.cursor(), self.runs.last()) {
            (0, Some((run, from)), Some(last)) => {
                let from = if run + 1 == self.runs.len() { from } else { last.0 };
                (last.1 - from).cast_unsigned()
            }
            _ => 0,
        }
    }

    fn pop_due(&mut self, now: i64, due: Option<u64>) -> Option<u64> {
        let (id, _) = *self.callers.first()?;
        let (run, end) = *self.ends(self.placed.min(1)).first()?;
        if end > now && due.is_none_or(|due| id > due) {
            return None;
        }
        self.runs.drain(..run);
        self.runs[0].0 = end;
        self.runs.retain(|run| run.0 < run.1);
        self.callers.remove(0);
        self.placed -= 1;
        Some(id)
    }

    fn clamp(&mut self, from: i64) {
        self.runs.iter_mut().for_each(|run| run.0 = run.0.max(from));
        self.runs.retain(|run| run.0 < run.1);
        self.placed = self.ends(self.placed).len();
    }

    fn pull(&mut self, mark: i64) {
        let mut until = mark;
        for run in self.runs.iter_mut().rev() {
            let over = (run.1 - until).max(0);
            *run = (run.0 - over, run.1 - over);
            until = run.0;
        }
        self.runs = self
            .runs
            .chunk_by(|one, next| one.1 == next.0)
            .map(|all| (all[0].0, all[all.len() - 1].1))
            .collect();
    }
}

/// Both queues, and the end of the word.
struct Both {
    queue: Queue,
    naive: Naive,
    random: Random,
    next: u64,
    end: i64,
    now: i64,
}

impl Both {
    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    /// Gives a place to the first caller without one, from the word if no run has room.
    fn place(&mut self) {
        let first = self.naive.callers.get(self.naive.placed).map(|caller| caller.1);
        assert_eq!(self.queue.runs.first_of_tail(), first);
        let Some(units) = first else { return };
        let fits = self.queue.runs.fits(units);
        assert!(self.naive.next_fit(units).is_some() || !fits);
        if !fits {
            self.take(units, true);
        }
        self.queue.runs.place(units);
        self.naive.placed += 1;
    }

    /// Takes units from the word: for the line, or for a reservation.
    fn take(&mut self, units: u64, for_line: bool) {
        let start = self.end;
        self.end += units.cast_signed();
        if !for_line {
            return;
        }
        self.queue.runs.extend(start, self.end);
        match self.naive.runs.last_mut() {
            Some(last) if last.1 == start => last.1 = self.end,
            _ => self.naive.runs.push((start, self.end)),
        }
    }

    fn step(&mut self) {
        match self.below(16) {
            0..=4 => {
                let units = 1 + self.below(5);
                self.next += 1 + self.random.below(3);
                self.queue.push(self.next, units);
                self.naive.callers.push((self.next, units));
                if self.below(4) > 0 {
                    self.place();
                }
            }
            5 => self.place(),
            6 | 7 => {
                let units = 1 + self.below(3);
                self.take(units, false);
            }
            8..=10 if !self.naive.callers.is_empty() => {
                let index = self.random.below(self.naive.callers.len() as u64) as usize;
                let (id, _) = self.naive.callers.remove(index);
                self.naive.placed -= usize::from(index < self.naive.placed);
                let slot = self.queue.find(id).expect("it waits");
                self.queue.take_out(slot);
                self.queue.runs.pack();
                assert_eq!(self.queue.find(id), None);
            }
            11 => {
                let rest = self.queue.runs.rest();
                assert_eq!(rest, self.naive.rest());
                if rest > 0 && self.naive.runs.last().is_some_and(|last| last.1 == self.end) {
                    self.queue.runs.cut(rest);
                    self.naive.runs.last_mut().unwrap().1 -= rest.cast_signed();
                    self.naive.runs.retain(|run| run.0 < run.1);
                    self.end -= rest.cast_signed();
                }
            }
            12 => {
                let back = 1 + self.below(6).cast_signed();
                if self.end - back > self.now {
                    self.end -= back;
                    self.queue.runs.pull(self.end);
                    self.naive.pull(self.end);
                }
            }
            13 if self.below(8) == 0 => {
                // A lower burst.
                let from = self.now + self.below(4).cast_signed();
                self.queue.runs.clamp(from);
                self.naive.clamp(from);
                self.end = self.end.max(from);
            }
            _ => {
                self.now += self.random.below(8).cast_signed();
                self.end = self.end.max(self.now);
                loop {
                    let due = (self.random.below(8) == 0).then_some(self.next);
                    let served = self.queue.pop_due(self.now, due).map(|served| served.0);
                    assert_eq!(served, self.naive.pop_due(self.now, due));
                    if served.is_none() {
                        break;
                    }
                }
                // At most 5 units are the cost of a caller.
                self.queue.runs.clamp(self.now - 5);
                self.naive.clamp(self.now - 5);
            }
        }
        if self.naive.callers.is_empty() && self.below(2) == 0 {
            (self.queue, self.naive) = (Queue::default(), Naive::default());
        }
    }

    fn compare(&self) {
        assert_eq!(self.queue.positions(), self.naive.places());
        assert_eq!(self.queue.waiting(), self.naive.callers.len());
        assert_eq!(self.queue.runs.tail_units(), self.naive.tail_units());
        assert_eq!(self.queue.runs.has_positions(), self.naive.placed > 0);
        for units in [1, 4] {
            let next = self.queue.runs.end_of_next(self.end, units);
            assert_eq!(next, self.naive.end_of_next(self.end, units), "of {units}");
        }
        assert_eq!(self.queue.runs.head().is_some(), !self.naive.callers.is_empty());
    }
}

#[test]
fn each_step_is_that_of_a_naive_queue() {
    for seed in 0..size(40, 400) {
        let (queue, naive) = <(Queue, Naive)>::default();
        let mut both = Both { queue, naive, random: Random(seed), next: 0, end: 0, now: 0 };
        for step in 0..400 {
            both.step();
            if both.naive.runs.len() >= 2 * AT_ONCE {
                break;
            }
            (0..5).for_each(|_| both.queue.runs.pack());
            println!("seed {seed}, step {step}: {:?}", both.naive.runs);
            both.compare();
        }
    }
}

/// With more runs than one step packs, the order and the disjoint places stay, and all callers move
/// up in the end.
#[test]
fn many_runs_are_packed_step_by_step() {
    for seed in 0..size(4, 40) {
        let (mut queue, mut naive, mut random) = (Queue::default(), Naive::default(), Random(seed));
        let mut end = 0;
        for id in 0..300 {
            let units = 1 + random.below(4);
            queue.push(id, units);
            naive.callers.push((id, units));
            queue.runs.extend(end, end + units.cast_signed());
            naive.runs.push((end, end + units.cast_signed()));
            queue.runs.place(units);
            naive.placed += 1;
            end += units.cast_signed() + 1 + random.below(3).cast_signed();
        }
        let mut before = queue.positions();
        for _ in 0..200 {
            let index = random.below(naive.callers.len() as u64) as usize;
            let (id, _) = naive.callers.remove(index);
            naive.placed -= 1;
            let slot = queue.find(id).expect("it waits");
            queue.take_out(slot);
            queue.runs.pack();
            before.remove(index);
            let (places, mut last) = (queue.positions(), i64::MIN);
            for ((_, units, place), before) in places.iter().zip(&before) {
                let place = place.expect("no place is lost");
                assert!(place <= before.2.expect("it had one"), "a place moves to a later time");
                assert!(place - units.cast_signed() >= last, "places overlap: {places:?}");
                last = place;
            }
            before = places;
        }
        (0..300).for_each(|_| queue.runs.pack());
        assert_eq!(queue.positions(), naive.places(), "seed {seed}");
    }
}

/// Returns the steps for each of `callers` that join and leave in a random order. Beside every
/// `apart`th caller there is a reservation. Without `placed` the first caller alone has a place.
fn steps(callers: u64, apart: u64, placed: bool) -> u64 {
    let (mut queue, mut random, mut end) = (Queue::default(), Random(callers), 0);
    let mut ids: Vec<u64> = (0..callers).collect();
    VISITS.with(|visits| visits.set(0));
    let look = |queue: &mut Queue, id: Option<u64>| {
        // The questions of a join and of a leave.
        queue.runs.pack();
        let _ = (
            queue.runs.rest(),
            queue.runs.tail_units(),
            queue.runs.end_of_next(0, 1),
            queue.runs.first_of_tail(),
        );
        queue.runs.clamp(-1);
        let _ = id.map(|id| queue.find(id));
    };
    for id in 0..callers {
        queue.push(id, 1);
        if (placed || id == 0) && !queue.runs.fits(1) {
            end += i64::from(id % apart == 0);
            queue.runs.extend(end, end + 1);
            end += 1;
        }
        if placed || id == 0 {
            queue.runs.place(1);
        }
        look(&mut queue, Some(id));
    }
    while !ids.is_empty() {
        let id = ids.swap_remove(random.below(ids.len() as u64) as usize);
        let slot = queue.find(id).expect("it waits");
        queue.take_out(slot);
        look(&mut queue, None);
    }
    VISITS.with(std::cell::Cell::get)
}

#[test]
fn joining_and_leaving_are_logarithmic_in_the_callers() {
    let shapes = [
        ("the debt is a burst", u64::MAX, false),
        ("all are promised", u64::MAX, true),
        ("a reservation in a hundred", 100, true),
        ("a reservation between each two", 1, true),
    ];
    for (shape, apart, placed) in shapes {
        let [few, many] = [4_000, 16_000].map(|callers| steps(callers, apart, placed));
        println!("{shape}: {few} steps of 4,000 callers, {many} of 16,000");
        assert!(many <= 5 * few, "{shape}: {few} and {many} steps");
        // A caller joins and leaves once: some questions of 14 steps each, and 4 runs to pack.
        assert!(many <= 16_000 * 1_000, "{shape}: {many}");
    }
}
