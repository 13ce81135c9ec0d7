//! Places of keys: the share of a resource that one key may hold at a time.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Changes the number of places. A surplus place is removed as soon as it is free. Until all
/// surplus places are removed, no place is given out. A runtime must be running.
pub(crate) fn resize(places: &Arc<Semaphore>, before: usize, now: usize) {
    if now >= before {
        return places.add_permits(now - before);
    }
    let (places, too_many) = (places.clone(), u32::try_from(before - now).unwrap_or(u32::MAX));
    tokio::spawn(async move {
        // An error would be a closed semaphore, and no code closes it.
        if let Ok(places) = places.acquire_many_owned(too_many).await {
            places.forget();
        }
    });
}

const SHARDS: usize = 64;

/// The places of each key that holds one or waits for one. Another key takes no memory.
pub(crate) struct Places<K> {
    shards: Box<[Shard<K>]>,
    hasher: RandomState,
}

type Shard<K> = Mutex<HashMap<K, Arc<Semaphore>>>;

/// A place, or the wish for one. A drop gives the place back.
pub(crate) struct Place<K: Eq + Hash> {
    places: Arc<Places<K>>,
    key: Option<K>,
    semaphore: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl<K: Eq + Hash + Clone> Places<K> {
    pub(crate) fn new() -> Arc<Places<K>> {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Arc::new(Places { shards, hasher: RandomState::new() })
    }

    /// Takes a place of the key, if the key holds fewer than `most`. A change of `most` reaches a
    /// key once it holds no place.
    pub(crate) fn try_take(self: &Arc<Self>, key: K, most: usize) -> Option<Place<K>> {
        let mut place = self.wish(key, most);
        let semaphore = place.semaphore.clone()?;
        place.permit = semaphore.try_acquire_owned().ok();
        place.permit.is_some().then_some(place)
    }

    /// Waits for a place of the key, first come, first served. Returns `None` if `queue` others
    /// wait already.
    pub(crate) async fn take(self: &Arc<Self>, key: K, most: usize, queue: usize) -> Option<Place<K>> {
        let mut place = self.wish(key, most);
        let semaphore = place.semaphore.clone()?;
        // Each place has two references, whether it is held or waited for. The map has one, and
        // this call has two.
        let others = (Arc::strong_count(&semaphore) - 3) / 2;
        if others >= most.saturating_add(queue) {
            return None;
        }
        // An error would be a closed semaphore, and no code closes it.
        place.permit = semaphore.acquire_owned().await.ok();
        place.permit.is_some().then_some(place)
    }

    fn wish(self: &Arc<Self>, key: K, most: usize) -> Place<K> {
        let mut shard = self.shard(&key).lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        let semaphore = shard.entry(key.clone()).or_insert_with(new).clone();
        Place { places: self.clone(), key: Some(key), semaphore: Some(semaphore), permit: None }
    }
}

impl<K: Eq + Hash> Places<K> {
    fn shard(&self, key: &K) -> &Shard<K> {
        // The remainder is below the number of shards.
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    #[cfg(test)]
    fn keys(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }
}

impl<K: Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        self.permit = None;
        let Some(key) = self.key.take() else { return };
        let mut shard = self.places.shard(&key).lock().unwrap_or_else(PoisonError::into_inner);
        self.semaphore = None;
        // Clones are made under the lock only. So the one reference is the map's own, and no place
        // is held.
        if shard.get(&key).is_some_and(|semaphore| Arc::strong_count(semaphore) == 1) {
            shard.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_key_holds_no_more_than_its_places() {
        let places = Places::new();
        let first = places.try_take("a", 2);
        let second = places.try_take("a", 2);
        assert!(first.is_some() && second.is_some());
        assert!(places.try_take("a", 2).is_none());
        assert!(places.try_take("b", 2).is_some(), "another key has places of its own");
        drop(first);
        assert!(places.try_take("a", 2).is_some());
        drop(second);
        assert_eq!(places.keys(), 0, "keys without a place are forgotten");
    }

    #[tokio::test]
    async fn places_that_are_taken_away_while_they_are_held_are_not_there_later() {
        let places = Arc::new(Semaphore::new(3));
        let held = places.clone().acquire_many_owned(3).await.unwrap();
        resize(&places, 3, 1);
        resize(&places, 1, 2);
        tokio::task::yield_now().await;
        assert_eq!(places.available_permits(), 0);
        drop(held);
        tokio::task::yield_now().await;
        assert_eq!(places.available_permits(), 2);
    }

    #[test]
    fn a_waiter_gets_the_place_that_is_given_back_and_one_that_leaves_takes_none() {
        let places = Places::new();
        let mut context = Context::from_waker(Waker::noop());
        let held = places.try_take(1, 1);
        let mut waiter = pin!(places.take(1, 1, 2));
        assert!(waiter.as_mut().poll(&mut context).is_pending());
        {
            let mut leaving = pin!(places.take(1, 1, 2));
            assert!(leaving.as_mut().poll(&mut context).is_pending());
            let third = pin!(places.take(1, 1, 2)).as_mut().poll(&mut context).map(|place| place.is_none());
            assert_eq!(third, Poll::Ready(true), "two wait already");
        }
        drop(held);
        let Poll::Ready(Some(place)) = waiter.as_mut().poll(&mut context) else { panic!("a place is free") };
        assert!(places.try_take(1, 1).is_none());
        drop(place);
        assert!(places.try_take(1, 1).is_some());
        assert_eq!(places.keys(), 0);
    }
}
