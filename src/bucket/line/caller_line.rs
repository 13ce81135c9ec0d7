//! A line, and the touches of its callers. Pure: no atomics, no clock.

use std::task::Waker;

use super::bank::{Bank, Credit, Mark, Sight};
use super::queue::{Queue, UNSET};
use crate::fault::{Fault, injected};

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
pub(crate) enum LineTurn {
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

/// Wakers to call, and one to drop, after the unlock. A dropped waker may drop its task, and with
/// it a caller of this line.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    called: Vec<Waker>,
    dropped: Option<Waker>,
}

impl Wakes {
    /// Calls the wakers.
    pub(crate) fn wake(self) {
        self.called.into_iter().for_each(Waker::wake);
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn is_empty(&self) -> bool {
        self.called.is_empty()
    }

    fn extend(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        self.called.extend(wakers);
    }
}

/// Shortest wait of a caller without a place whose time has come, in nanoseconds.
const MIN_WAIT: u64 = 1_000_000;

/// The callers that wait for tokens of one bucket.
#[derive(Debug, Default)]
pub(crate) struct CallerLine {
    /// Tick of position 0.
    base: u64,
    queue: Queue,
    /// The word as the line left it, at the end of the last run.
    mark: Option<Mark>,
    /// Callers that have to join again.
    turned_away: Vec<u64>,
}

impl CallerLine {
    /// Returns the number of callers that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Returns whether no caller waits here or has to be told that it joins again.
    pub(crate) fn is_over(&self) -> bool {
        self.waiting() == 0 && self.turned_away.is_empty()
    }

    /// Adds a caller at the end, unless it is served at once or refused.
    pub(crate) fn join(&mut self, bank: &mut impl Bank, caller: &Caller<'_>, wakes: &mut Wakes) -> Joined {
        let Caller { id, units, max_wait, max_waiting, waker } = *caller;
        let sight = self.sight(bank, wakes);
        self.pump(bank, sight, None, wakes);
        let sight = self.sight(bank, wakes);
        let Some((mark, _)) = sight.mark else { return Joined::Lost };
        if self.waiting() >= max_waiting {
            // The head is the first node after a pump.
            let wait = match self.queue.nodes.is_empty() {
                true => 0,
                false => bank.nanos(self.queue.turn_of(0, &sight) - sight.now),
            };
            return Joined::Full { wait };
        }
        let told = bank.nanos(self.queue.end_of_next(mark, units) - sight.now);
        if told > max_wait {
            return Joined::Late { wait: told };
        }
        self.queue.push(id, units);
        self.pump(bank, sight, None, wakes);
        let Some(index) = self.queue.find(id) else {
            return if self.take_turned_away(id) { Joined::Lost } else { Joined::Served };
        };
        let turn = self.queue.turn_of(index, &sight);
        let wait = self.wait(bank, index, turn - sight.now);
        // Another thread may have charged the bucket since the look.
        if index < self.queue.placed && wait > max_wait {
            self.leave(bank, id, wakes);
            return Joined::Late { wait };
        }
        let node = &mut self.queue.nodes[index];
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
        wakes: &mut Wakes,
    ) -> LineTurn {
        let sight = self.sight(bank, wakes);
        let mut due = None;
        if let Some(index) = self.queue.find(id) {
            // The caller is here, and needs no wake-up.
            wakes.dropped = self.queue.nodes[index].waker.take();
            let armed = self.queue.nodes[index].armed;
            let had_place = index < self.queue.placed && armed != UNSET;
            due = (event == Event::Due && had_place && self.queue.turn_of(index, &sight) <= armed)
                .then_some(id);
        }
        self.pump(bank, sight, due, wakes);
        let Some(index) = self.queue.find(id) else {
            return if self.take_turned_away(id) { LineTurn::Joins } else { LineTurn::Served };
        };
        self.queue.nodes[index].waker = Some(waker.clone());
        if event == Event::Woken && index > 0 {
            return LineTurn::Waits;
        }
        let turn = self.queue.turn_of(index, &sight);
        if event == Event::Woken && turn >= self.queue.nodes[index].armed {
            return LineTurn::Waits;
        }
        self.queue.nodes[index].armed = turn;
        LineTurn::Sets { wait: self.wait(bank, index, turn - sight.now) }
    }

    /// Takes a caller out of the line. All behind it move up.
    pub(crate) fn leave(&mut self, bank: &mut impl Bank, id: u64, wakes: &mut Wakes) {
        let sight = self.sight(bank, wakes);
        self.pump(bank, sight, None, wakes);
        let Some(index) = self.queue.find(id) else {
            self.take_turned_away(id);
            return;
        };
        wakes.dropped = self.queue.take_out(index);
        self.clamp(&sight);
        self.pump(bank, sight, None, wakes);
    }

    /// Serves all that are due. Returns the units that callers without a place wait for.
    pub(crate) fn serve(&mut self, bank: &mut impl Bank, wakes: &mut Wakes) -> u64 {
        if self.queue.nodes.is_empty() {
            return 0;
        }
        let sight = self.sight(bank, wakes);
        self.pump(bank, sight, None, wakes);
        self.queue.tail_units()
    }

    /// Lets each caller set its timer anew when it is the head: the terms have changed.
    pub(crate) fn unset_timers(&mut self, wakes: &mut Wakes) {
        for node in &mut self.queue.nodes {
            node.armed = UNSET;
        }
        wakes.extend(self.queue.nodes.iter_mut().find(|node| !node.gone).and_then(|node| node.waker.take()));
    }

    fn take_turned_away(&mut self, id: u64) -> bool {
        let index = self.turned_away.iter().position(|other| *other == id);
        index.map(|index| self.turned_away.swap_remove(index)).is_some()
    }

    /// Looks at the bucket. Without it, no caller gets a place any more.
    fn sight(&mut self, bank: &mut impl Bank, wakes: &mut Wakes) -> Sight {
        if self.queue.nodes.is_empty() {
            let sight = bank.sight(None);
            self.base = sight.tick;
            return sight;
        }
        let mut sight = bank.sight(Some(self.base));
        if sight.far {
            self.count_from(&mut sight);
        }
        match sight.mark {
            None => self.lose(wakes),
            // Tokens came back: all callers move up.
            Some((end, mark)) if self.queue.pull(end) => {
                self.mark = Some(mark);
            }
            Some(_) => {}
        }
        sight
    }

    /// Counts positions from a reading on.
    fn count_from(&mut self, sight: &mut Sight) {
        let now = sight.now;
        self.queue.shift(now);
        self.base = sight.tick;
        *sight = Sight { now: 0, mark: sight.mark.map(|(end, mark)| (end - now, mark)), ..*sight };
    }

    /// Turns away all callers without a place, since the bucket is lost.
    fn lose(&mut self, wakes: &mut Wakes) {
        self.mark = None;
        while self.queue.nodes.len() > self.queue.placed {
            self.turn_away(self.queue.nodes.len() - 1, wakes);
        }
    }

    /// Takes the caller at `index`, which has no place, out of the line, and wakes it to join
    /// again.
    fn turn_away(&mut self, index: usize, wakes: &mut Wakes) {
        if let Some(node) = self.queue.remove_of_tail(index) {
            self.turned_away.push(node.id);
            wakes.extend(node.waker);
        }
    }

    /// Serves the callers that are due, places others, and gives back the rest.
    fn pump(&mut self, bank: &mut impl Bank, sight: Sight, due: Option<u64>, wakes: &mut Wakes) {
        loop {
            while let Some(served) = self.queue.pop_due(sight.now, due) {
                wakes.extend(served.waker);
            }
            if !self.queue.has_places() {
                self.clamp(&sight);
            }
            if !self.place_next(bank, wakes) {
                break;
            }
        }
        self.give_rest(bank);
        if self.waiting() == 0 {
            let (base, turned_away) = (self.base, std::mem::take(&mut self.turned_away));
            *self = CallerLine { base, turned_away, ..CallerLine::default() };
        }
        if !injected(Fault::HeadUnwoken) {
            self.wake_head(&sight, wakes);
        }
    }

    /// Gives up all positions that are more than one burst ago.
    fn clamp(&mut self, sight: &Sight) {
        if !injected(Fault::PlacesUnclamped) {
            self.queue.clamp(sight.now - sight.burst);
        }
    }

    /// Gives a place to the first caller that has none. Returns whether another may get one.
    fn place_next(&mut self, bank: &mut impl Bank, wakes: &mut Wakes) -> bool {
        let Some(units) = self.queue.first_of_tail() else { return false };
        if !self.queue.fits(units) {
            match bank.take(self.base, units) {
                Credit::Place { end, mark } => {
                    self.queue.extend(end - units.cast_signed(), end);
                    self.mark = Some(mark);
                }
                Credit::NoRoom => return false,
                Credit::TooLong => {
                    self.turn_away(self.queue.placed, wakes);
                    return true;
                }
                Credit::Lost => {
                    self.lose(wakes);
                    return false;
                }
            }
        }
        self.queue.place(units);
        true
    }

    /// Gives back the end of the last run, which no caller needs.
    fn give_rest(&mut self, bank: &mut impl Bank) {
        let (rest, Some(mark)) = (self.queue.rest(), self.mark) else { return };
        if rest > 0
            && let Some(left) = bank.give_back(rest, mark)
        {
            self.mark = self.queue.cut(rest).then_some(left);
        }
    }

    /// Wakes the head if its turn is before its timer.
    fn wake_head(&mut self, sight: &Sight, wakes: &mut Wakes) {
        if let Some(head) = self.queue.nodes.front()
            && head.waker.is_some()
            && self.queue.turn_of(0, sight) < head.armed
        {
            wakes.extend(self.queue.nodes[0].waker.take());
        }
    }

    /// Returns the wait until a turn.
    fn wait(&self, bank: &impl Bank, index: usize, units: i64) -> u64 {
        let wait = bank.nanos(units);
        if index < self.queue.placed || wait > 0 { wait } else { MIN_WAIT }
    }

    /// Returns the callers that wait, in order, with their costs and the ends of their places, as
    /// positions from tick 0; for tests.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn places(&self) -> Vec<(u64, u64, Option<i64>)> {
        let base = self.base.cast_signed();
        let places = self.queue.places().into_iter();
        places.map(|(id, units, end)| (id, units, end.map(|end| end + base))).collect()
    }
}
