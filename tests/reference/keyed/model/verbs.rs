//! The verbs of the model: each is that of the limiter, with its answer checked.

use super::*;

impl Model {
    pub(in super::super) fn take(&mut self, key: u64, n: u64, pinned: bool) -> Option<u64> {
        let probe = Probe::of(key);
        let decision = match (self.under, pinned) {
            (None, true) => self.limiter.pin().try_acquire_n(&probe, n),
            (None, false) => self.limiter.try_acquire_n(&probe, n),
            (Some(made), true) => self.limiter.pin().key(&probe).n(n).under(&made.plan).try_acquire(),
            (Some(made), false) => self.limiter.key(&probe).n(n).under(&made.plan).try_acquire(),
        };
        self.taken(&probe, n, 0, decision)
    }

    /// Takes tokens above a kept part; by a guard if the part is even.
    pub(super) fn above(&mut self, key: u64, n: u64, percent: u8) -> Option<u64> {
        let probe = Probe::of(key);
        let pinned = percent.is_multiple_of(2);
        let decision = match self.under {
            None if pinned => self.limiter.pin().key(&probe).n(n).keep(percent).try_acquire(),
            Some(made) if pinned => {
                self.limiter.pin().key(&probe).n(n).under(&made.plan).keep(percent).try_acquire()
            }
            _ => self.asked(&probe, n).keep(percent).try_acquire(),
        };
        // A take of nothing keeps nothing.
        let kept = if n == 0 { 0 } else { (self.burst() * u64::from(percent)).div_ceil(100) };
        self.taken(&probe, n, kept, decision)
    }

    pub(super) fn taken(
        &mut self,
        probe: &Probe,
        n: u64,
        kept: u64,
        decision: Result<Granted, Denied>,
    ) -> Option<u64> {
        let (now, burst) = (self.time.now(), self.burst());
        let most = burst.saturating_sub(kept);
        let place = self.place(probe, n == 0 || n > most);
        if let Place::Denied | Place::Allowed = place {
            self.without_bucket(&place, (n, most), decision);
            // A key that is told to come back gets a place of a table, with a bucket that was never
            // used.
            let exact = self.inline && self.initial.is_none() && self.straight;
            return decision.err().filter(|_| exact).and_then(|refused| refused.retry_after().map(nanos));
        }
        let answer = taken(decision, n, most);
        let asked = n.min(burst + 1);
        self.check(probe.key, &place, |world| match kept {
            0 => world.ideal.take(now, asked, answer),
            kept => world.ideal.take_above(now, asked, kept, answer),
        });
        answer.retry_after.filter(|_| !self.others_take(&place))
    }

    /// Returns whether other keys take of this bucket. Keys that have left a table unseen are asked
    /// for after each step, and may share it.
    pub(super) fn others_take(&self, place: &Place) -> bool {
        self.inline && matches!(place, Place::Shared(_))
    }

    /// Checks the answer to a key without a bucket.
    pub(super) fn without_bucket(
        &self,
        place: &Place,
        (n, most): (u64, u64),
        decision: Result<Granted, Denied>,
    ) {
        let now = self.time.now();
        match decision {
            Ok(given) => {
                assert!(matches!(place, Place::Allowed));
                let mut full = self.full();
                assert_eq!(given.tokens(), n);
                full.check(|world| world.ideal.take(now, n, granted(given)));
            }
            Err(refused) => {
                assert!(matches!(place, Place::Denied));
                assert_eq!((refused.reason(), refused.remaining()), (Reason::Full, 0));
                assert_eq!(refused.retry_after().is_none(), self.places() == 0);
                assert!(n <= most);
            }
        }
    }

    /// Returns a full bucket, whatever a new one starts with.
    pub(super) fn full(&self) -> Worlds {
        let mut full = self.unused.clone();
        if self.initial.is_some() {
            full.each(|world| world.ideal = world.ideal.clone().starting_with(1 << 41, None));
        }
        full
    }

    pub(super) fn up_to(&mut self, key: u64, n: u64) -> Option<u64> {
        let probe = Probe::of(key);
        let given = self.asked(&probe, n).acquire_up_to();
        let (now, burst) = (self.time.now(), self.burst());
        let (tokens, mut answer) = (given.tokens(), granted(given));
        match self.place(&probe, n == 0) {
            Place::Denied => assert_eq!((tokens, answer.remaining), (0, 0)),
            Place::Allowed => self.without_bucket(&Place::Allowed, (n.min(burst), burst), Ok(given)),
            place if tokens > 0 || n == 0 => {
                self.check(key, &place, |world| world.ideal.take_up_to(now, (n, 0), tokens, answer));
            }
            place => {
                // A take of one token tells when there is one.
                let probe = Probe::of(key);
                let decision = self.asked(&probe, 1).try_acquire();
                answer.granted = false;
                answer.retry_after = decision.err().and_then(|refused| refused.retry_after().map(nanos));
                self.check(key, &place, |world| world.ideal.take_up_to(now, (n, 0), 0, answer));
                self.taken(&probe, 1, 0, decision);
            }
        }
        None
    }

    pub(super) fn reserve(&mut self, key: u64, n: u64, end: End) -> Option<u64> {
        let probe = Probe::of(key);
        let (now, burst) = (self.time.now(), self.burst());
        // The reservation borrows this handle, and the model goes on with its own.
        let (limiter, under) = (self.limiter.clone(), self.under);
        let mut pending = None;
        let (answer, delay, decision) = match asked(&limiter, under.as_ref(), &probe, n).reserve() {
            Ok(made) => {
                let delay = Some(nanos(made.delay()));
                if let End::Used = end {
                    let given = made.commit();
                    (granted(given), delay, Some(Ok(given)))
                } else {
                    pending = Some(made);
                    // A look stands for the answer of the pending reservation.
                    (look(self.peek(&Probe::of(key))), delay, None)
                }
            }
            Err(refused) => (denied(refused), None, Some(Err(refused))),
        };
        let indebted = matches!(decision, Some(Err(refused)) if refused.reason() == Reason::Debt);
        let place = self.place(&probe, n == 0 || n > burst);
        let n = n.min(burst + 1);
        match (&place, decision) {
            (Place::Denied | Place::Allowed, Some(decision)) => {
                assert_eq!(delay.unwrap_or(0), 0);
                self.without_bucket(&place, (n, burst), decision);
                return None;
            }
            (Place::Denied, None) => unreachable!("it was denied"),
            (Place::Allowed, None) => {
                assert_eq!(delay, Some(0));
                return None;
            }
            _ => {}
        }
        let promise = Promise { answer, delay, indebted };
        self.check(key, &place, |world| {
            world.slots.push(world.ideal.slot(now, n));
            world.ideal.reserve(now, (n, 0), None, promise)
        });
        if let (End::DroppedLater(tokens, pace, most), Some(_), 1..) = (end, &pending, n) {
            self.take_later(key, tokens, pace, most);
            self.ask_under(under);
        }
        drop(pending);
        self.ended(key, &place, n, decision.is_none());
        answer.retry_after.filter(|_| !self.others_take(&place))
    }

    /// Ends the only reservation: it was dropped, or else used or refused.
    pub(super) fn ended(&mut self, key: u64, place: &Place, n: u64, dropped: bool) {
        let (now, held) = (self.time.now(), self.find(key));
        let worlds = match (place, held) {
            (Place::Own(_), Some(index)) => &mut self.held[index].worlds,
            (Place::Shared(share), _) => self.shared.get_mut(share).expect("it has begun"),
            _ => return,
        };
        if dropped { worlds.give_back(now, 0, n, None) } else { worlds.forget(0) }
    }

    /// Takes at a later time, at another pace.
    pub(super) fn take_later(&mut self, key: u64, tokens: u8, pace: Pace, most: Amount) {
        self.resolve();
        self.time.go_to(self.scale.moved(self.time.now(), Move::Tokens(u32::from(tokens) << 16)));
        self.ask_at(pace);
        self.take(key, most.of(self.burst()), false);
    }

    pub(super) fn hold(&mut self, key: u64, n: u64, actual: u64) -> Option<u64> {
        let probe = Probe::of(key);
        let now = self.time.now();
        let (decision, rest) = match self.asked(&probe, n).hold() {
            Ok(hold) => (Ok(hold.granted()), Some(hold.settle(actual))),
            Err(refused) => (Err(refused), None),
        };
        let before = self.counts;
        let wait = self.taken(&probe, n, 0, decision);
        let Some(rest) = rest else { return wait };
        assert!(rest == 0 || actual > n);
        let shares = self.counts[0] > before[0];
        match (self.find(key), actual.checked_sub(n)) {
            _ if self.counts[2] > before[2] => assert_eq!(rest, actual.saturating_sub(n)),
            (Some(index), None) if !shares => {
                self.held[index].worlds.refund(now, (n - actual).min(1 << 41), None)
            }
            (held, Some(more)) if more > 0 => {
                let taken = more.checked_sub(rest).expect("the rest is a part");
                let held = if shares { None } else { held };
                self.worlds_of(key, held).check(|world| world.ideal.charge_up_to(now, more, taken));
            }
            // Tokens that come back to a shared bucket are lost.
            _ => {}
        }
        wait
    }

    pub(super) fn refund(&mut self, key: u64, n: u64) -> Option<u64> {
        self.asked(&Probe::of(key), n).refund();
        let now = self.time.now();
        if let Some(index) = self.find(key) {
            self.held[index].worlds.refund(now, n.min(1 << 41), None);
        }
        None
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<u64> {
        let held = self.find(key);
        assert_eq!(self.limiter.remove(&Probe::of(key)), held.is_some(), "{key}");
        held.map(|index| self.held.swap_remove(index));
        self.left += usize::from(held.is_some());
        None
    }

    pub(super) fn clear(&mut self) -> Option<u64> {
        self.limiter.clear();
        self.left += self.held.len();
        self.held.clear();
        None
    }

    pub(super) fn evict_idle(&mut self) -> Option<u64> {
        let evicted = self.limiter.evict_idle();
        if self.initial.is_some() {
            // Evicted keys would start anew, with fewer tokens.
            assert_eq!(evicted, 0);
            return None;
        }
        if self.inline {
            self.were_swept(evicted);
        } else {
            assert_eq!(self.note_evicted(true), evicted);
        }
        None
    }

    /// Takes from keys that are not held, one after another.
    pub(super) fn flood(&mut self, first: u64, keys: usize) -> Option<u64> {
        let new = (64..KEYS).cycle().skip(first as usize * 7).filter(|key| self.find(*key).is_none());
        let most = keys.min(MOST_FLOODED - self.flooded);
        let new: Vec<u64> = new.take(most).collect();
        self.flooded += new.len();
        for key in new {
            let key = self.known_as(key);
            self.take(key, 1, false);
            self.resolve();
            self.look(key);
            self.count();
        }
        None
    }

    pub(super) fn set_quota(&mut self, asked @ (tokens, _, burst): Asked) -> Option<u64> {
        let quota = quota(asked)?;
        // Plans are asked for where ticks do not wrap.
        let wraps = !self.made.is_empty() && !self.unused.any().ticks_are_slow();
        if self.changes == MOST_CHANGES || wraps {
            return None;
        }
        let set = self.limiter.set_rule(quota).is_ok();
        assert_eq!(set, self.unit.takes(asked), "{asked:?} after {:?}", self.quota);
        if set {
            let now = self.time.now();
            self.all().for_each(|worlds| worlds.each(|world| world.ideal.set_quota(now, tokens, burst)));
            self.scale = Scale::new(asked, self.unit, self.unused.any());
            (self.quota, self.changed) = (asked, Some(now));
            self.begin_a_turn();
            self.changes += 1;
        }
        None
    }
}
