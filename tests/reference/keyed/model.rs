//! The state of a limiter as seen from outside: the held keys with their buckets, and the shared
//! buckets.

mod verbs;

use std::collections::{BTreeMap, HashSet};

use tollgate::{Ask, Denied, Granted, Plan, Quota, Reason, Snapshot, WhenFull};
use tollgate_testing::reference::steps::{Amount, Move, Scale, counts_plan, nanos, near};
use tollgate_testing::reference::verbs::Promise;
use tollgate_testing::reference::worlds::{World, Worlds};
use tollgate_testing::reference::{Asked, Ideal, Unit, plan};

use super::super::answers::{denied, granted, look, taken};
use super::super::quotas::quota;
use super::super::time::Time;
use super::probe::{Alike, KEYS, Limiter, Probe, sharer};
use super::{Case, End, Pace, Verb};

const MOST_CHANGES: usize = 16;
const MOST_PLANS: usize = 8;
/// New keys that the floods of one case bring.
const MOST_FLOODED: usize = 96;
/// The time for which a bucket must be full to be evicted.
const MARGIN: u64 = 2_000_000_000;
/// The most keys of one hash that are held.
const MOST_ALIKE: usize = 8;
/// The entries that a call looks at while none can be due.
const LOOKS_AT_REST: usize = 1;

pub(super) struct Key {
    pub(super) key: u64,
    pub(super) worlds: Worlds,
    /// New keys that were turned away while it had to be evicted.
    passed_over: usize,
    /// Whether it may be one of the keys that have gone from a table.
    pub(super) doubtful: bool,
}

/// A plan, as the crate and the reference have it.
#[derive(Clone, Copy)]
struct Made {
    plan: Plan,
    ideal: plan::Plan,
    quota: Asked,
}

/// A bucket that keys share: the least of them, and the plan's quota if they are under one.
pub(super) type Share = (u64, Option<Asked>);

/// The bucket of a step.
pub(super) enum Place {
    /// The bucket of a held key, by its index.
    Own(usize),
    Shared(Share),
    /// No bucket, and the key was denied for that.
    Denied,
    /// No bucket, and the key was allowed.
    Allowed,
    /// No bucket: the step could take nothing.
    Vain,
}

pub(super) struct Model {
    pub(super) limiter: Limiter,
    policy: WhenFull,
    pub(super) max_keys: usize,
    pub(super) inline: bool,
    hasher: Alike,
    initial: Option<u64>,
    /// The bucket of a key that was never used.
    unused: Worlds,
    pub(super) held: Vec<Key>,
    /// Evicted keys of a table that are still in `held`, as they are not yet known.
    pub(super) gone: usize,
    /// Places of a table that removed keys have left, at some time.
    pub(super) left: usize,
    shared: BTreeMap<Share, Worlds>,
    pub(super) time: Time,
    /// Whether the clock has never gone back, nor through a stamp's range. (Once it has, a key
    /// without room is told the earliest time at which a place may be due.)
    pub(super) straight: bool,
    quota: Asked,
    made: Vec<Made>,
    /// The plan of the step.
    under: Option<Made>,
    unit: Unit,
    pub(super) scale: Scale,
    /// The time of the latest change of quota.
    changed: Option<u64>,
    changes: usize,
    flooded: usize,
    /// New keys in a row that were turned away while there was room.
    turned_away: usize,
    pub(super) evicted: u64,
    /// Decisions shared, refused and allowed for want of room.
    pub(super) counts: [u64; 3],
}

/// Returns tokens of a key, under a plan or the own quota.
fn asked<'a>(
    limiter: &'a Limiter,
    under: Option<&'a Made>,
    probe: &'a Probe,
    n: u64,
) -> Ask<'a, impl tollgate::Asked<'a, Rule = Quota>> {
    let limit = limiter.key(probe).n(n);
    under.map_or(limit, |made| limit.under(&made.plan))
}

impl Model {
    pub(super) fn new(
        limiter: Limiter,
        case: &Case,
        unused: Ideal,
        unit: Unit,
        scale: Scale,
        time: Time,
    ) -> Model {
        Model {
            limiter,
            policy: case.policy,
            max_keys: case.max_keys,
            // Without room there is no table.
            inline: case.inline && case.max_keys > 0,
            hasher: case.hasher,
            initial: case.initial(),
            unused: Worlds::new(unused),
            held: Vec::with_capacity(case.max_keys),
            gone: 0,
            left: 0,
            shared: BTreeMap::new(),
            time,
            straight: true,
            quota: case.quota,
            made: Vec::new(),
            under: None,
            unit,
            scale,
            changed: None,
            changes: 0,
            flooded: 0,
            turned_away: 0,
            evicted: 0,
            counts: [0; 3],
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.held.iter().any(|key| key.worlds.are_lost()) || self.shared.values().any(Worlds::are_lost)
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Worlds> {
        let held = self.held.iter_mut().map(|held| &mut held.worlds);
        held.chain(self.shared.values_mut()).chain([&mut self.unused])
    }

    /// Puts the next steps at this pace.
    pub(super) fn ask_at(&mut self, pace: Pace) {
        match pace {
            Pace::Own => self.ask_under(None),
            Pace::Plan(which) => self.ask_under(self.made.iter().rev().nth(usize::from(which) - 1).copied()),
            Pace::NewPlan(rate, size) => self.plan(near(self.quota, rate, size)),
        }
    }

    fn ask_under(&mut self, made: Option<Made>) {
        self.under = made;
        self.all().for_each(|worlds| worlds.each(|world| world.ideal.under(made.map(|made| made.ideal))));
    }

    fn plan(&mut self, asked @ (tokens, period, burst): Asked) {
        let counts = counts_plan(self.quota, asked) && self.unused.any().ticks_are_slow();
        if self.made.len() < MOST_PLANS
            && counts
            && let Some(quota) = quota(asked)
            && let Ok(plan) = self.limiter.plan(quota)
        {
            let ideal = self.unused.any().clone().plan(tokens, period, burst);
            self.all().for_each(|worlds| worlds.each(|world| _ = world.ideal.plan(tokens, period, burst)));
            self.made.push(Made { plan, ideal, quota: asked });
            self.ask_under(self.made.last().copied());
        }
    }

    /// Returns the tokens of a full bucket at the pace of the step.
    fn burst(&self) -> u64 {
        self.under.map_or(self.quota, |made| made.quota).2
    }

    /// Returns whether a wait of the key's bucket is exact. Under a plan it is not if it outlasts
    /// the stamp's range.
    pub(super) fn is_exact(&mut self, key: u64, wait: u64) -> bool {
        let (key, now) = (self.known_as(key), self.time.now());
        let held = self.find(key);
        let plain = self.under.is_none();
        plain || self.worlds_of(key, held).any().is_straight_until(now, now.saturating_add(wait))
    }

    /// Takes a step, and compares it and a look with the ideal. Returns the wait of a refusal by
    /// the key's own bucket.
    pub(super) fn step(&mut self, key: u64, verb: Verb) -> Option<u64> {
        let (key, burst) = (self.known_as(key), self.burst());
        let wait = match verb {
            Verb::Take(n) => self.take(key, n.of(burst), false),
            Verb::TakePinned(n) => self.take(key, n.of(burst), true),
            Verb::Above(n, percent) => self.above(key, n.of(burst), percent),
            Verb::UpTo(n) => self.up_to(key, n.of(burst)),
            Verb::Reserve(n, end) => self.reserve(key, n.of(burst), end),
            // A hold of 0 tokens has nothing to settle.
            Verb::Hold(n, actual) => self.hold(key, n.of(burst).max(1), actual.of(burst)),
            Verb::Refund(n) => self.refund(key, n.of(burst)),
            Verb::Peek => None,
            Verb::Remove => self.remove(key),
            Verb::Clear => self.clear(),
            Verb::EvictIdle => self.evict_idle(),
            Verb::Flood(keys) => self.flood(key, keys.into()),
            Verb::SetQuota(rate, size) => self.set_quota(near(self.quota, rate, size)),
        };
        self.resolve();
        self.look(key);
        self.count();
        wait
    }

    /// Returns the key as the limiter knows it: keys of one hash are one key to a table.
    fn known_as(&self, key: u64) -> u64 {
        if self.inline { self.hasher.of(key) } else { key }
    }

    pub(super) fn find(&self, key: u64) -> Option<usize> {
        self.held.iter().position(|held| held.key == key)
    }

    /// Returns the bucket that the key shares while it is not held.
    pub(super) fn share(&self, key: u64) -> Share {
        (sharer(self.hasher, key), self.under.map(|made| made.quota))
    }

    /// Returns tokens of a key, at the pace of the step.
    fn asked<'a>(&'a self, probe: &'a Probe, n: u64) -> Ask<'a, impl tollgate::Asked<'a, Rule = Quota>> {
        asked(&self.limiter, self.under.as_ref(), probe, n)
    }

    fn peek(&self, probe: &Probe) -> Snapshot {
        self.asked(probe, 0).peek()
    }

    fn look(&mut self, key: u64) {
        let probe = Probe::of(key);
        let (now, seen) = (self.time.now(), look(self.peek(&probe)));
        let held = self.find(key);
        let found = if self.inline { held.is_some() } else { self.keys().contains(&key) };
        assert_eq!((found, probe.made.get()), (held.is_some(), false), "{key}");
        // A look changes nothing, not even a bucket that was never used.
        self.worlds_of(key, held).check(|world| world.ideal.take(now, 0, seen));
    }

    /// Returns the ideals of the key's own bucket, of the shared one, or of one that was never
    /// used.
    fn worlds_of(&mut self, key: u64, held: Option<usize>) -> &mut Worlds {
        let share = self.share(key);
        match held {
            Some(index) => &mut self.held[index].worlds,
            None => self.shared.get_mut(&share).unwrap_or(&mut self.unused),
        }
    }

    fn count(&self) {
        let stats = self.limiter.stats();
        let held = self.held.len();
        assert_eq!((stats.keys, self.limiter.len(), self.limiter.is_empty()), (held, held, held == 0));
        assert!(held <= self.places());
        assert_eq!(stats.evicted, self.evicted);
        assert_eq!([stats.shared, stats.refused_full, stats.allowed_full], self.counts);
        assert_eq!(stats.overruled, 0);
    }

    /// Returns whether an evictor may have taken a key, and whether it must.
    pub(super) fn idle(&self, worlds: &Worlds) -> (bool, bool) {
        let now = self.time.now();
        let calm = self.changed.is_none_or(|changed| now >= changed.saturating_add(MARGIN));
        let idle = worlds.may(|ideal| ideal.is_idle(now));
        (calm && idle.yes, calm && !idle.no)
    }

    /// The keys that have an entry. (While the map grows, a search meets keys of former entries.)
    fn keys(&self) -> HashSet<u64> {
        let mut keys = HashSet::new();
        self.limiter.for_each(|key, _| _ = keys.insert(*key));
        keys
    }

    /// Drops the evicted keys, which must have been full for the margin. The kept ones may have
    /// been full as well.
    fn note_evicted(&mut self, all: bool) -> usize {
        assert!(!self.inline, "a table shows no keys");
        let (keys, now) = (self.keys(), self.time.now());
        let before = self.held.len();
        for index in (0..before).rev() {
            let key = self.held[index].key;
            let (may, must) = self.idle(&self.held[index].worlds);
            match keys.contains(&key) {
                true => {
                    assert!(!(all && must), "{key} was to be evicted at {now} ns");
                    if all && may {
                        self.held[index].worlds.is_so(false, |ideal| ideal.is_idle(now));
                    }
                }
                false => {
                    assert!(may, "{key} was evicted at {now} ns, and was not full");
                    self.held.swap_remove(index);
                }
            }
        }
        let evicted = before - self.held.len();
        self.evicted += evicted as u64;
        evicted
    }

    /// Returns the bucket of a step that is done; `vain` if it could take nothing.
    fn place(&mut self, probe: &Probe, vain: bool) -> Place {
        if self.inline {
            return self.place_in_table(probe.key, vain);
        }
        if let Some(index) = self.find(probe.key) {
            assert!(probe.found.get() && !probe.made.get(), "{} was held", probe.key);
            self.held[index].passed_over = 0;
            return Place::Own(index);
        }
        if vain {
            assert!(!probe.made.get(), "nothing makes no entry");
            return Place::Vain;
        }
        if probe.made.get() {
            return self.admitted(probe.key);
        }
        self.was_without_room(probe.key);
        self.without_place(probe.key)
    }

    /// Counts a key that finds no room, by the policy.
    pub(super) fn without_place(&mut self, key: u64) -> Place {
        match self.policy {
            WhenFull::Deny => {
                self.counts[1] += 1;
                Place::Denied
            }
            WhenFull::Allow => {
                self.counts[2] += 1;
                Place::Allowed
            }
            _ => {
                self.counts[0] += 1;
                let (share, begun) = (self.share(key), self.begun(key));
                self.shared.entry(share).or_insert(begun);
                Place::Shared(share)
            }
        }
    }

    /// Returns a bucket at its first use: a copy of the shared one, or a new one.
    fn begun(&self, key: u64) -> Worlds {
        if let Some(shared) = self.shared.get(&self.share(key)) {
            let mut begun = shared.clone();
            // Tokens that were taken from the shared bucket do not come back to this one.
            begun.each(|world| world.slots.clear());
            return begun;
        }
        let (mut begun, now) = (self.unused.clone(), self.time.now());
        if let Some(n) = self.initial {
            begun.each(|world| world.ideal = world.ideal.clone().starting_with(n.min(1 << 41), Some(now)));
        }
        begun
    }

    fn alike(&self, key: u64) -> usize {
        let hash = |key| self.hasher.of(key);
        self.held.iter().filter(|held| hash(held.key) == hash(key)).count()
    }

    fn admitted(&mut self, key: u64) -> Place {
        assert!(self.alike(key) < MOST_ALIKE, "a ninth key of one hash");
        if self.limiter.stats().evicted > self.evicted {
            assert_eq!(self.note_evicted(false), 1, "room is made for one key");
        }
        assert!(self.held.len() < self.max_keys, "there is no room");
        self.turned_away = 0;
        self.begin_a_turn();
        self.hold_anew(key)
    }

    pub(super) fn hold_anew(&mut self, key: u64) -> Place {
        self.held.push(Key { key, worlds: self.begun(key), passed_over: 0, doubtful: false });
        Place::Own(self.held.len() - 1)
    }

    /// Forgets the keys that the hand has passed over until now.
    pub(super) fn begin_a_turn(&mut self) {
        self.held.iter_mut().for_each(|held| held.passed_over = 0);
    }

    /// Checks that a new key finds the room there is: at once, or after a whole turn of a few looks
    /// a call.
    fn was_without_room(&mut self, key: u64) {
        if self.alike(key) >= MOST_ALIKE {
            return;
        }
        let turn = self.max_keys.div_ceil(LOOKS_AT_REST);
        self.turned_away = if self.held.len() < self.max_keys { self.turned_away + 1 } else { 0 };
        assert!(self.turned_away <= turn, "{} held of {}, and no room", self.held.len(), self.max_keys);
        for index in 0..self.held.len() {
            let (_, must) = self.idle(&self.held[index].worlds);
            let held = &mut self.held[index];
            held.passed_over = if must { held.passed_over + 1 } else { 0 };
            assert!(held.passed_over <= turn, "{} was idle, and no room was made", held.key);
        }
    }

    /// Compares an answer with its bucket.
    fn check(&mut self, key: u64, place: &Place, mut answer: impl FnMut(&mut World) -> Result<(), String>) {
        match *place {
            Place::Own(index) => self.held[index].worlds.check(answer),
            Place::Shared(share) => self.shared.get_mut(&share).expect("it has begun").check(answer),
            Place::Vain => self.worlds_of(key, None).check(|world| answer(&mut world.clone())),
            Place::Denied | Place::Allowed => {}
        }
    }
}
