//! Places of keys: the number of requests that one key may have under way at a time.
//!
//! The places are an [`InflightLimiter`], which refuses at once. But a browser sends more requests
//! over one connection of HTTP/2 than a key has places, so here they wait: first come, first
//! served. No count can do that, as a late request would take the place for which an earlier one
//! waits. So a key without a free place has a line of the requests that wait for it.

use std::collections::{HashMap, VecDeque};
use std::hash::RandomState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tollgate::{InflightLimiter, OwnedKeyFlight};

use super::keys::Key;

/// Changes the number of places. A surplus place is removed as soon as it is free. Until all
/// surplus places are removed, no place is given out. A runtime must be running.
pub(crate) fn resize(places: &Arc<Semaphore>, before: usize, now: usize) {
    if now >= before {
        return places.add_permits(now - before);
    }
    let too_many = u32::try_from(before - now).unwrap_or(u32::MAX);
    let mut surplus = Box::pin(places.clone().acquire_many_owned(too_many));
    // The first poll puts it in line: a task would come behind requests that are later than it.
    let polled = surplus.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    // An error would be a closed semaphore, and no code closes it.
    match polled {
        Poll::Ready(places) => places.into_iter().for_each(OwnedSemaphorePermit::forget),
        Poll::Pending => {
            tokio::spawn(async move { surplus.await.map(OwnedSemaphorePermit::forget) });
        }
    }
}

/// Returns a limiter with `most` places for each key. It can have 2^20.
pub(crate) fn limiter<K>(most: usize) -> InflightLimiter<K> {
    InflightLimiter::new(count(most))
}

/// Changes the places of each key. Held places count on.
pub(crate) fn set_most<K>(limiter: &InflightLimiter<K>, most: usize) {
    // It is within the bounds of a limit.
    let _ = limiter.set_limit(count(most));
}

fn count(most: usize) -> u32 {
    // At most 2^20.
    most.clamp(1, 1 << 20) as u32
}

/// The places of each key, and the requests in line for one.
///
/// A key has a line only while all its places are taken: a place that is given back goes to the
/// first request in line, under the same lock. So a key with a line has no free place.
pub(crate) struct Places(Mutex<State>);

struct State {
    limiter: InflightLimiter<Key>,
    lines: HashMap<Key, VecDeque<oneshot::Sender<Place>>>,
}

/// A place of a key. A drop gives it back.
pub(crate) struct Place {
    places: Arc<Places>,
    key: Key,
    /// `None` once it is given back.
    flight: Option<OwnedKeyFlight<Key, RandomState>>,
}

impl Places {
    pub(crate) fn new(most: usize) -> Arc<Places> {
        Arc::new(Places(Mutex::new(State { limiter: limiter(most), lines: HashMap::new() })))
    }

    /// Changes the places of each key, as [`set_most`] does.
    pub(crate) fn set_most(self: &Arc<Self>, most: usize) {
        let mut state = self.state();
        set_most(&state.limiter, most);
        let keys: Vec<Key> = state.lines.keys().copied().collect();
        keys.iter().for_each(|key| self.serve(&mut state, key));
    }

    /// Waits for a place of the key, first come, first served. Returns `None` if `queue` requests
    /// wait already, or if there is no room for another key.
    pub(crate) async fn take(self: &Arc<Self>, key: Key, queue: usize) -> Option<Place> {
        let place = {
            let State { limiter, lines } = &mut *self.state();
            match limiter.try_enter_owned(&key) {
                Ok(flight) => return Some(Place { places: self.clone(), key, flight: Some(flight) }),
                Err(refused) if refused.is_full() || queue == 0 => return None,
                Err(_) => {}
            }
            let line = lines.entry(key).or_default();
            if line.len() >= queue {
                line.retain(|request| !request.is_closed());
            }
            if line.len() >= queue {
                return None;
            }
            let (request, place) = oneshot::channel();
            line.push_back(request);
            place
        };
        place.await.ok()
    }

    /// Gives the free places of a key to the requests in line.
    fn serve(self: &Arc<Self>, State { limiter, lines }: &mut State, key: &Key) {
        let Some(line) = lines.get_mut(key) else { return };
        while !line.is_empty()
            && let Ok(flight) = limiter.try_enter_owned(key)
        {
            let Some(request) = line.pop_front() else { break };
            let place = Place { places: self.clone(), key: *key, flight: Some(flight) };
            // The request may have left. A drop of its place with the flight would take the lock.
            if let Err(mut place) = request.send(place) {
                place.flight = None;
            }
        }
        if line.is_empty() {
            lines.remove(key);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(flight) = self.flight.take() else { return };
        let mut state = self.places.state();
        drop(flight);
        self.places.serve(&mut state, &self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::{Pin, pin};

    fn key(last: u8) -> Key {
        Key::Address([192, 0, 2, last].into())
    }

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Returns the place if there is one now.
    fn take(places: &Arc<Places>, last: u8) -> Option<Place> {
        match poll(pin!(places.take(key(last), 9))) {
            Poll::Ready(place) => place,
            Poll::Pending => None,
        }
    }

    fn is_empty(places: &Arc<Places>) -> bool {
        let state = places.state();
        state.lines.is_empty() && (0..9).all(|last| state.limiter.in_flight(&key(last)) == 0)
    }

    #[test]
    fn a_key_holds_no_more_than_its_places() {
        let places = Places::new(2);
        let first = take(&places, 1);
        let second = take(&places, 1);
        assert!(first.is_some() && second.is_some());
        assert!(take(&places, 1).is_none());
        assert!(take(&places, 2).is_some(), "another key has places of its own");
        drop(first);
        assert!(take(&places, 1).is_some());
        drop(second);
        assert!(is_empty(&places));
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

    /// The task that removes the place has not run yet.
    #[tokio::test]
    async fn a_place_that_is_taken_away_goes_to_no_later_request() {
        let places = Arc::new(Semaphore::new(2));
        let (first, _second) = (places.clone().try_acquire_owned().unwrap(), places.try_acquire().unwrap());
        resize(&places, 2, 1);
        let mut later = Box::pin(places.acquire());
        assert!(poll(later.as_mut()).is_pending());
        drop(first);
        assert!(poll(later.as_mut()).is_pending());
    }

    #[test]
    fn a_place_that_is_given_back_goes_to_the_first_in_line_that_is_still_there() {
        let places = Places::new(1);
        let held = take(&places, 1);
        let mut leaves = Box::pin(places.take(key(1), 2));
        let mut first = pin!(places.take(key(1), 2));
        let mut second = pin!(places.take(key(1), 2));
        assert!(poll(leaves.as_mut()).is_pending() && poll(first.as_mut()).is_pending());
        assert!(matches!(poll(pin!(places.take(key(1), 2))), Poll::Ready(None)), "two wait already");
        drop(leaves);
        assert!(poll(second.as_mut()).is_pending());
        drop(held);
        assert!(take(&places, 1).is_none(), "the place has its owner before the owner runs");
        assert!(poll(second.as_mut()).is_pending());
        let Poll::Ready(Some(place)) = poll(first.as_mut()) else { panic!("a place is free") };
        drop(place);
        let Poll::Ready(Some(place)) = poll(second.as_mut()) else { panic!("a place is free") };
        drop(place);
        assert!(is_empty(&places));
    }

    #[test]
    fn a_place_whose_owner_leaves_before_it_runs_goes_to_the_next() {
        let places = Places::new(1);
        let held = take(&places, 1);
        let mut leaves = Box::pin(places.take(key(1), 2));
        let mut next = pin!(places.take(key(1), 2));
        assert!(poll(leaves.as_mut()).is_pending() && poll(next.as_mut()).is_pending());
        drop(held);
        drop(leaves);
        assert!(matches!(poll(next.as_mut()), Poll::Ready(Some(_))));
        let held = take(&places, 1);
        let waits = Box::pin(places.take(key(1), 2));
        drop((waits, held));
        assert!(is_empty(&places), "no line is left without a request");
    }

    /// A fall is in force at once: two of three places are given back before one is given out.
    #[test]
    fn a_change_of_the_places_reaches_held_places_and_the_line() {
        let places = Places::new(3);
        let mut held = [(); 3].map(|()| take(&places, 1));
        let mut waits = [(); 3].map(|()| Box::pin(places.take(key(1), 9)));
        assert!(waits.iter_mut().all(|request| poll(request.as_mut()).is_pending()));
        places.set_most(1);
        for place in &mut held[..2] {
            *place = None;
            assert!(waits.iter_mut().all(|request| poll(request.as_mut()).is_pending()));
        }
        held[2] = None;
        let Poll::Ready(Some(first)) = poll(waits[0].as_mut()) else { panic!("a place is free") };
        places.set_most(2);
        let Poll::Ready(Some(second)) = poll(waits[1].as_mut()) else { panic!("a place is free") };
        assert!(poll(waits[2].as_mut()).is_pending());
        places.set_most(4);
        let Poll::Ready(Some(third)) = poll(waits[2].as_mut()) else { panic!("a place is free") };
        let fourth = take(&places, 1);
        assert!(fourth.is_some() && take(&places, 1).is_none(), "the held places count on");
        drop(fourth);
        drop((first, second, third));
        assert!(is_empty(&places));
    }
}
