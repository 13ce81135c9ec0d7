//! State over a restart: `save`, `restore`, and a look at all keys.
//!
//! *Invariant:* a state that is refused changes nothing, because it is read twice: once to check
//! all of it, and once to restore it.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use crate::bucket::atomic::Bucket;
use crate::bucket::engine::Engine;
use crate::bucket::lease::Mode;
use crate::keyed::key::KeyQuery;
use crate::keyed::keyspace::Keyspace;
use crate::keyed::saved::{Held, merge};
use crate::keyed::store::Store;
use crate::keyed::table::{AT_ONCE, Filling, Set, is_fingerprint};
use crate::limiter::key_bytes::KeyBytes;
use crate::limiter::limit::Limit;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::rule::Rule;
use crate::limiter::state_bytes::{Facts, Misfit, NotRestored, Reader, StoreKind, Writer};
use crate::rule::gate::Gate;
use crate::rule::rate::Quota;
use crate::word::decision::snapshot::Snapshot;
use crate::word::saved::{Resume, SavedAt};
use crate::word::state::{Reading, State};
use crate::word::verb::{Call, Take};

/// The constant whose hash tells hashers apart.
const PROBE: u64 = 0x746f_6c6c_6761_7465;

/// A part of a state.
enum Part<'a> {
    /// A bucket that keys without room share: the plan, the number in the plan's set, the word.
    Shared(Option<Quota>, usize, State),
    /// The buckets of no plan have takes under any plan.
    AnyPlan,
    /// The bucket of the requests without a key.
    NoKey(State),
    One(State),
    Key(&'a [u8], State),
    /// The number of slots of a table, before its keys.
    Slots(u64),
    /// The words and fingerprints of up to [`AT_ONCE`] keys.
    Fingerprints(&'a [[[u8; 8]; 2]], Set),
}

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

/// A state that was opened: the way of its words, and the rest of it.
struct Opened<'a> {
    resume: Resume,
    /// Ticks in which a bucket is full under any plan.
    slowest_fill: u64,
    reader: Reader<'a>,
}

fn opened<'a>(
    engine: &Engine,
    bytes: &'a [u8],
    facts: impl Fn() -> Facts,
) -> Result<Opened<'a>, NotRestored> {
    let (facts, reading, now) = facts_and_moment(engine, facts);
    let (saved, mut reader) = Reader::open(bytes, &facts)?;
    let slowest_fill = reader.word()?;
    if !saved.is_valid(&reading.refill) || slowest_fill > reading.refill.mask {
        return Err(NotRestored(Misfit::Entry));
    }
    let plans = slowest_fill > 0 || engine.has_plans();
    let resume = Resume::new(reading, now.unix, saved, engine.clock.is_by_calendar(), plans);
    Ok(Opened { resume, slowest_fill, reader })
}

/// Reads the parts of a state in their order, and checks their words.
///
/// Keys come first: an entry that is made later brings the debts of the bucket that it shared.
fn read_parts<'a>(
    mut reader: Reader<'a>,
    (kind, resume): (StoreKind, &Resume),
    mut see: impl FnMut(Part<'a>) -> Result<(), NotRestored>,
) -> Result<(), NotRestored> {
    let invalid = NotRestored(Misfit::Entry);
    let checked = |word: u64| {
        let state = State::from_word(word);
        if resume.accepts(state) { Ok(state) } else { Err(invalid.clone()) }
    };
    if kind == StoreKind::Table {
        see(Part::Slots(reader.word()?))?;
        for set in [Set::Primary, Set::Secondary] {
            for keys in reader.pairs()?.chunks(AT_ONCE) {
                see(Part::Fingerprints(keys, set))?;
            }
        }
    } else {
        for _ in 0..reader.word()? {
            let state = checked(reader.word()?)?;
            see(if kind == StoreKind::One { Part::One(state) } else { Part::Key(reader.text()?, state) })?;
        }
    }
    for _ in 0..reader.word()? {
        let [tokens, nanos, burst, buckets] = reader.words()?;
        let quota = || Quota::try_per(tokens, Duration::from_nanos(nanos), burst);
        let plan = if tokens == 0 { None } else { Some(quota().map_err(|_| invalid.clone())?) };
        for _ in 0..buckets {
            let [number, word] = reader.words()?;
            let number = usize::try_from(number).map_err(|_| invalid.clone())?;
            see(Part::Shared(plan, number, checked(word)?))?;
        }
    }
    if reader.word()? != 0 {
        see(Part::AnyPlan)?;
    }
    let no_key = reader.word()?;
    if no_key != State::FULL.word() {
        see(Part::NoKey(checked(no_key)?))?;
    }
    if reader.is_empty() { Ok(()) } else { Err(NotRestored(Misfit::Damaged)) }
}

/// Returns the fingerprints and words of keys of a table.
fn words_in(keys: &[[[u8; 8]; 2]]) -> impl Iterator<Item = (u64, State)> {
    keys.iter().map(|[word, fingerprint]| {
        (u64::from_le_bytes(*fingerprint), State::from_word(u64::from_le_bytes(*word)))
    })
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
    /// time during the call. The bytes are about 16 a key of a table, and 16 and the key of a map.
    /// A key that says the same as a new one is left out.
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

    /// Restores the keys of a [saved](Self::save) state, before the first decision.
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
    /// * A key that finds no room because others came in between counts for the bucket that it
    ///   [shares](crate::WhenFull::Share). So it may be granted less.
    ///
    /// # Errors
    ///
    /// [`NotRestored`] says why the limiter cannot have this state. Nothing is changed then.
    pub fn restore(&self, bytes: &[u8]) -> Result<(), NotRestored>
    where
        K: Clone,
    {
        let keyspace = &self.inner.keyspace;
        keyspace.sweep_if_due();
        let facts = self.facts();
        let Opened { resume, slowest_fill, reader } = opened(&keyspace.engine, bytes, || self.facts())?;
        let mut keys = 0;
        read_parts(reader, (facts.kind, &resume), |part| {
            let (held, valid) = match part {
                Part::Key(key, _) => (1, K::read(key).is_some()),
                Part::Fingerprints(keys, _) => (
                    keys.len(),
                    words_in(keys)
                        .all(|(fingerprint, state)| is_fingerprint(fingerprint) && resume.accepts(state)),
                ),
                _ => (0, true),
            };
            keys += held as u64;
            if valid { Ok(()) } else { Err(NotRestored(Misfit::Entry)) }
        })?;
        let room = keyspace.room();
        if keys > room as u64 {
            return Err(NotRestored(Misfit::ManyKeys(keys, room)));
        }
        // Else a key of a slow plan would be evicted as full by the limiter's own rule.
        keyspace.engine.admit_plan(slowest_fill);
        let same_hashes = Reader::probe(bytes) == Some(facts.probe);
        let mut filling = None;
        read_parts(reader, (facts.kind, &resume), |part| {
            self.restore_part(part, &resume, same_hashes, &mut filling);
            Ok(())
        })
    }

    fn restore_part<'a>(
        &'a self,
        part: Part<'_>,
        resume: &Resume,
        same_hashes: bool,
        filling: &mut Option<Filling<'a>>,
    ) where
        K: Clone,
    {
        let keyspace = &self.inner.keyspace;
        match part {
            Part::Shared(plan, number, state) => {
                if let Some(state) = resume.word(state) {
                    // By another hasher each of them may have been the key's.
                    keyspace.resume_shared(plan, same_hashes.then_some(number), state);
                }
            }
            Part::AnyPlan => keyspace.resume_any_plan(),
            Part::NoKey(state) | Part::One(state) => {
                resume.word(state).into_iter().for_each(|state| keyspace.resume_no_key(state));
            }
            Part::Key(key, state) => {
                if let (Some(key), Some(state)) = (K::read(key), resume.word(state)) {
                    keyspace.resume(KeyQuery::new(&self.inner.hasher, &key), state);
                }
            }
            Part::Slots(slots) => *filling = keyspace.filling(slots),
            Part::Fingerprints(keys, set) => {
                let mut saved = [(0, State::FULL); AT_ONCE];
                let known = words_in(keys).filter_map(|(key, state)| Some((key, resume.word(state)?)));
                let len = saved.iter_mut().zip(known).map(|(saved, known)| *saved = known).count();
                keyspace.resume_fingerprints(filling.as_ref(), &saved[..len], set);
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
        let Opened { resume, reader, .. } = opened(&self.engine, bytes, || self.facts())?;
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
