//! Places of requests under way: their number for all clients, and for each.
//!
//! A client takes a place while it holds fewer than its share. The share is the bound of a client
//! while half of all places are free, and below that it falls in proportion to the free ones. So
//! clients that never give a place back leave some to others: 47 clients do with the defaults. The
//! bound alone would let 16 of them take all.
//!
//! A request over the share of its client waits in the line of the client. A place that is given
//! back goes to the client in line with the fewest places, under the same lock. So a client in line
//! holds its share or more.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::limits::keys::Key;
use tollgate_common::net::crowd::share;

/// The places of all clients, and the requests in line for one.
pub(crate) struct Places(Mutex<Holders>);

struct Holders {
    /// The places of all clients together, and the most of one.
    most: usize,
    each: usize,
    taken: usize,
    /// The clients that hold a place or have a line.
    clients: HashMap<Key, Holder>,
    /// The clients with a line, by their places, and then by their turn.
    waiting: BTreeMap<(usize, u64), Key>,
    next_turn: u64,
}

#[derive(Default)]
struct Holder {
    held: usize,
    line: VecDeque<oneshot::Sender<Place>>,
    /// The client's turn among those that hold as many places.
    turn: u64,
}

/// A place of a client. A drop gives it back.
pub(crate) struct Place {
    /// `None` once it is given back.
    places: Option<Arc<Places>>,
    key: Key,
}

impl Places {
    pub(crate) fn new(most: usize, each: usize) -> Arc<Places> {
        let (clients, waiting) = (HashMap::new(), BTreeMap::new());
        Arc::new(Places(Mutex::new(Holders { most, each, taken: 0, clients, waiting, next_turn: 1 })))
    }

    /// Changes the numbers. Held places count on.
    pub(crate) fn resize(self: &Arc<Self>, most: usize, each: usize) {
        let mut state = self.state();
        (state.most, state.each) = (most, each);
        self.serve(&mut state);
    }

    /// Waits for a place of the client. Returns `None` if `queue` of its requests wait already.
    pub(crate) async fn take(self: &Arc<Self>, key: Key, queue: usize) -> Option<Place> {
        let place = {
            let state = &mut *self.state();
            let share = state.share();
            let client = state.clients.entry(key).or_default();
            let has_line = !client.line.is_empty();
            if !has_line && client.held < share {
                client.held += 1;
                state.taken += 1;
                return Some(Place { places: Some(self.clone()), key });
            }
            if client.line.len() >= queue {
                client.line.retain(|request| !request.is_closed());
            }
            if client.line.len() >= queue {
                return None;
            }
            let (request, place) = oneshot::channel();
            client.line.push_back(request);
            if !has_line {
                state.stand_in_line(key);
            }
            place
        };
        place.await.ok()
    }

    /// Returns whether the client holds as many places as one may.
    pub(crate) fn has_all(&self, key: &Key) -> bool {
        let state = self.state();
        state.clients.get(key).is_some_and(|client| client.held >= state.each)
    }

    /// Gives free places to requests in line.
    fn serve(self: &Arc<Self>, state: &mut Holders) {
        while let Some((&at, &key)) = state.waiting.first_key_value()
            && at.0 < state.share()
        {
            state.waiting.remove(&at);
            let Some(client) = state.clients.get_mut(&key) else { continue };
            while let Some(request) = client.line.pop_front() {
                // The request may have left. A drop of its place would take the lock.
                match request.send(Place { places: Some(self.clone()), key }) {
                    Ok(()) => {
                        client.held += 1;
                        state.taken += 1;
                        break;
                    }
                    Err(mut place) => place.places = None,
                }
            }
            state.stand_in_line(key);
        }
    }

    fn state(&self) -> MutexGuard<'_, Holders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holders {
    fn share(&self) -> usize {
        share(self.most, self.taken, self.each)
    }

    /// Gives the client a turn behind all others with as many places, or forgets a client that has
    /// neither a place nor a request in line.
    fn stand_in_line(&mut self, key: Key) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        if !client.line.is_empty() {
            client.turn = self.next_turn;
            self.next_turn += 1;
            self.waiting.insert((client.held, client.turn), key);
        } else if client.held == 0 {
            self.clients.remove(&key);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(places) = self.places.take() else { return };
        let mut state = places.state();
        state.taken -= 1;
        if let Some(client) = state.clients.get_mut(&self.key) {
            let before = (client.held, client.turn);
            client.held -= 1;
            let now = (client.held, client.turn);
            if state.waiting.remove(&before).is_some() {
                state.waiting.insert(now, self.key);
            } else {
                state.stand_in_line(self.key);
            }
        }
        places.serve(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

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
        state.taken == 0 && state.clients.is_empty() && state.waiting.is_empty()
    }

    /// Takes places until the client has to wait.
    fn take_all(places: &Arc<Places>, last: u8) -> Vec<Place> {
        std::iter::from_fn(|| take(places, last)).collect()
    }

    #[test]
    fn a_key_holds_no_more_than_its_places() {
        let places = Places::new(99, 2);
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

    #[test]
    fn a_place_that_is_given_back_goes_to_the_first_in_line_that_is_still_there() {
        let places = Places::new(99, 1);
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
        let places = Places::new(99, 1);
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
        let places = Places::new(99, 3);
        let mut held = [(); 3].map(|()| take(&places, 1));
        let mut waits = [(); 3].map(|()| Box::pin(places.take(key(1), 9)));
        assert!(waits.iter_mut().all(|request| poll(request.as_mut()).is_pending()));
        places.resize(99, 1);
        for place in &mut held[..2] {
            *place = None;
            assert!(waits.iter_mut().all(|request| poll(request.as_mut()).is_pending()));
        }
        held[2] = None;
        let Poll::Ready(Some(first)) = poll(waits[0].as_mut()) else { panic!("a place is free") };
        places.resize(99, 2);
        let Poll::Ready(Some(second)) = poll(waits[1].as_mut()) else { panic!("a place is free") };
        assert!(poll(waits[2].as_mut()).is_pending());
        places.resize(99, 4);
        let Poll::Ready(Some(third)) = poll(waits[2].as_mut()) else { panic!("a place is free") };
        let fourth = take(&places, 1);
        assert!(fourth.is_some() && take(&places, 1).is_none(), "the held places count on");
        drop(fourth);
        drop((first, second, third));
        assert!(is_empty(&places));
    }

    /// However long they hold them.
    #[test]
    fn clients_that_hold_all_they_get_leave_a_place_to_another() {
        for (most, each, hogs) in [(1_024, 64, 47), (256, 64, 12), (40, 10, 8), (4, 2, 2)] {
            let places = Places::new(most, each);
            let held: Vec<Vec<Place>> = (0..hogs).map(|last| take_all(&places, last)).collect();
            let left = most - held.iter().map(Vec::len).sum::<usize>();
            assert_eq!(held[0].len(), each, "the first has all that it may have");
            assert!(left > 0 && take(&places, 99).is_some(), "{hogs} of {most}: {left} are left");
        }
    }

    #[test]
    fn a_place_that_is_given_back_goes_to_the_client_with_the_fewest() {
        let places = Places::new(4, 3);
        let mut many = take_all(&places, 1);
        let one = take_all(&places, 2);
        assert_eq!((many.len(), one.len()), (3, 1));
        let mut requests = [1, 2, 4].map(|last| Box::pin(places.take(key(last), 9)));
        let mut got = || requests.iter_mut().position(|request| poll(request.as_mut()).is_ready());
        assert_eq!(got(), None);
        many.pop();
        assert_eq!(got(), Some(2), "the client without a place, which came last");
        drop((many, one, requests));
        assert!(is_empty(&places));
    }
}
