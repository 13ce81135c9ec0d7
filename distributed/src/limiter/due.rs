//! The queue of a lane: the slots that are due, in the order of their calls.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::flush::MAX_BATCH;
use super::slot::Slot;

/// The slots that are due. A key has two after a change of its quota or plan, and one for each
/// request if it has no room: a call takes one of each key, and other keys wait for none of them.
#[derive(Default)]
pub(crate) struct Due {
    /// The keys with a request, in the order of their next calls.
    requests: VecDeque<Arc<Slot>>,
    /// The keys that only give tokens back or charge some.
    others: VecDeque<Arc<Slot>>,
    /// The slots of each of these keys. A place in a queue that is not the key's any more is passed
    /// over.
    slots: HashMap<Box<[u8]>, OfKey>,
}

/// The slots of a key that are due, and whether its place is among those with a request.
struct OfKey {
    slots: VecDeque<Arc<Slot>>,
    has_request: bool,
}

impl Due {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn push(&mut self, slot: Arc<Slot>) {
        let is_urgent = slot.urgent.load(SeqCst);
        match self.slots.get_mut(&slot.key.stored) {
            Some(of_key) if of_key.has_request || !is_urgent => of_key.slots.push_back(slot),
            Some(of_key) => {
                of_key.has_request = true;
                self.requests.push_back(slot.clone());
                // The one with the request is first.
                of_key.slots.push_front(slot);
            }
            None => {
                self.enter(&slot, is_urgent);
                let slots = VecDeque::from([slot.clone()]);
                self.slots.insert(slot.key.stored.clone(), OfKey { slots, has_request: is_urgent });
            }
        }
    }

    /// Gives the key of a slot a place.
    fn enter(&mut self, slot: &Arc<Slot>, has_request: bool) {
        let queue = if has_request { &mut self.requests } else { &mut self.others };
        queue.push_back(slot.clone());
    }

    /// Takes the slots of the next call: those of keys with a request first.
    pub(crate) fn next_batch(&mut self) -> Vec<Arc<Slot>> {
        let mut slots: Vec<Arc<Slot>> = Vec::new();
        let mut taken: Vec<OfKey> = Vec::new();
        for has_request in [true, false] {
            while slots.len() < MAX_BATCH
                && let Some(place) =
                    if has_request { self.requests.pop_front() } else { self.others.pop_front() }
            {
                let key = &place.key.stored;
                if self.slots.get(key).is_none_or(|of_key| of_key.has_request != has_request) {
                    continue;
                }
                if let Some(mut of_key) = self.slots.remove(key) {
                    slots.extend(of_key.slots.pop_front());
                    taken.push(of_key);
                }
            }
        }
        // The further slots of a key are due after those of other keys.
        for OfKey { slots: further, .. } in taken {
            further.into_iter().for_each(|slot| self.push(slot));
        }
        slots
    }
}
