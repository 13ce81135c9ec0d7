//! The background task of a limiter: it sends calls, probes the store, and gives idle tokens back.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::flush::{Batch, MAX_BATCH};
use super::shared::Shared;
use super::slot::{Slot, Sweep};
use super::slots::Slots;
use crate::store::op::Store;

/// The time between two sweeps for idle keys.
const SWEEP: Duration = Duration::from_millis(500);

pub(crate) struct Keeper<K, S> {
    pub(crate) shared: Arc<Shared<S>>,
    pub(crate) slots: Arc<Slots<K>>,
    pub(crate) queue: UnboundedReceiver<Arc<Slot>>,
    /// The time without a request after which the tokens of a key are given back.
    pub(crate) idle: Duration,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, S: Store> Keeper<K, S> {
    /// Runs until all handles of the limiter are gone, then gives all tokens back.
    pub(crate) async fn run(mut self) {
        let (mut calls, mut due, mut open) = (JoinSet::new(), VecDeque::new(), true);
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while open && !self.shared.closed.is_closed() {
            let probe = self.shared.breaker.until_probe(self.shared.now());
            let is_open = probe.is_some();
            tokio::select! {
                slot = self.queue.recv(), if due.len() < MAX_BATCH => match slot {
                    Some(slot) => due.push_back(slot),
                    None => open = false,
                },
                _ = self.shared.closed.acquire() => {}
                _ = self.shared.calls.acquire(), if !due.is_empty() => {}
                Some(ended) = calls.join_next() => due.extend(ended.into_iter().flatten()),
                _ = sleep(probe.unwrap_or_default()), if is_open => self.shared.probe().await,
                _ = sweep.tick() => self.sweep(&mut due, self.idle),
            }
            while due.len() < MAX_BATCH
                && let Ok(slot) = self.queue.try_recv()
            {
                due.push_back(slot);
            }
            self.send(&mut calls, &mut due);
        }
        self.end(calls, due).await;
    }

    /// Sends calls for the keys that are due. While the breaker is open, ends the wait of their
    /// requests instead.
    fn send(&self, calls: &mut JoinSet<Vec<Arc<Slot>>>, due: &mut VecDeque<Arc<Slot>>) {
        while !due.is_empty()
            && let Ok(permit) = self.shared.calls.clone().try_acquire_owned()
        {
            let slots = next_batch(due);
            for slot in &slots {
                // Before the slot's amount is read, so that a request after it queues the slot
                // again.
                slot.queued.store(false, SeqCst);
            }
            if self.shared.breaker.is_open() {
                slots.iter().for_each(|slot| slot.give_up());
            } else if let Some(batch) = Batch::begin(&self.shared, slots) {
                calls.spawn(batch.call(permit));
            }
        }
    }

    /// Queues the idle keys with tokens to give back, and removes those without.
    fn sweep(&self, due: &mut VecDeque<Arc<Slot>>, idle: Duration) {
        if self.shared.breaker.is_open() {
            return;
        }
        self.slots.forget(self.shared.now());
        for (key, slot) in &self.slots.map.pin() {
            match slot.sweep(idle) {
                Sweep::Used => {}
                Sweep::GivesBack => due.push_back(slot.clone()),
                Sweep::Empty if self.slots.silence(key, slot) => self.shared.retire(slot),
                Sweep::Empty => {}
            }
        }
    }

    /// Gives all tokens back, with those that mature in the meantime.
    async fn end(&mut self, mut calls: JoinSet<Vec<Arc<Slot>>>, mut due: VecDeque<Arc<Slot>>) {
        for _ in 0..4 {
            self.sweep(&mut due, Duration::ZERO);
            self.send(&mut calls, &mut due);
            while let Some(ended) = calls.join_next().await {
                due.extend(ended.into_iter().flatten());
                self.send(&mut calls, &mut due);
            }
            if self.slots.map.pin().is_empty() || self.shared.breaker.is_open() {
                return;
            }
            sleep(self.idle / 8).await;
        }
    }
}

/// Takes the keys of the next call. A key has two slots after a change of its quota, and one for
/// each request if it has no room: the others wait for a later call.
fn next_batch(due: &mut VecDeque<Arc<Slot>>) -> Vec<Arc<Slot>> {
    let mut slots: Vec<Arc<Slot>> = Vec::new();
    let mut later = Vec::new();
    for slot in due.drain(..due.len().min(MAX_BATCH)) {
        let is_there = slots.iter().any(|other| other.key.stored == slot.key.stored);
        if is_there { &mut later } else { &mut slots }.push(slot);
    }
    due.extend(later);
    slots
}

impl<S> Shared<S> {
    /// Adds the counts of a call to those of the limiter, if its slot is not in the map any more.
    pub(crate) fn count_left(&self, slot: &Slot) {
        if slot.left.load(Relaxed) {
            self.retire(slot);
        }
    }

    /// Adds the counts of a removed slot to those of the limiter: those since the last time.
    pub(crate) fn retire(&self, slot: &Slot) {
        self.counters.decisions[super::sourced::Source::Lease as usize]
            .fetch_add(slot.by_lease.swap(0, Relaxed), Relaxed);
        for (total, tokens) in self.counters.gone.iter().zip(slot.tokens_since()) {
            // A difference may be below 0: it wraps.
            total.fetch_add(tokens, Relaxed);
        }
    }
}
