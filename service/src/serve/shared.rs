//! The counts that replicas share, in a store that is not on the path of most requests.
//!
//! A count of a unit goes on beyond its limit, so a request is an addition and never a refusal of
//! the store. What this process knows of a key answers without a call: that it is over its limit,
//! until its window ends. Of a key that is asked for often, tokens are leased. A rule of a text is
//! decided by the shared limiter of the library.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use papaya::HashMap as Map;
use tollgate::{AnyRule, Clock, Quota, Window};
use tollgate_distributed::{CountSpec, DistributedLimiter, OwnedOp, SharedPlan, SharedRule};

use super::counts::{Counted, Verb, mebibytes};
use super::limiters::{CountKey, HashedKey, MOST};
use super::loaded::Counter;
use super::messages::DescriptorEntry;
use crate::rules::shared_entry::SharedEntry;
use crate::rules::tree::{RuleLimit, Unit};

mod background;
mod by_limiter;
mod clear;
mod counting;
mod known;
pub(in crate::serve) mod reserved;
mod service_store;
pub(super) mod settings;
mod store_key;
#[cfg(test)]
mod test_store;
#[cfg(test)]
pub(super) mod tests;
mod told;

use known::Known;
use service_store::ServiceStore;
use settings::StoreSettings;

/// The fewest tokens of a lease: fewer save no calls.
const LEAST_LEASE: u64 = 20;
/// A key that is known takes as much memory as these that are counted in the process.
const COUNTED_OF_A_KNOWN: usize = 3;
/// The bytes of such a key.
const BYTES_OF_A_KNOWN: u64 = 256;
/// The begin of the keys that share their counts without the store, for want of room.
const OVERFLOW: [u8; 12] = [u8::MAX; 12];
/// A key with a lease takes as much memory as these keys without one.
const KEYS_OF_A_SLOT: usize = 32;
/// The least deadline of a mark: no request of a client waits for its answer.
const MARK_DEADLINE: Duration = Duration::from_secs(1);
/// The most rules that are kept by their number.
const MOST_RULES: usize = 4_096;

type Key = Vec<u8>;
type Leases<R> = DistributedLimiter<Key, ServiceStore, R>;

/// A count of a request: the limit, the key, the hits, and the result.
pub(super) struct Want<'a> {
    pub(super) counter: &'a Counter,
    pub(super) key: CountKey,
    pub(super) domain: &'a str,
    pub(super) entries: &'a [DescriptorEntry],
    pub(super) shared: &'a [Option<SharedEntry>],
    /// In a list of limits.
    pub(super) place: u32,
    pub(super) is_own_override: bool,
    pub(super) verb: Verb,
    pub(super) hits: u64,
    /// Of hits that are held, the end of their window, as the store told it; of a bucket, the time
    /// at which it is full. Of hits that go back, the end of theirs: those of another window are
    /// lost. In microseconds since 1970; 0 if it is not known.
    pub(super) edge_us: u64,
    /// `None` without a limit.
    pub(super) counted: Option<Counted>,
}

/// A limit by the shared limiter of the library.
#[derive(Clone)]
enum Leased {
    Quota(Leases<Quota>, SharedPlan<Quota>),
    Window(Leases<Window>, SharedPlan<Window>),
}

/// A rule, as it is counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Counts {
    Unit(Unit, u32),
    Rule(AnyRule),
}

/// The counts that replicas share.
pub(in crate::serve) struct SharedCounts {
    pub(in crate::serve) settings: StoreSettings,
    clock: Clock,
    store: ServiceStore,
    buckets: Leases<Quota>,
    /// The limiter of marks.
    marks: Leases<Quota>,
    /// The marks whose calls had no answer, each with the time until which it holds.
    unsure: Mutex<HashMap<Vec<u8>, Duration>>,
    windows: RwLock<HashMap<Window, Leases<Window>>>,
    rules: RwLock<HashMap<Counts, Leased>>,
    known: Map<Id, Mutex<Known>, HashedKey>,
    /// The keys with hits that the store is to be told.
    lent: Mutex<HashMap<Id, (OwnedOp, CountSpec)>>,
    max_keys: usize,
    /// It is held while the store is told of hits.
    telling: tokio::sync::Mutex<()>,
    /// Answers of hits that were decided without the store.
    without_store: AtomicU64,
    /// Answers by the knowledge of a key.
    by_known: AtomicU64,
    /// The time since which the store has answered, in seconds since 1970; 0 while it does not.
    since: AtomicU64,
}

/// The key of a count and the number of its unit; of a text [`OF_TEXTS`] times its place in a list.
type Id = (CountKey, u32);
/// It is more than each number of a unit.
const OF_TEXTS: u32 = 8;

impl SharedCounts {
    /// Opens the store. A server that does not answer is no error. It is called in the runtime of
    /// tokio.
    pub(in crate::serve) fn open(
        settings: &StoreSettings,
        max_keys: usize,
        clock: &Clock,
    ) -> Result<Arc<SharedCounts>, String> {
        let store = settings.open()?;
        SharedCounts::on(store, settings, max_keys, clock)
    }

    fn on(
        store: ServiceStore,
        settings: &StoreSettings,
        max_keys: usize,
        clock: &Clock,
    ) -> Result<Arc<SharedCounts>, String> {
        let max_keys = known_keys(max_keys);
        let of_buckets = format!("{}.buckets", settings.name);
        let buckets = limiter(Quota::per_second(1), &store, of_buckets, settings, max_keys, clock)?;
        let (of_marks, deadline) = (format!("{}.marks", settings.name), settings.deadline.max(MARK_DEADLINE));
        let patient = StoreSettings { deadline, ..settings.clone() };
        let marks = limiter(Quota::per_second(1), &store, of_marks, &patient, max_keys, clock)?;
        let shared = Arc::new(SharedCounts {
            settings: settings.clone(),
            clock: clock.clone(),
            store,
            buckets,
            marks,
            unsure: Mutex::default(),
            windows: RwLock::default(),
            rules: RwLock::default(),
            known: Map::builder().hasher(HashedKey::default()).build(),
            lent: Mutex::default(),
            max_keys,
            telling: tokio::sync::Mutex::default(),
            without_store: AtomicU64::new(0),
            by_known: AtomicU64::new(0),
            since: AtomicU64::new(clock.unix_time().as_secs()),
        });
        tokio::spawn(shared.clone().prepare());
        tokio::spawn(shared.clone().tell_each());
        Ok(shared)
    }

    fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    /// Does something with the knowledge of a key. Of a key without room nothing is kept.
    fn with_known<T>(&self, id: Id, with: impl FnOnce(&mut Known) -> T) -> T {
        let map = self.known.pin();
        loop {
            let known = match map.get(&id) {
                Some(known) => known,
                None if !self.has_room(id) => return with(&mut Known::default()),
                None => map.get_or_insert_with(id, Mutex::default),
            };
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            if !known.has_left {
                return with(&mut known);
            }
            // The sweep removes it.
            std::hint::spin_loop();
        }
    }

    fn has_room(&self, id: Id) -> bool {
        id.0[..12] == OVERFLOW || self.known.pin().len() < self.max_keys
    }

    /// Returns whether keys over their limit are refused without a call. The bytes of the cache of
    /// the reference are those of all keys that are known.
    fn caches_over(&self) -> bool {
        let has_room =
            |bytes| self.known.pin().len() <= usize::try_from(bytes / BYTES_OF_A_KNOWN).unwrap_or(usize::MAX);
        self.settings.caches_over && self.settings.cache_bytes.is_none_or(has_room)
    }

    /// Returns the place of a key that is granted hits without the store.
    fn lending(&self, id: Id) -> Id {
        let is_kept = self.known.pin().contains_key(&id) || self.has_room(id);
        let mut shared = id.0;
        shared[..12].copy_from_slice(&OVERFLOW);
        // Of 1,024 counts.
        shared[13] &= 3;
        shared[14..].fill(0);
        if is_kept { id } else { (shared, id.1) }
    }

    /// Returns the limiter of a rule, or `None` if no store counts it: that was an error at the
    /// load.
    fn rule(&self, counts: Counts) -> Option<Leased> {
        if let Some(known) = self.rules.read().unwrap_or_else(PoisonError::into_inner).get(&counts) {
            return Some(known.clone());
        }
        let rule = match counts {
            Counts::Rule(rule) => rule,
            Counts::Unit(unit, requests) => of_unit(unit).with_limit(requests.into()).ok()?.into(),
        };
        let leased = match rule {
            AnyRule::Quota(quota) => Leased::Quota(self.buckets.clone(), self.buckets.plan(quota).ok()?),
            AnyRule::Window(window) => {
                let windows = self.windows(window)?;
                let plan = windows.plan(window).ok()?;
                Leased::Window(windows, plan)
            }
        };
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        if rules.len() >= MOST_RULES {
            // Overrides may be many.
            rules.clear();
        }
        rules.insert(counts, leased.clone());
        Some(leased)
    }

    /// Returns the limiter of the windows of one length and kind. Each limit of them is a plan.
    fn windows(&self, window: Window) -> Option<Leases<Window>> {
        let shape = window.with_limit(1).ok()?;
        if let Some(known) = self.windows.read().unwrap_or_else(PoisonError::into_inner).get(&shape) {
            return Some(known.clone());
        }
        let mut windows = self.windows.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = windows.get(&shape) {
            return Some(known.clone());
        }
        let name = format!("{}.{}", self.settings.name, shape.to_string().replace(':', "."));
        let built = limiter(shape, &self.store, name, &self.settings, self.max_keys, &self.clock);
        let built = built.inspect_err(|why| tracing::error!("no limiter of {shape}: {why}")).ok()?;
        windows.insert(shape, built.clone());
        Some(built)
    }

    fn lent(&self) -> MutexGuard<'_, HashMap<Id, (OwnedOp, CountSpec)>> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the bound on the keys that are known at a time, as the start tells it.
pub(in crate::serve) fn bound_of_known(max_keys: usize) -> String {
    format!(
        "the counts of at most {} keys are known, in some {} MiB",
        known_keys(max_keys),
        mebibytes(max_keys)
    )
}

fn known_keys(max_keys: usize) -> usize {
    (max_keys / COUNTED_OF_A_KNOWN).max(1)
}

/// Builds a limiter of the settings.
fn limiter<R: SharedRule>(
    rule: R,
    store: &ServiceStore,
    name: String,
    settings: &StoreSettings,
    max_keys: usize,
    clock: &Clock,
) -> Result<Leases<R>, String> {
    let builder = DistributedLimiter::builder(rule, store.clone()).name(name).clock(clock.clone());
    let builder = builder.deadline(settings.deadline).on_outage(settings.on_outage);
    let builder = builder.max_keys(max_keys / KEYS_OF_A_SLOT).least_lease(LEAST_LEASE);
    let builder = match settings.leases() {
        true => builder.leased(settings.lease),
        false => builder.exact(),
    };
    builder.build().map_err(|why| why.to_string())
}

/// Returns the windows of a unit, with a limit that no count reaches.
fn of_unit(unit: Unit) -> Window {
    let window = Window::try_per(1, Duration::from_secs(unit.seconds().into()));
    let endless = window.and_then(|window| window.utc().with_limit(MOST));
    endless.expect("the word of each unit has room for MOST")
}

impl<'a> Want<'a> {
    /// Returns a look at a count.
    pub(super) fn look(
        counter: &'a Counter,
        key: CountKey,
        domain: &'a str,
        entries: &'a [DescriptorEntry],
        RuleLimit { shared, place, .. }: &'a RuleLimit,
    ) -> Want<'a> {
        let (verb, hits, is_own_override, counted) = (Verb::Look, 0, false, None);
        Want {
            counter,
            key,
            domain,
            entries,
            shared,
            place: *place,
            is_own_override,
            verb,
            hits,
            edge_us: 0,
            counted,
        }
    }

    /// Returns the hits that come on top of those before.
    fn added(&self) -> u64 {
        if self.verb == Verb::GiveBack { 0 } else { self.hits }
    }

    fn store_key(&self) -> Key {
        let begin = match (self.is_own_override, self.place) {
            (true, _) => "!".to_owned(),
            (false, 0) => String::new(),
            (false, place) => format!("+{place},"),
        };
        store_key::of(begin, self.domain, self.entries, self.shared)
    }
}
