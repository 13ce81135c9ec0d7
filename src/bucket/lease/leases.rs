//! Leases: how they begin, how they end, and the cells that they are in.

use std::num::NonZero;
use std::slice;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::available_parallelism;

use crossbeam_utils::CachePadded;

use super::cells::{Cell, IDLE, Lease};
use super::claims::Claim;
use super::leased_terms::{LeaseClock, LeasedTerms};
use crate::bucket::atomic::{Bucket, BucketRef, ReadClock};
use crate::bucket::engine::{Engine, Now};
use crate::fault::{Fault, injected};
use crate::rule::gate::Gate;
use crate::sync::{AtomicU64, MODEL, Ordering, Turns};
use crate::word::decision::Granted;
use crate::word::state::{Reading, State};
use crate::word::terms::Terms;
use crate::word::wait::Wait;

/// Largest number of cells of one bucket.
const MAX_CELLS: usize = 64;
/// Turns for a claimed cell before it is passed over.
const MAX_TURNS: usize = if MODEL { 1 } else { 200 };
/// Turns by the setter of a lower burst, which waits for one cell and then claims all: about as
/// many as there are in the longest wait.
///
/// A model has none: under loom a thread that yields waits until the others are done.
const MAX_TURNS_AFTER_A_CHANGE: usize = if MODEL { 0 } else { 100_000 };
const MAX_TURNS_FOR_ALL: usize = if MODEL { 0 } else { MAX_TURNS };
/// All leases together are at most the burst divided by this.
const LEASED_SHARE: u64 = if MODEL { 1 } else { 4 };
/// Fills of a cell after which it looks for an idle one.
const FILLS_A_LOOK: u64 = 16;

/// The lease cells of a bucket, about one a core, and a bound on the tokens leased in them.
#[derive(Debug)]
pub(crate) struct LeaseCells {
    cells: Box<[CachePadded<Cell>]>,
    /// At least the tokens of all leases.
    leased: CachePadded<AtomicU64>,
    /// Whether the bucket had no token left when a take was last decided by its word.
    drained: AtomicBool,
}

impl LeaseCells {
    /// Returns cells for the cores of the process, counted once and rounded up to a power of two.
    pub(crate) fn one_a_core() -> LeaseCells {
        // The system needs some 25 us to answer.
        static CORES: LazyLock<usize> =
            LazyLock::new(|| available_parallelism().map_or(1, NonZero::get).min(MAX_CELLS));
        LeaseCells::new(if MODEL { 2 } else { CORES.next_power_of_two() })
    }

    /// Creates `cells` cells, a power of two.
    pub(crate) fn new(cells: usize) -> LeaseCells {
        let cells = (0..cells).map(|_| CachePadded::new(Cell::new())).collect();
        let leased = CachePadded::new(AtomicU64::new(0));
        LeaseCells { cells, leased, drained: AtomicBool::new(false) }
    }

    /// Returns whether takes are to be decided by the word, as those of a plain bucket, for want of
    /// tokens to lease. It is a hint.
    #[inline(always)]
    pub(crate) fn is_drained(&self) -> bool {
        self.drained.load(Relaxed)
    }

    /// Notes whether the bucket is drained. The line is written only when that changes.
    #[inline]
    pub(super) fn note_drained(&self, drained: bool) {
        if self.is_drained() != drained {
            self.drained.store(drained, Relaxed);
        }
    }

    /// Returns the cell of the thread with index `own`.
    #[inline(always)]
    pub(crate) fn of(&self, own: usize) -> &Cell {
        &self.cells[own & (self.cells.len() - 1)]
    }
}

/// A bucket, and the cells that it is spread over.
#[derive(Clone, Copy)]
pub(crate) struct Spread<'a> {
    pub(crate) bucket: &'a Bucket,
    pub(crate) engine: &'a Engine,
    pub(crate) cells: &'a LeaseCells,
}

impl<'a> Spread<'a> {
    fn all(self) -> impl Iterator<Item = &'a Cell> {
        self.cells.cells.iter().map(|cell| &**cell)
    }

    pub(super) fn others(self, own: usize) -> impl Iterator<Item = &'a Cell> {
        (1..self.cells.cells.len()).map(move |by| self.cells.of(own.wrapping_add(by)))
    }

    pub(super) fn leased(self) -> &'a AtomicU64 {
        &self.cells.leased
    }

    #[inline(always)]
    pub(super) fn clock<T>(self, read: T) -> LeaseClock<'a, T> {
        LeaseClock { read, leased: self.leased() }
    }

    /// Returns a reading that counts with the leased tokens.
    pub(super) fn read(self, read: impl ReadClock, state: State) -> Reading<LeasedTerms> {
        self.clock(read).beside_leases(state, 0, false)
    }

    pub(super) fn is_leased(self) -> bool {
        self.leased().load(Ordering::Acquire) > 0
    }

    /// Returns the tokens at hand in cells.
    pub(crate) fn at_hand(self) -> u64 {
        let leases = self.all().map(|cell| cell.lease());
        leases.filter(|lease| !lease.is_claimed()).map(Lease::left).sum()
    }

    /// Returns the largest lease under these terms, in tokens.
    pub(super) fn most(self, terms: &Terms) -> u64 {
        terms.available(terms.capacity) / (LEASED_SHARE * self.cells.cells.len() as u64)
    }

    /// Takes `n` tokens of the word, and leases a batch on top.
    ///
    /// Returns `None` if there are fewer than `n`, or if another thread has the cell.
    pub(super) fn refill(self, own: usize, batch: u64, n: u64) -> Option<Granted> {
        let cell = self.cells.of(own);
        let (was, seen) = (cell.lease(), cell.seen());
        if was.is_claimed() || was.left() >= n {
            return cell.take(n);
        }
        let mut claim = self.claim(cell, was)?;
        if !injected(Fault::LeaseCountedLate) {
            claim.count_in(batch);
        }
        let (now, raised) = (Now(self.engine), claim.raised);
        let read = |state| self.clock(now).beside_leases(state, raised, false);
        let step = |state: State, reading: &Reading<LeasedTerms>| {
            let terms = reading.refill.terms;
            let idle = !MODEL && reading.nanos().saturating_sub(seen) > IDLE;
            let size = |spare| {
                // A lease is at most half of this core's even share of the spare tokens.
                let shares = if MODEL { 1 } else { 2 * self.cells.cells.len() as u64 };
                let share = terms.tokens(spare) / shares;
                let size = batch.min(self.most(&terms)).min(share);
                if idle || size < 2 { 0 } else { size }
            };
            // No underflow: fewer than `n` are left. More than there is, where no token is to be
            // leased.
            let need = match terms.gate {
                Gate::Counted => terms.units(n - was.left()),
                _ => terms.capacity + 1,
            };
            state.lease(&reading.refill, reading.tick, need, size)
        };
        let ((outcome, size), reading) = self.bucket.update(read, step);
        if !outcome.granted {
            cell.note_too_few();
            return None;
        }
        if injected(Fault::LeaseCountedLate) {
            claim.count_in(size);
        }
        let (reading, now) = (LeasedTerms::in_full(reading), reading.nanos());
        let terms = &reading.refill;
        let full = Wait::until(terms.capacity, outcome.level, outcome.lag, &reading);
        let turn = cell.note(now, terms.available(outcome.level), self.most(terms));
        cell.note_reset(full.nanos());
        let granted = cell.granted(n, size);
        claim.settle(size);
        if turn.is_multiple_of(FILLS_A_LOOK) {
            self.recall_idle(own, turn / FILLS_A_LOOK, now);
        }
        Some(granted)
    }

    fn claim(self, cell: &'a Cell, was: Lease) -> Option<Claim<'a>> {
        Claim::new(cell, self.leased(), was)
    }

    /// Gives the tokens left in each cell back to the word, and ends the leases.
    #[cold]
    pub(crate) fn recall_all(self) {
        if self.is_leased() {
            self.all().for_each(|cell| self.recall(cell));
        }
    }

    /// Ends all leases after a change to a lower burst, and drops the tokens above that burst.
    ///
    /// *Invariant:* afterwards the word and the cells hold at most the burst in force. A higher
    /// burst keeps that by itself, so no other change recalls or cuts.
    ///
    /// All cells are claimed before one commit ends their leases. Meanwhile no lease is taken, so
    /// `leased` is the sum of the leases that end, and only tokens above the burst are lost. (Ended
    /// one by one, leases mint tokens: a lease taken between two of them has no room of its own
    /// while `leased` is above the new burst.)
    ///
    /// A stopped thread may keep its cell claimed for longer than this call waits. Its lease is not
    /// ended, and may be of the burst before. The word is then cut to the burst in force less all
    /// tokens that count as leased. Only this cut may lose tokens below the burst: at most as many
    /// as that thread's cell counts as leased.
    ///
    /// The mutex of setters orders all changes. Each setter whose change lowered the burst recalls.
    #[cold]
    pub(crate) fn recall_after_a_lower_burst(self) {
        // One by one at first: while this waits, other cells serve their takers.
        self.all().for_each(|cell| drop(self.seize(cell, MAX_TURNS_AFTER_A_CHANGE)));
        let mut claims = Vec::with_capacity(self.cells.cells.len());
        let end = |claims: &mut Vec<Claim<'_>>| {
            self.end_leases(claims);
            claims.drain(..).for_each(|claim| claim.settle(0));
        };
        let mut kept = false;
        for cell in self.all() {
            match self.seize(cell, MAX_TURNS_FOR_ALL) {
                Some(claim) => claims.push(claim),
                None => kept = true,
            }
            if injected(Fault::RecalledApart) {
                end(&mut claims);
            }
        }
        end(&mut claims);
        if kept && !injected(Fault::Uncut) {
            self.cut();
        }
    }

    /// Claims a cell, with a lease or without; returns `None` if another thread keeps it claimed.
    ///
    /// A thread that claims the cell later sees the quota in force.
    fn seize(self, cell: &'a Cell, most: usize) -> Option<Claim<'a>> {
        let mut turns = Turns::new(most);
        loop {
            let was = cell.latest();
            if !was.is_claimed()
                && let Some(claim) = self.claim(cell, was)
            {
                return Some(claim);
            }
            turns.pass()?;
        }
    }

    /// Cuts the word to the room beside the tokens that count as leased.
    fn cut(self) {
        let read = |state| self.clock(Now(self.engine)).beside_leases(state, 0, true);
        let cut = |state: State, reading: &Reading<LeasedTerms>| {
            let is_level = state.is_level();
            ((), is_level.then(|| state.recalled(&reading.refill, reading.tick, 0, 0)).flatten())
        };
        self.bucket.update(read, cut);
    }

    /// Gives the tokens left in a cell back to the word, and ends its lease.
    ///
    /// The lease stays if another thread keeps the cell claimed.
    pub(super) fn recall(self, cell: &'a Cell) {
        let was = cell.lease();
        if !was.is_claimed() && was.size() == 0 {
            return;
        }
        let Some(claim) = self.seize(cell, MAX_TURNS) else { return };
        self.end_leases(slice::from_ref(&claim));
        claim.settle(0);
    }

    /// Commits the end of the claimed leases, and gives the tokens left in them back to the word.
    ///
    /// The caller settles the claims after it.
    fn end_leases(self, claims: &[Claim<'_>]) {
        let tokens = |part: fn(Lease) -> u64| claims.iter().map(|claim| part(claim.was)).sum::<u64>();
        let (left, size) = (tokens(Lease::left), tokens(Lease::size));
        if size == 0 {
            return;
        }
        if injected(Fault::LoweredEarly) {
            claims.iter().for_each(|claim| claim.count_out(claim.was.size()));
        }
        // The clock is read after the claims: all spent tokens of the leases were spent before.
        let step = |state: State, reading: &Reading<LeasedTerms>| {
            let terms = &reading.refill.terms;
            ((), state.recalled(&reading.refill, reading.tick, terms.units(left), terms.units(size)))
        };
        self.bucket.update(|state| self.read(Now(self.engine), state), step);
    }

    /// Looks at one other cell, the next at each turn, and ends its lease if the cell is idle.
    pub(super) fn recall_idle(self, own: usize, turn: u64, now: u64) {
        let others = self.cells.cells.len() as u64 - 1;
        if others == 0 || !self.is_leased() {
            return;
        }
        let cell = self.cells.of(own.wrapping_add(1 + (turn % others) as usize));
        if cell.lease().size() > 0 && now.saturating_sub(cell.seen()) > IDLE {
            self.recall(cell);
        }
    }
}
