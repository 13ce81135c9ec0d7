//! State over a restart: `save`, `restore`, and a look at all keys.
//!
//! *Invariant:* a state that is refused changes nothing, because it is read twice: once to check
//! all of it, and once to restore it.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash};

use crate::bucket::atomic::Bucket;
use crate::bucket::engine::Engine;
use crate::bucket::lease::Mode;
use crate::keyed::key::KeyQuery;
use crate::keyed::keyspace::Keyspace;
use crate::keyed::saved::{Held, merge};
use crate::keyed::store::Store;
use crate::keyed::table::{AT_ONCE, Filling, Set, is_fingerprint};
use crate::limiter::limit::Limit;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::rule::Rule;
use crate::limiter::state::bytes::{Facts, Misfit, NotRestored, Reader, StoreKind, Writer};
use crate::limiter::state::key_bytes::KeyBytes;
use crate::limiter::state::parts::{Part, read_parts, words_in};
use crate::rule::gate::Gate;
use crate::rule::rate::Quota;
use crate::word::decision::snapshot::Snapshot;
use crate::word::saved::{Resume, SavedAt};
use crate::word::state::{Reading, State};
use crate::word::verb::{Call, Take};

/// The constant whose hash tells hashers apart.
const PROBE: u64 = 0x746f_6c6c_6761_7465;

/// Returns the facts of a limiter, and a moment at which they are true.
fn facts_and_moment(engine: &Engine, facts: impl Fn() -> Facts) -> (Facts, Reading, SavedAt) {
    loop {
        let before = facts();
        let reading = engine.read();
        let at = SavedAt::new(&reading, engine.clock.unix_of(reading.nanos()));
        // A change of the rule may be under way.
        if facts() == before {
            return (before, reading, at);
        }
    }
}

fn facts_of(engine: &Engine, kind: StoreKind, rule: &impl Rule, probe: u64) -> Facts {
    let (layout, numbers) = (engine.source.layout(), engine.source.numbers());
    Facts { kind, rule: rule.to_string(), layout, numbers, probe }
}

/// The limiter to which a state is restored.
struct Destination<'a> {
    /// The numbers of keys that have an entry, and are not in the state.
    sharers: HashSet<u64>,
    /// Whether the hasher is that of the save.
    same_hashes: bool,
    filling: Option<Filling<'a>>,
    /// The words of shared buckets of no plan, and the plans that have others.
    shared: (Vec<Option<State>>, Vec<Quota>),
}

/// A state that was opened: the way of its words, and the rest of it.
struct Opened<'a> {
    resume: Resume,
    /// Ticks in which a bucket is full under any plan.
    slowest_fill: u64,
    reader: Reader<'a>,
}

/// `plan_unit`: the most ticks in which a plan earns a unit.
fn opened<'a>(
    engine: &Engine,
    bytes: &'a [u8],
    plan_unit: u64,
    facts: impl Fn() -> Facts,
) -> Result<Opened<'a>, NotRestored> {
    let (facts, reading, now) = facts_and_moment(engine, facts);
    let (saved, mut reader) = Reader::open(bytes, &facts)?;
    let slowest_fill = reader.word()?;
    if !saved.is_valid(&reading.refill) || slowest_fill > reading.refill.mask {
        return Err(NotRestored(Misfit::Entry));
    }
    let plan_unit = (slowest_fill > 0 || engine.has_plans()).then_some(plan_unit);
    let resume = Resume::new(reading, now.unix, saved, engine.clock.is_by_calendar(), plan_unit);
    Ok(Opened { resume, slowest_fill, reader })
}

/// Writes the buckets that keys without room share, and that of the requests without a key.
fn write_shared<K: Hash + Eq>(writer: &mut Writer, keyspace: &Keyspace<K>, saved: impl Fn(State) -> u64) {
    let (sets, mut number) = (writer.put_later(), 0);
    keyspace.each_shared(|plan: Option<Quota>, buckets: &[Bucket]| {
        // A plan that is no rate charges no bucket.
        let numbers = match plan {
            Some(plan) if plan.gate() != Gate::Counted => return,
            plan => plan.map(|plan| plan.numbers()),
        };
        let of = numbers.map_or([0; 3], |numbers| [numbers.tokens, numbers.nanos, numbers.burst]);
        of.into_iter().for_each(|word| writer.put(word));
        let (at, mut len) = (writer.put_later(), 0);
        for (index, bucket) in buckets.iter().enumerate().filter(|(_, bucket)| bucket.state().is_level()) {
            writer.put(index as u64);
            writer.put(saved(bucket.state()));
            len += 1;
        }
        writer.set(at, len);
        number += 1;
    });
    writer.set(sets, number);
    writer.put(keyspace.any_plan().into());
    writer.put(match keyspace.no_key() {
        State::FULL => State::FULL.word(),
        state => saved(state),
    });
}

impl<K: Hash + Eq, R: Rule, S> RateLimiter<K, R, S> {
    /// Calls `see` with each key that has an entry, and the content of its bucket under the
    /// limiter's own rule, in no order.
    ///
    /// No decision waits for it. A key that comes or goes meanwhile may be left out. A table
    /// has fingerprints and no keys: `see` is not called.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<String>::new(Quota::per_hour(5));
    /// assert!(limiter.key("ada").n(3).try_acquire().is_ok());
    /// let mut seen = Vec::new();
    /// limiter.for_each(|key, bucket| seen.push((key.clone(), bucket.remaining())));
    /// assert_eq!(seen, [("ada".to_owned(), 2)]);
    /// ```
    pub fn for_each(&self, mut see: impl FnMut(&K, Snapshot)) {
        let keyspace = &self.inner.keyspace;
        keyspace.sweep_if_due();
        keyspace.each(|key, state| {
            let Held::Key(key) = key else { return };
            let (reading, look) = (keyspace.engine.read(), Call::from(Take::Exactly(0)));
            let (seen, _) = look.apply(state, &reading);
            see(key, Call::from(Take::Exactly(1)).snapshot(seen, reading));
        });
    }
}

impl<K: Hash + Eq, R: Rule, S: BuildHasher> RateLimiter<K, R, S> {
    fn facts(&self) -> Facts {
        let kind = match self.inner.keyspace.store {
            Store::Map(_) => StoreKind::Map,
            Store::Table(_) => StoreKind::Table,
        };
        let probe = self.inner.hasher.hash_one(PROBE);
        facts_of(&self.inner.keyspace.engine, kind, &self.rule(), probe)
    }
}

impl<K: Hash + Eq + KeyBytes, R: Rule, S: BuildHasher> RateLimiter<K, R, S> {
    /// Returns the state of all keys as bytes, for [`restore`](Self::restore) in a later process.
    ///
    /// It looks at every entry, and no decision waits for it. Each key is saved as it was at some
    /// time during the call. Beside keys that come and go these may be more than `max_keys`. The
    /// bytes are about 16 a key of a table, and 16 and the key of a map. A key that says the same
    /// as a new one is left out.
    ///
    /// * A [place](crate::Places) in use ends with its process: none is saved.
    /// * Callers that wait in line end with their process; the tokens that were promised to the
    ///   first of them, or reserved, stay charged.
    /// * A table has fingerprints of its keys. They mean nothing under another hasher, so a table
    ///   needs a hasher whose keys the program keeps: the default one has new keys in each process.
    ///
    /// The page [State over a restart](crate::_state) has the promises.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, RateLimiter};
    ///
    /// let (clock, mock) = Clock::mock();
    /// let start = || RateLimiter::<String>::builder(Quota::per_minute(60)).clock(clock.clone()).build();
    /// let limiter = start();
    /// assert!(limiter.key("ada").n(60).try_acquire().is_ok());
    /// let bytes = limiter.save();
    ///
    /// mock.advance(Duration::from_secs(2)); // while the program is down
    /// let restarted = start();
    /// restarted.restore(&bytes)?;
    /// assert_eq!(restarted.peek("ada").remaining(), 2);
    /// assert_eq!(restarted.peek("bob").remaining(), 60);
    /// # Ok::<(), tollgate::NotRestored>(())
    /// ```
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let keyspace = &self.inner.keyspace;
        keyspace.sweep_if_due();
        let (facts, reading, at) = facts_and_moment(&keyspace.engine, || self.facts());
        let saved = |state: State| state.saved(&reading.refill, at.tick).word();
        let mut writer = Writer::new(&facts, &at, keyspace.store.len());
        let slowest_fill = writer.put_later();
        if let Store::Table(table) = &keyspace.store {
            writer.put(table.slots_in_all() as u64);
        }
        let (len, mut keys, mut elsewhere) = (writer.put_later(), 0, Vec::new());
        keyspace.each_in_use(|key, state| {
            match key {
                Held::Key(key) => {
                    writer.put(saved(state));
                    writer.put_text(|bytes| key.write(bytes));
                }
                Held::Fingerprint(fingerprint, Set::Primary) => {
                    [saved(state), fingerprint].into_iter().for_each(|word| writer.put(word));
                }
                Held::Fingerprint(fingerprint, Set::Secondary) => {
                    return elsewhere.push([saved(state), fingerprint]);
                }
            }
            keys += 1;
        });
        writer.set(len, keys);
        if facts.kind == StoreKind::Table {
            writer.put(elsewhere.len() as u64);
            elsewhere.as_flattened().iter().for_each(|word| writer.put(*word));
        }
        write_shared(&mut writer, keyspace, saved);
        // After the words: a plan is known before a word is charged under it.
        writer.set(slowest_fill, keyspace.engine.slowest_fill());
        writer.finish()
    }

    /// Restores the keys of a [saved](Self::save) state, best before the first decision.
    ///
    /// The time since the save is earned, by the wall clock, and windows by the calendar go on. A
    /// wall clock that is behind the save earns nothing. One that is ahead earns as much as it is
    /// ahead.
    ///
    /// A restored key is never granted more than if the process had gone on, and at most the tokens
    /// of a tick less:
    ///
    /// * The rule is the one of the save: [set](Self::set_rule) a rule that was changed first. So
    ///   are the store, [`headroom`](crate::Builder::headroom), debt and plans of the builder.
    /// * A key that was used before the call keeps those takes as well, as far as the debt has room
    ///   for them. So a state that is restored twice counts twice.
    /// * A key that finds no room counts for the bucket that it [shares](crate::WhenFull::Share),
    ///   and may be granted less. There is no room if other keys came before the call, or with a
    ///   smaller `max_keys`. The next decision on such a key is by [`WhenFull`](crate::WhenFull).
    ///
    /// # Errors
    ///
    /// [`NotRestored`] says why the limiter cannot have this state. Nothing is changed then. Keys
    /// without room are no reason.
    pub fn restore(&self, bytes: &[u8]) -> Result<(), NotRestored>
    where
        K: Clone,
    {
        let keyspace = &self.inner.keyspace;
        keyspace.sweep_if_due();
        let facts = self.facts();
        let Opened { resume, slowest_fill, reader } =
            opened(&keyspace.engine, bytes, keyspace.slowest_unit(), || self.facts())?;
        let mut shares = false;
        read_parts(reader, (facts.kind, &resume), |part| {
            let valid = match part {
                Part::Shared(_, buckets) => {
                    shares |= !buckets.is_empty();
                    true
                }
                Part::Key(key, _) => K::read(key).is_some(),
                Part::Fingerprints(keys, _) => words_in(keys)
                    .all(|(fingerprint, state)| is_fingerprint(fingerprint) && resume.accepts(state)),
                _ => true,
            };
            if valid { Ok(()) } else { Err(NotRestored(Misfit::Entry)) }
        })?;
        let same_hashes = Reader::probe(bytes) == Some(facts.probe);
        // Else a key of a slow plan would be evicted as full by the limiter's own rule.
        keyspace.engine.admit_plan(slowest_fill);
        // A plan may have a larger burst: by a touch an idle key is told from a new one then.
        let (plans, in_use) = (keyspace.engine.has_plans(), keyspace.in_use());
        let word = |saved| resume.word(saved).filter(|state| plans || in_use(*state));
        // Keys of this limiter that are not in the state may have shared a bucket then.
        let sharers = if shares { keyspace.held() } else { HashSet::new() };
        let mut to = Destination { sharers, same_hashes, filling: None, shared: Default::default() };
        read_parts(reader, (facts.kind, &resume), |part| {
            self.restore_part(part, word, &mut to);
            Ok(())
        })
    }

    /// `word` returns the word of a saved one now; `None` if it says the same as no bucket.
    fn restore_part<'a>(
        &'a self,
        part: Part<'_>,
        word: impl Fn(State) -> Option<State>,
        to: &mut Destination<'a>,
    ) where
        K: Clone,
    {
        let keyspace = &self.inner.keyspace;
        match part {
            Part::Shared(plan, buckets) => {
                let pairs = buckets.iter().map(|pair| pair.map(u64::from_le_bytes));
                let words = pairs.filter_map(|[at, saved]| Some((at, word(State::from_word(saved))?)));
                let words = keyspace.shared_words(to.same_hashes, words);
                keyspace.resume_shared(plan, &words, &to.sharers);
                match plan {
                    None => to.shared.0 = words,
                    Some(plan) => to.shared.1.push(plan),
                }
            }
            Part::AnyPlan => keyspace.resume_any_plan(&to.shared.0, &to.shared.1),
            Part::NoKey(state) | Part::One(state) => {
                word(state).into_iter().for_each(|state| keyspace.resume_no_key(state));
            }
            Part::Key(key, state) => {
                let Some(key) = K::read(key) else { return };
                let query = KeyQuery::new(&self.inner.hasher, &key);
                if !to.sharers.is_empty() {
                    keyspace.id(query).map(|id| to.sharers.remove(&id));
                }
                if let Some(state) = word(state) {
                    keyspace.resume(query, state);
                }
            }
            Part::Slots(slots) => to.filling = keyspace.filling(slots),
            Part::Fingerprints(keys, set) => {
                if !to.sharers.is_empty() {
                    words_in(keys).for_each(|(key, _)| _ = to.sharers.remove(&key));
                }
                let mut saved = [(0, State::FULL); AT_ONCE];
                let known = words_in(keys).filter_map(|(key, state)| Some((key, word(state)?)));
                let len = saved.iter_mut().zip(known).map(|(saved, known)| *saved = known).count();
                keyspace.resume_fingerprints(to.filling.as_ref(), &saved[..len], set);
            }
        }
    }
}

impl<R: Rule> Limit<R> {
    fn facts(&self) -> Facts {
        facts_of(&self.engine, StoreKind::One, &self.rule(), 0)
    }

    /// Returns the state of the bucket as bytes, for [`restore`](Self::restore) in a later process.
    ///
    /// The tokens that are leased to the cores of a [spread](crate::LimitBuilder::spread) bucket
    /// come back to it first. The page [State over a restart](crate::_state) has the promises.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Window, WindowCounter};
    ///
    /// let (clock, mock) = Clock::mock();
    /// let daily = Window::per_day(1_000).utc();
    /// let start = || WindowCounter::builder(daily).clock(clock.clone()).build();
    /// let sold = start();
    /// assert!(sold.try_acquire_n(900).is_ok());
    /// let bytes = sold.save();
    ///
    /// mock.advance(Duration::from_secs(3_600)); // while the program is down
    /// let restarted = start();
    /// restarted.restore(&bytes)?;
    /// assert_eq!(restarted.peek().remaining(), 100);
    /// # Ok::<(), tollgate::NotRestored>(())
    /// ```
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        if let Mode::Spread(spread) = self.mode() {
            spread.recall_all();
        }
        let (facts, reading, at) = facts_and_moment(&self.engine, || self.facts());
        let mut writer = Writer::new(&facts, &at, 1);
        // No plan.
        writer.put(0);
        let state = self.bucket.state();
        let used = state.is_level();
        writer.put(used.into());
        if used {
            writer.put(state.saved(&reading.refill, at.tick).word());
        }
        // No shared bucket, of no plan or of any.
        writer.put(0);
        writer.put(0);
        writer.put(State::FULL.word());
        writer.finish()
    }

    /// Restores a [saved](Self::save) state, before the first decision, as
    /// [`RateLimiter::restore`](crate::RateLimiter::restore) does.
    ///
    /// # Errors
    ///
    /// [`NotRestored`] says why the bucket cannot have this state. Nothing is changed then.
    pub fn restore(&self, bytes: &[u8]) -> Result<(), NotRestored> {
        let Opened { resume, reader, .. } = opened(&self.engine, bytes, 0, || self.facts())?;
        let mut found = None;
        read_parts(reader, (StoreKind::One, &resume), |part| {
            if let Part::One(state) = part {
                found = resume.word(state);
            }
            Ok(())
        })?;
        if let Some(state) = found {
            if let Mode::Spread(spread) = self.mode() {
                spread.recall_all();
            }
            merge(&self.engine, &*self.bucket, state);
        }
        Ok(())
    }
}
