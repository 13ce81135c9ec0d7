//! The background task of a limiter: it sends calls, probes the store, and gives idle tokens back.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::due::Due;
use super::flush::{Batch, MAX_BATCH, MAX_CALLS};
use super::shared::Shared;
use super::slot::{Slot, Sweep};
use super::slots::Slots;
use crate::store::op::Store;

/// The time between two sweeps for idle keys.
const SWEEP: Duration = Duration::from_millis(500);

pub(crate) struct Keeper<K: Hash + Eq + Clone + Send + Sync + 'static, S: Store> {
    shared: Arc<Shared<S>>,
    slots: Arc<Slots<K>>,
    queue: UnboundedReceiver<Arc<Slot>>,
    /// The queues of the lanes, by their numbers.
    lanes: HashMap<u32, LaneQueue>,
    /// The time without a request after which the tokens of a key are given back.
    idle: Duration,
}

/// The slots of a lane that are due.
struct LaneQueue {
    due: Due,
    /// The calls that may be under way and not late.
    calls: Arc<Semaphore>,
}

/// The calls and the probes under way. Each returns the keys that have more to ask for.
type Calls = JoinSet<Vec<Arc<Slot>>>;

impl<K: Hash + Eq + Clone + Send + Sync + 'static, S: Store> Keeper<K, S> {
    pub(crate) fn new(
        shared: Arc<Shared<S>>,
        slots: Arc<Slots<K>>,
        queue: UnboundedReceiver<Arc<Slot>>,
        idle: Duration,
    ) -> Keeper<K, S> {
        Keeper { shared, slots, queue, lanes: HashMap::new(), idle }
    }

    /// Runs until all handles of the limiter are gone, then gives all tokens back.
    pub(crate) async fn run(mut self) {
        let shared = self.shared.clone();
        let (mut calls, mut queued, mut open) = (JoinSet::new(), Vec::new(), true);
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while open && !shared.closed.is_closed() {
            let probe = self.probe(&mut calls);
            tokio::select! {
                n = self.queue.recv_many(&mut queued, MAX_BATCH) => open = n > 0,
                _ = shared.closed.acquire() => {}
                _ = shared.freed.notified() => {}
                Some(ended) = calls.join_next() => queued.extend(ended.into_iter().flatten()),
                _ = sleep(probe.unwrap_or_default()), if probe.is_some() => {}
                _ = sweep.tick() => self.sweep(self.idle),
            }
            queued.drain(..).for_each(|slot| self.push(slot));
            self.send(&mut calls);
        }
        self.end(calls).await;
    }

    /// Sends the probes that are due. Returns the time until the next one of a lane.
    fn probe(&self, calls: &mut Calls) -> Option<Duration> {
        let (shared, now) = (&self.shared, self.shared.lanes.now());
        let open = shared.lanes.open();
        for lane in &open {
            if lane.breaker.take_probe(now, &shared.pauses()) {
                let (shared, lane) = (shared.clone(), lane.clone());
                calls.spawn(async move {
                    shared.probe(&lane).await;
                    Vec::new()
                });
            }
        }
        open.iter().filter_map(|lane| lane.breaker.until_probe(now)).min()
    }

    /// Puts a slot into the queue of its lane.
    fn push(&mut self, slot: Arc<Slot>) {
        let lane = self.shared.store.lane(&slot.key.stored);
        let new = || LaneQueue { due: Due::default(), calls: Arc::new(Semaphore::new(MAX_CALLS)) };
        self.lanes.entry(lane).or_insert_with(new).due.push(slot);
    }

    /// Sends calls for the keys that are due. While the breaker of a lane is open, ends the wait of
    /// its requests instead.
    fn send(&mut self, calls: &mut Calls) {
        for (number, queue) in &mut self.lanes {
            while !queue.due.is_empty()
                && let Ok(permit) = queue.calls.clone().try_acquire_owned()
            {
                let lane = self.shared.lanes.lane(*number);
                let slots = queue.due.next_batch();
                for slot in &slots {
                    // Before the slot's amount is read: a request after it queues the slot again.
                    slot.queued.store(false, SeqCst);
                    slot.urgent.store(false, SeqCst);
                }
                if lane.breaker.is_open() {
                    slots.iter().for_each(|slot| slot.give_up());
                } else if let Some(batch) = Batch::begin(&self.shared, lane, slots) {
                    calls.spawn(batch.call(permit));
                }
            }
        }
    }

    /// Queues the idle keys with tokens to give back, and removes those without. Keys for which the
    /// store does not answer stay as they are.
    fn sweep(&mut self, idle: Duration) {
        let shared = self.shared.clone();
        if !shared.lanes.is_any_open() {
            self.slots.forget(shared.now());
        }
        let slots = self.slots.clone();
        for (key, slot) in slots.map.pin().iter().filter(|(_, slot)| !shared.is_away(&slot.key.stored)) {
            match slot.sweep(idle) {
                Sweep::GivesBack => self.push(slot.clone()),
                Sweep::Empty if slots.silence(key, slot) => shared.retire(slot),
                Sweep::Used | Sweep::Empty => {}
            }
        }
    }

    /// Gives all tokens back, with those that mature in the meantime.
    async fn end(&mut self, mut calls: Calls) {
        for _ in 0..4 {
            while let Ok(slot) = self.queue.try_recv() {
                self.push(slot);
            }
            self.sweep(Duration::ZERO);
            self.send(&mut calls);
            while let Some(ended) = calls.join_next().await {
                ended.into_iter().flatten().for_each(|slot| self.push(slot));
                self.send(&mut calls);
            }
            if self.slots.map.pin().values().all(|slot| self.shared.is_away(&slot.key.stored)) {
                return;
            }
            sleep(self.idle / 8).await;
        }
    }
}

/// A runtime that ends drops the task: no request waits for it any more.
impl<K: Hash + Eq + Clone + Send + Sync + 'static, S: Store> Drop for Keeper<K, S> {
    fn drop(&mut self) {
        self.queue.close();
        // A slot without room is in a queue alone.
        while let Ok(slot) = self.queue.try_recv() {
            slot.give_up();
        }
        for queue in self.lanes.values_mut() {
            while !queue.due.is_empty() {
                queue.due.next_batch().iter().for_each(|slot| slot.give_up());
            }
        }
        self.slots.map.pin().values().for_each(|slot| slot.give_up());
    }
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
