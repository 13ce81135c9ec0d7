//! A line, and the touches of its callers. It reads the clock and the word only by a `Bank`.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use super::bank::{Bank, Credit, Mark, Sight};
use super::queue::{Queue, UNSET};
use crate::fault::{Fault, injected};
use crate::word::decision::{Denied, Granted, Reason};

/// A number for each caller in a line, of all lines.
///
/// Relaxed: it is taken under the mutex of a line, so the numbers of that line are in its order.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The wish of a caller that joins a line.
#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) n: u64,
    /// Nanoseconds that the caller is ready to wait.
    pub(crate) max_wait: u64,
    /// Most callers in line.
    pub(crate) max_waiting: usize,
    pub(crate) waker: &'a Waker,
}

/// A caller in line: its number, and its timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InLine {
    pub(crate) id: u64,
    /// The version of the terms for which the timer was set.
    pub(crate) version: u64,
    /// Nanoseconds until its timer is over.
    pub(crate) wait: u64,
    /// Nanoseconds after which its tokens come at the latest.
    #[cfg_attr(not(test), expect(dead_code, reason = "it is of the tests"))]
    pub(crate) told: u64,
}

/// The outcome of joining a line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entered {
    Granted(Granted),
    Waits(InLine),
    /// The bucket is lost: the caller looks it up again.
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
    /// The caller waits on until the rule is changed, and is woken then: the bucket is blocked.
    Paused,
    /// The caller is turned away. It joins again, and then leaves.
    Joins,
    /// The caller is turned away, and others before it have not joined again. It waits to be
    /// woken, but at most a second.
    Behind,
}

/// The event for which a caller looks at its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
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

/// Shortest wait of a caller without a position whose time has come, in nanoseconds.
const MIN_WAIT: u64 = 1_000_000;

/// The callers that wait for tokens of one bucket.
#[derive(Debug, Default)]
pub(crate) struct CallerLine {
    /// Tick of position 0.
    base: u64,
    queue: Queue,
    /// The word as the line left it, at the end of the last run.
    mark: Option<Mark>,
    /// Whether the key of the bucket has another one now.
    is_closed: bool,
    /// Callers that have to join again, one after the other.
    turned_away: BTreeMap<u64, Option<Waker>>,
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

    /// Adds a caller at the end, unless the tokens are there or it is refused.
    pub(crate) fn join(
        &mut self,
        bank: &mut impl Bank,
        wish: &Wish<'_>,
        wakes: &mut Wakes,
    ) -> Result<Entered, Denied> {
        let Wish { n, max_wait, max_waiting, waker } = *wish;
        if self.waiting() == 0 {
            match bank.take_now(n) {
                None => return Ok(Entered::Lost),
                Some(Err(denied)) if denied.reason() == Reason::Empty => {}
                Some(decision) => return decision.map(Entered::Granted),
            }
        }
        // Before the reading: a change in between is noticed when the timer is over.
        let version = bank.version();
        let (id, units) = (NEXT.fetch_add(1, Relaxed), bank.units(n));
        let late = |wait: u64| Denied::late(n, wait - max_wait.min(wait));
        let sight = self.sight(bank, wakes);
        self.pump(bank, sight, None, wakes);
        let sight = self.sight(bank, wakes);
        let Some((mark, _)) = sight.mark else { return Ok(Entered::Lost) };
        if self.waiting() >= max_waiting {
            let turn = self.queue.runs.head().map_or(sight.now, |head| self.queue.runs.turn_of(head, &sight));
            let wait = bank.nanos(turn - sight.now);
            return Err(Denied::in_full_line(n, self.waiting(), wait));
        }
        let told = bank.nanos(self.queue.runs.end_of_next(mark, units) - sight.now);
        if told > max_wait {
            return Err(late(told));
        }
        self.queue.push(id, units);
        self.pump(bank, sight, None, wakes);
        let Some(slot) = self.queue.find(id) else {
            let is_lost = self.turned_away.remove(&id).is_some();
            return Ok(if is_lost { Entered::Lost } else { Entered::Granted(bank.granted(n)) });
        };
        let turn = self.queue.runs.turn_of(slot, &sight);
        let wait = self.wait(bank, slot, turn - sight.now);
        // Another thread may have charged the bucket since the look.
        if self.queue.runs.is_placed(slot) && wait > max_wait {
            self.leave(bank, id, wakes);
            return Err(late(wait));
        }
        let node = self.queue.node(slot);
        (node.armed, node.waker) = (turn, Some(waker.clone()));
        Ok(Entered::Waits(InLine { id, version, wait, told }))
    }

    /// Serves all callers that are due, and returns the turn of one of them, and the version of the
    /// terms.
    ///
    /// `fired`: its timer is over.
    pub(crate) fn look(
        &mut self,
        bank: &mut impl Bank,
        caller: &InLine,
        fired: bool,
        waker: &Waker,
        wakes: &mut Wakes,
    ) -> (LineTurn, u64) {
        let version = bank.version();
        let event = match (version == caller.version, fired) {
            (false, _) => Event::Changed,
            (true, true) => Event::Due,
            (true, false) => Event::Woken,
        };
        (self.turn(bank, caller.id, event, waker, wakes), version)
    }

    fn turn(
        &mut self,
        bank: &mut impl Bank,
        id: u64,
        event: Event,
        waker: &Waker,
        wakes: &mut Wakes,
    ) -> LineTurn {
        let sight = self.sight(bank, wakes);
        let mut due = None;
        if let Some(slot) = self.queue.find(id) {
            // The caller is here, and needs no wake-up.
            let node = self.queue.node(slot);
            wakes.dropped = node.waker.take();
            let armed = node.armed;
            let had_position = self.queue.runs.is_placed(slot) && armed != UNSET;
            due = (event == Event::Due && had_position && self.queue.runs.turn_of(slot, &sight) <= armed)
                .then_some(id);
        }
        self.pump(bank, sight, due, wakes);
        let Some(slot) = self.queue.find(id) else { return self.outside(id, event, waker, wakes) };
        let (turn, is_head) = (self.queue.runs.turn_of(slot, &sight), self.queue.runs.head() == Some(slot));
        let is_paused = sight.is_shut && !self.queue.runs.is_placed(slot);
        let node = self.queue.node(slot);
        node.waker = Some(waker.clone());
        // A timer that was set before the pause ends once.
        if event == Event::Woken && (is_paused || !is_head || turn >= node.armed) {
            return LineTurn::Waits;
        }
        if is_paused {
            node.armed = UNSET;
            return LineTurn::Paused;
        }
        node.armed = turn;
        LineTurn::Sets { wait: self.wait(bank, slot, turn - sight.now) }
    }

    /// Returns the turn of a caller that is not in the line: it is served, or turned away.
    fn outside(&mut self, id: u64, event: Event, waker: &Waker, wakes: &mut Wakes) -> LineTurn {
        let is_first = self.turned_away.keys().next() == Some(&id);
        match self.turned_away.get_mut(&id) {
            None => LineTurn::Served,
            Some(_) if is_first || event == Event::Due => LineTurn::Joins,
            Some(other) => {
                // With a waker here, its timer is set as well.
                let old = other.replace(waker.clone());
                let sleeps = event == Event::Woken && old.is_some();
                wakes.dropped = old.or(wakes.dropped.take());
                if sleeps { LineTurn::Waits } else { LineTurn::Behind }
            }
        }
    }

    /// Takes a caller out of the line. All behind it move up.
    pub(crate) fn leave(&mut self, bank: &mut impl Bank, id: u64, wakes: &mut Wakes) {
        let sight = self.sight(bank, wakes);
        self.pump(bank, sight, None, wakes);
        let Some(slot) = self.queue.find(id) else {
            if let Some(waker) = self.turned_away.remove(&id) {
                wakes.dropped = waker;
                wakes.extend(self.turned_away.values_mut().next().and_then(Option::take));
            }
            return;
        };
        wakes.dropped = self.queue.take_out(slot);
        self.clamp(&sight);
        self.pump(bank, sight, None, wakes);
    }

    /// Serves all that are due. Returns the units that callers without a position wait for.
    pub(crate) fn serve(&mut self, bank: &mut impl Bank, wakes: &mut Wakes) -> u64 {
        if self.waiting() == 0 {
            return 0;
        }
        let sight = self.sight(bank, wakes);
        self.pump(bank, sight, None, wakes);
        self.queue.runs.tail_units()
    }

    /// Lets each caller set its timer anew when it is the head: the terms have changed.
    pub(crate) fn unset_timers(&mut self, wakes: &mut Wakes) {
        self.queue.nodes().for_each(|node| node.armed = UNSET);
        wakes.extend(self.queue.nodes().next().and_then(|node| node.waker.take()));
    }

    /// Closes the line, since the key of the bucket has another one now. What the callers hold of
    /// this one goes back, and at the next touch all of them join again.
    pub(crate) fn close(&mut self, bank: &mut impl Bank) {
        let units = self.queue.runs.displace();
        if let Some(mark) = self.mark.take() {
            bank.give_back(units, mark);
        }
        self.is_closed = self.waiting() > 0;
    }

    /// Looks at the bucket. Without it, all callers that are not due join again.
    fn sight(&mut self, bank: &mut impl Bank, wakes: &mut Wakes) -> Sight {
        if self.waiting() == 0 {
            let sight = bank.sight(None);
            self.base = sight.tick;
            return sight;
        }
        let mut sight = bank.sight(Some(self.base));
        if sight.far {
            self.count_from(&mut sight);
        }
        match sight.mark.filter(|_| !self.is_closed) {
            None => self.lose(sight.now, sight.is_gone || self.is_closed, wakes),
            Some((end, mark)) => {
                // A rest of more than a burst ago must not join the stretches that tokens move up.
                self.serve_due(sight.now, None, wakes);
                if !injected(Fault::PlacesUnclamped) {
                    self.queue.runs.forget(sight.now - sight.burst);
                }
                // Tokens came back: all callers move up.
                if self.queue.runs.pull(end) {
                    self.mark = Some(mark);
                }
            }
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

    /// Turns away all callers that are not due, since the bucket is lost. If it is gone, the first
    /// one of the next bucket is the first one here, so a position in this one counts no more. Else
    /// the callers with a position keep it: its tokens are taken from a bucket that is there.
    fn lose(&mut self, now: i64, is_gone: bool, wakes: &mut Wakes) {
        self.serve_due(now, None, wakes);
        self.mark = None;
        if is_gone {
            self.queue.runs.displace();
        }
        while self.turn_away(wakes) {}
    }

    /// Takes the first caller without a position out of the line, and wakes it to join again.
    fn turn_away(&mut self, wakes: &mut Wakes) -> bool {
        let Some((id, waker)) = self.queue.pop_of_tail() else { return false };
        self.turned_away.insert(id, None);
        wakes.extend(waker);
        true
    }

    fn serve_due(&mut self, now: i64, due: Option<u64>, wakes: &mut Wakes) {
        while let Some((_, waker)) = self.queue.pop_due(now, due) {
            wakes.extend(waker);
        }
    }

    /// Serves the callers that are due, gives others a position, and gives back the rest.
    fn pump(&mut self, bank: &mut impl Bank, sight: Sight, due: Option<u64>, wakes: &mut Wakes) {
        self.queue.runs.pack();
        loop {
            self.serve_due(sight.now, due, wakes);
            if !self.queue.runs.has_positions() {
                self.clamp(&sight);
            }
            if !self.place_next(bank, sight.now, wakes) {
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
            self.queue.runs.clamp(sight.now - sight.burst);
        }
    }

    /// Gives a position to the first caller that has none. Returns whether another may get one.
    fn place_next(&mut self, bank: &mut impl Bank, now: i64, wakes: &mut Wakes) -> bool {
        let Some(units) = self.queue.runs.first_of_tail() else { return false };
        if !self.queue.runs.fits(units) {
            match bank.take(self.base, units) {
                Credit::Stretch { end, mark } => {
                    self.queue.runs.extend(end - units.cast_signed(), end);
                    self.mark = Some(mark);
                }
                Credit::NoRoom => return false,
                Credit::TooLong => {
                    return self.turn_away(wakes);
                }
                Credit::Lost => {
                    // The next look at the bucket tells whether it is gone.
                    self.lose(now, false, wakes);
                    return false;
                }
            }
        }
        self.queue.runs.place(units);
        true
    }

    /// Gives back the end of the last run, which no caller needs.
    fn give_rest(&mut self, bank: &mut impl Bank) {
        let (rest, Some(mark)) = (self.queue.runs.rest(), self.mark) else { return };
        if rest > 0
            && let Some(left) = bank.give_back(rest, mark)
        {
            self.mark = self.queue.runs.cut(rest).then_some(left);
        }
    }

    /// Wakes the head if its turn is before its timer.
    fn wake_head(&mut self, sight: &Sight, wakes: &mut Wakes) {
        let Some(head) = self.queue.runs.head() else { return };
        if sight.is_shut && !self.queue.runs.is_placed(head) {
            return;
        }
        let turn = self.queue.runs.turn_of(head, sight);
        let node = self.queue.node(head);
        if turn < node.armed {
            wakes.extend(node.waker.take());
        }
    }

    /// Returns the wait until a turn.
    fn wait(&self, bank: &impl Bank, slot: usize, units: i64) -> u64 {
        let wait = bank.nanos(units);
        if self.queue.runs.is_placed(slot) || wait > 0 { wait } else { MIN_WAIT }
    }

    /// Returns the callers that wait, in order, with their costs and their positions, as
    /// positions from tick 0; for tests.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn positions(&self) -> Vec<(u64, u64, Option<i64>)> {
        let base = self.base.cast_signed();
        let positions = self.queue.positions().into_iter();
        positions.map(|(id, units, end)| (id, units, end.map(|end| end + base))).collect()
    }
}
