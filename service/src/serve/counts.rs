//! The counts of the service, which outlive each configuration.
//!
//! The key of a count is a hash of the domain and the entries by a secret, and the rules are no
//! part of it. So a raised limit has the difference at once, and an override shares the count of
//! its rule. A limit that a reload puts into other windows or another limiter finds the count of a
//! key where the key has it. The secret is that of this process, or of a saved state.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use tollgate::{AnyRule, Clock};

use super::entry_keys::{self, add_domain, add_entry, shared_key};
use super::homes::{Home, LimitState};
use super::key_room::KeyRoom;
use super::limit_paths::{LimitPaths, Path};
use super::limiters::{CountKey, Hits, Taken, TextLimiter, Windows};
use super::loaded::{Counter, LoadedRules};
use super::messages::DescriptorEntry;
use super::statistics::Statistics;
use crate::rules::shared_entry::SharedEntry;
use crate::rules::tree::{Amount, RuleLimit, Rules, Unit};
use tollgate_common::past::Moves;

/// The most texts with a limiter of their own: each takes some 90 KB.
const MAX_TEXTS: usize = 256;

/// The most keys of all limits together, unless it is set.
pub const MAX_KEYS: usize = 1 << 21;
/// The bytes of a key that is held.
const BYTES_OF_A_KEY: usize = 85;

/// Returns the bound on the keys of all limits together, as the start and `check` tell it.
pub fn bound_of_keys(max_keys: usize) -> String {
    format!("at most {max_keys} keys of all limits are held, in some {} MiB", mebibytes(max_keys))
}

/// Returns the memory of a number of keys, in MiB.
pub(super) fn mebibytes(max_keys: usize) -> usize {
    max_keys.saturating_mul(BYTES_OF_A_KEY).div_ceil(1 << 20)
}

/// The arithmetic of `unit` and `requests_per_unit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    #[default]
    FixedWindow,
    TokenBucket,
}

impl Algorithm {
    /// The names of the settings.
    pub const NAMES: [(&str, Algorithm); 2] =
        [("fixed_window", Algorithm::FixedWindow), ("token_bucket", Algorithm::TokenBucket)];
}

/// The settings that hold for the life of the process.
#[derive(Clone)]
pub struct CountOptions {
    /// Of all limits together.
    pub max_keys: usize,
    pub clock: Clock,
    pub algorithm: Algorithm,
}

impl CountOptions {
    /// Returns the bound of a table, which is never reached: those of all are bounded together.
    fn table(&self) -> usize {
        self.max_keys.saturating_mul(2).saturating_add(1 << 20)
    }
}

impl Default for CountOptions {
    fn default() -> CountOptions {
        CountOptions { max_keys: MAX_KEYS, clock: Clock::new(), algorithm: Algorithm::default() }
    }
}

/// A reading of the wall clock, in whole seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixTime(pub u64);

/// The result of a count for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) hits: Hits,
    pub(super) limit: u64,
    pub(super) is_over: bool,
    pub(super) remaining: u64,
    /// Seconds, at least 1.
    pub(super) reset: u64,
}

/// The use of hits by a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Add,
    /// The hits are those that would be added.
    Look,
    GiveBack,
    /// The hits were used: they count also beyond a limit whose refusals count none.
    Charge,
    /// All hits are added, or none if they are beyond the limit. It is for a store: in this process
    /// [`LimitCounts::hold`] does so.
    Hold,
}

impl Verb {
    /// Returns whether it may add hits.
    #[inline]
    pub(super) fn adds(self) -> bool {
        matches!(self, Verb::Add | Verb::Charge | Verb::Hold)
    }
}

/// All counts, the limiters of texts, and the statistics.
pub struct LimitCounts {
    pub(super) options: CountOptions,
    /// A hasher with the secret.
    pub(super) hasher: SipHasher13,
    /// By the number of a unit in messages, from 1 on.
    pub(super) units: [Arc<Windows>; Unit::ALL.len()],
    pub(super) texts: RwLock<HashMap<AnyRule, Arc<TextLimiter>>>,
    /// The paths of the rules that were loaded last.
    pub(super) limit_paths: Mutex<LimitPaths>,
    pub(super) moves: Moves,
    /// The state of all overrides, which have no paths of their own.
    pub(super) overrides: Arc<LimitState>,
    pub(super) room: KeyRoom,
    pub statistics: Statistics,
}

impl LimitCounts {
    pub fn new(options: &CountOptions) -> LimitCounts {
        let random = RandomState::new();
        let hasher = SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1));
        LimitCounts::by(hasher, options)
    }

    pub(super) fn by(hasher: SipHasher13, options: &CountOptions) -> LimitCounts {
        let windows = |unit| Windows::of_unit(unit, options.table(), &options.clock);
        let units = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Month, Unit::Year, Unit::Week];
        LimitCounts {
            hasher,
            units: units
                .map(|unit| Arc::new(windows(unit).expect("the word of each unit has room for MOST"))),
            texts: RwLock::default(),
            limit_paths: Mutex::default(),
            moves: Moves::default(),
            overrides: Arc::default(),
            room: KeyRoom::new(options.max_keys),
            statistics: Statistics::default(),
            options: options.clone(),
        }
    }

    /// Reads the wall clock.
    pub fn now(&self) -> UnixTime {
        UnixTime(self.nanos() / 1_000_000_000)
    }

    pub(super) fn nanos(&self) -> u64 {
        self.of(Unit::Second).keys.now().as_nanos()
    }

    /// Returns the rules with the statistics and the limiters of their limits.
    ///
    /// # Errors
    ///
    /// A sentence if the rules have more than [`MAX_TEXTS`] texts.
    pub fn load(&self, rules: Rules) -> Result<LoadedRules, String> {
        let texts: HashSet<AnyRule> = rules.limits().filter_map(|limit| self.text(&limit.amount)).collect();
        if texts.len() > MAX_TEXTS {
            return Err(format!(
                "{} different rules of token buckets and texts of `limit`: the most is {MAX_TEXTS}",
                texts.len()
            ));
        }
        let counter = |limit: &Arc<RuleLimit>| self.counter(limit);
        let mut counters: Box<[Counter]> = rules.limits().map(counter).collect();
        let mut limits: Vec<_> = counters.iter().map(|counter| (None, self.home(counter))).collect();
        rules.each_place(|domain, steps, limit| {
            let path = Path::new(domain, steps, limit.place, |texts| self.hash(texts));
            limits[limit.id as usize].0 = Some(path);
        });
        let limits: Vec<_> =
            limits.into_iter().map(|(path, home)| (path.expect("each limit has a path"), home)).collect();
        let own: Vec<_> = limits.iter().map(|(path, _)| path.own).collect();
        let states = self.limit_paths().replace(limits);
        let shares = states.iter().zip(own).zip(rules.limits());
        let counted = shares.filter(|(_, limit)| limit.amount != Amount::Unlimited);
        let shares: Vec<_> = counted.map(|((state, own), limit)| (&state.share, own, limit.fixed)).collect();
        self.room.divide(&shares);
        counters.iter_mut().zip(states).for_each(|(counter, state)| counter.set_state(state));
        Ok(LoadedRules::new(rules, counters, &self.statistics))
    }

    pub(super) fn limit_paths(&self) -> MutexGuard<'_, LimitPaths> {
        self.limit_paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hash(&self, texts: &[&str]) -> u64 {
        let mut hasher = self.hasher;
        for text in texts {
            hasher.write_u64(text.len() as u64);
            hasher.write(text.as_bytes());
        }
        hasher.finish128().h1
    }

    pub(super) fn windows_home(&self, unit: Unit, requests: u32) -> Home {
        Home::Windows(self.units[unit as usize - 1].clone(), requests)
    }

    /// Returns the home of the counts of a counter.
    pub(super) fn home(&self, counter: &Counter) -> Option<Home> {
        match counter {
            Counter::Unlimited => None,
            Counter::Window { unit, requests, .. } => Some(self.windows_home(*unit, *requests)),
            Counter::Text { limiter, .. } => Some(Home::Text(limiter.clone())),
        }
    }

    /// Returns the statistics, and the keys that are held, in the text format of Prometheus.
    pub fn prometheus(&self, in_milliseconds: bool) -> String {
        let mut text = self.statistics.prometheus(in_milliseconds);
        let (keys, shared) = ("tollgate_serve_keys", "tollgate_serve_shared_total");
        let _ = writeln!(text, "# TYPE {keys} gauge");
        for unit in Unit::ALL {
            let _ = writeln!(text, "{keys}{{unit=\"{}\"}} {}", unit.text(), self.of(unit).keys.len());
        }
        let of_texts = self.all_texts().values().map(|limiter| limiter.table.stats().keys).sum::<usize>();
        let _ = writeln!(text, "{keys}{{unit=\"limit\"}} {of_texts}");
        let most = "tollgate_serve_keys_most";
        let _ = writeln!(text, "# TYPE {most} gauge\n{most} {}", self.room.most);
        let _ = writeln!(text, "# TYPE {shared} counter\n{shared} {}", self.room.shared());
        text
    }

    fn counter(&self, limit: &RuleLimit) -> Counter {
        // The room of other texts is that of overrides.
        // It is held until the counter has it: a sweep removes a limiter without a holder.
        let _held = self.text(&limit.amount).map(|text| self.any_text_limiter(text));
        let mut counter = self.counter_of(&limit.amount);
        if let (Amount::Text(..), Counter::Text { least, is_charged_after, .. }) =
            (&limit.amount, &mut counter)
        {
            (*least, *is_charged_after) = (1, limit.charged_after);
        }
        counter
    }

    /// Returns the counter of an amount.
    pub(super) fn counter_of(&self, amount: &Amount) -> Counter {
        let state = self.overrides.clone();
        match (amount, self.text(amount).and_then(|text| self.text_limiter(text))) {
            (_, Some(limiter)) => Counter::Text { limiter, state, least: 0, is_charged_after: false },
            (&Amount::Window { unit, requests }, None) => Counter::Window { unit, requests, state },
            // The load has made the limiter of each text.
            (Amount::Unlimited | Amount::Text(..) | Amount::Windows { .. }, None) => Counter::Unlimited,
        }
    }

    /// Returns the rule of the library for an amount, if no window of this service counts it.
    pub fn text(&self, amount: &Amount) -> Option<AnyRule> {
        // A number that fits no bucket is counted in windows.
        let bucket = (self.options.algorithm == Algorithm::TokenBucket).then(|| amount.bucket()).flatten();
        bucket.or_else(|| amount.rule())
    }

    /// Returns the limiter of a text; `None` if there are [`MAX_TEXTS`] others.
    pub(super) fn text_limiter(&self, text: AnyRule) -> Option<Arc<TextLimiter>> {
        let texts = self.texts.read().unwrap_or_else(PoisonError::into_inner);
        match texts.get(&text) {
            Some(known) => Some(known.clone()),
            None if texts.len() >= MAX_TEXTS => None,
            None => {
                drop(texts);
                Some(self.any_text_limiter(text))
            }
        }
    }

    /// Returns the limiter of a text, however many there are.
    pub(super) fn any_text_limiter(&self, text: AnyRule) -> Arc<TextLimiter> {
        let mut texts = self.texts.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(TextLimiter::new(text, self.options.table(), &self.options.clock));
        texts.entry(text).or_insert_with(new).clone()
    }

    pub(super) fn all_texts(&self) -> HashMap<AnyRule, Arc<TextLimiter>> {
        self.texts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the key of a count. `shared` has the parts that stand for entries.
    pub fn key(&self, domain: &str, entries: &[DescriptorEntry], shared: &[Option<SharedEntry>]) -> CountKey {
        if !shared.is_empty() {
            return shared_key(self.hasher, domain, entries, shared);
        }
        let mut hasher = self.hasher;
        add_domain(&mut hasher, domain);
        for entry in entries {
            add_entry(&mut hasher, 0, &entry.key, &entry.value);
        }
        hasher.finish128().as_bytes()
    }

    /// Returns a digest of a key, for logs.
    pub(super) fn digest(&self, key: &CountKey) -> String {
        entry_keys::digest(self.hasher, key)
    }

    pub(super) fn of(&self, unit: Unit) -> &Windows {
        &self.units[unit as usize - 1]
    }

    /// Counts hits, which stay at 0 or above. Returns the result, or `None` without a limit.
    #[inline(always)]
    pub(super) fn count(
        &self,
        counter: &Counter,
        key: CountKey,
        (verb, hits): (Verb, u64),
        now: UnixTime,
    ) -> Option<Counted> {
        // 0 hits look.
        let verb = if verb == Verb::Add && hits == 0 { Verb::Look } else { verb };
        match counter {
            Counter::Unlimited => None,
            Counter::Window { unit, requests, state } => {
                let placed = self.key_of(counter, state, key, verb);
                let (key, windows) = (placed.key, self.of(*unit));
                let hits = match verb {
                    Verb::Add | Verb::Charge | Verb::Hold => windows.add(key, hits),
                    Verb::Look => windows.look(key, hits),
                    Verb::GiveBack => windows.give_back(key, hits),
                };
                self.begin(hits, &placed, verb);
                Some(Counted::in_window(hits, *requests, *unit, now))
            }
            Counter::Text { limiter, state, least, is_charged_after } => {
                let placed = self.key_of(counter, state, key, verb);
                let (key, table) = (placed.key, &limiter.table);
                let (taken, hits) = match verb {
                    Verb::Add if *is_charged_after => (table.charge(key, hits), hits),
                    Verb::Add | Verb::Hold => (table.take(key, hits), hits),
                    Verb::Charge => (table.charge(key, hits), hits),
                    Verb::Look => (table.look(key, hits.max(*least)), 0),
                    Verb::GiveBack => (table.give_back(key, hits), 0),
                };
                let counted = Counted::by_text(limiter, taken, hits);
                self.begin(counted.hits, &placed, verb);
                Some(counted)
            }
        }
    }
}

impl Counted {
    pub(super) fn in_window(hits: Hits, requests: u32, unit: Unit, now: UnixTime) -> Counted {
        let limit = u64::from(requests);
        Counted {
            hits,
            limit,
            is_over: hits.after > limit,
            remaining: limit.saturating_sub(hits.after),
            reset: until_reset(unit, now),
        }
    }

    /// Returns the same with a longer wait: by the share that a key has of some seconds, from 0 on.
    #[cold]
    pub(super) fn later(&self, key: CountKey, most: u64) -> Counted {
        let [.., low, high] = key.as_chunks::<8>().0 else { return *self };
        let hash = u64::from_le_bytes(*low) ^ u64::from_le_bytes(*high);
        // The upper bits of the product.
        let share = (u128::from(hash) * u128::from(most + 1)) >> 64;
        Counted { reset: self.reset.saturating_add(share as u64), ..*self }
    }

    /// A refusal of a limiter takes nothing: all its hits are those beyond the limit.
    pub(super) fn by_text(limiter: &TextLimiter, taken: Taken, hits: u64) -> Counted {
        let asked = hits;
        let used = limiter.capacity.saturating_sub(taken.remaining);
        let hits = match taken.is_granted {
            true => Hits { before: used.saturating_sub(hits), after: used },
            false => Hits { before: limiter.capacity, after: limiter.capacity.saturating_add(hits) },
        };
        // Hits beyond the capacity are never granted, so any other wait would be repeated soon.
        let is_never = !taken.is_granted && asked > limiter.capacity;
        let wait = if is_never { taken.wait.max(limiter.period) } else { taken.wait };
        let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let (is_over, remaining) = (!taken.is_granted, taken.remaining);
        Counted { hits, limit: limiter.capacity, is_over, remaining, reset: whole.max(1) }
    }
}

/// Returns the seconds to the end of the window, which is never over.
fn until_reset(unit: Unit, now: UnixTime) -> u64 {
    let period = u64::from(unit.seconds());
    period - (now.0 + unit.anchor()) % period
}
