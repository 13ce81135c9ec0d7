//! The tables that count: one of each unit, and one of each text.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use tollgate::{
    AnyRule, Clock, Denied, Granted, Hold, InvalidRule, NotRestored, RateLimiter, Rule, Stats, Window,
};

use super::reserve::id::kind_of;
use crate::rules::tree::Unit;

/// The limit of each window, above that of every rule: a count goes on when it is over its limit.
pub const MOST: u64 = (1 << 33) - 2;

/// A key of a count: a hash of 128 bits by a secret. Bytes need no alignment, so an entry of the
/// library's map takes 32 bytes. A number of 128 bits would make it 48.
pub type CountKey = [u8; 16];

/// A hasher for keys that are hashes already, by a secret.
#[derive(Clone, Copy, Default)]
pub(super) struct HashedKey(u64);

impl BuildHasher for HashedKey {
    type Hasher = HashedKey;

    fn build_hasher(&self) -> HashedKey {
        HashedKey(0)
    }
}

impl Hasher for HashedKey {
    /// Takes the first half: half of a hash is a hash.
    #[inline]
    fn write(&mut self, key: &[u8]) {
        self.0 = key.first_chunk().map_or(0, |half| u64::from_le_bytes(*half));
    }

    /// The number of a unit, or of texts.
    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.0 ^= u64::from(number) << 56;
    }

    /// All keys have one length.
    #[inline]
    fn write_usize(&mut self, _: usize) {}

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The buckets are in a map. A table of the default `max_keys` has 21,800 pages, and 10,000 keys
/// would touch a third of them: 33 MB instead of 0.8.
type HashedKeys<R> = RateLimiter<CountKey, R, HashedKey>;

/// The hits of a key in the present window, before and after those of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hits {
    pub(super) before: u64,
    pub(super) after: u64,
}

impl Hits {
    /// Returns the hits that come after those before.
    pub(super) fn of(before: u64, hits: u64) -> Hits {
        Hits { before, after: before.saturating_add(hits) }
    }
}

/// Returns the builder of a table.
fn table<R: Rule>(rule: R, max_keys: usize, clock: &Clock) -> HashedKeys<R> {
    let builder = RateLimiter::builder(rule).hasher(HashedKey::default()).clock(clock.clone());
    builder.max_keys(max_keys).build()
}

/// The windows of a unit, which count past any limit.
pub(super) struct Windows {
    pub(super) keys: HashedKeys<Window>,
    pub(super) unit: Unit,
}

impl Windows {
    pub(super) fn of_unit(unit: Unit, max_keys: usize, clock: &Clock) -> Result<Windows, InvalidRule> {
        let period = Duration::from_secs(unit.seconds().into());
        // The window from the first use, of which this is made, has no room for `MOST` in a second.
        let window = Window::try_per(1, period)?.utc().with_limit(MOST)?;
        Ok(Windows { keys: table(window, max_keys, clock), unit })
    }

    /// Adds hits to the count of a key.
    #[inline]
    pub(super) fn add(&self, key: CountKey, hits: u64) -> Hits {
        match self.keys.try_acquire_n(&key, hits) {
            Ok(granted) => {
                let after = MOST - granted.remaining();
                Hits { before: after - hits, after }
            }
            Err(_) => self.add_up_to_most(key, hits),
        }
    }

    /// Adds hits to a count that reaches [`MOST`], and stops there.
    #[cold]
    fn add_up_to_most(&self, key: CountKey, hits: u64) -> Hits {
        let granted: Granted = self.keys.key(&key).n(hits).acquire_up_to();
        let before = MOST - granted.remaining() - granted.tokens();
        Hits { before, after: before.saturating_add(hits) }
    }

    /// Returns the count of a key with these hits, and adds none.
    pub(super) fn look(&self, key: CountKey, hits: u64) -> Hits {
        let before = MOST - self.keys.peek(&key).remaining();
        Hits { before, after: before.saturating_add(hits) }
    }

    /// Calls a function with each key and its count.
    pub(super) fn each(&self, see: &mut dyn FnMut(CountKey, u64)) {
        self.keys.for_each(|key, seen| see(*key, MOST - seen.remaining()));
    }

    /// Raises the count of a key to this one.
    pub(super) fn raise(&self, key: CountKey, count: u64) {
        let missing = count.saturating_sub(self.look(key, 0).after);
        if missing > 0 {
            self.add(key, missing);
        }
    }

    /// Takes hits from the count of a key, down to 0.
    pub(super) fn give_back(&self, key: CountKey, hits: u64) -> Hits {
        self.keys.refund(&key, hits);
        self.look(key, 0)
    }
}

/// The limiter of a text, or of a unit and a number that are read as one.
pub struct TextLimiter {
    pub(super) rule: AnyRule,
    pub(super) table: Box<dyn TextTable>,
    /// The tokens of a period, as `current_limit` tells them.
    pub(super) tokens: u32,
    /// The longest unit that is not longer than the period.
    pub(super) unit: Unit,
    pub(super) capacity: u64,
    /// The time in which all tokens of a period come.
    pub(super) period: Duration,
    /// The kind of the rule in the ids of reservations: windows of other limits are of one kind.
    pub(super) kind: u32,
}

/// The result of a limiter of a text.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) is_granted: bool,
    pub(super) remaining: u64,
    /// The time until the hits are granted if they were refused, else until all tokens are there.
    pub(super) wait: Duration,
}

impl TextLimiter {
    pub fn new(rule: AnyRule, max_keys: usize, clock: &Clock) -> TextLimiter {
        let is_shorter = |unit: &Unit| u64::from(unit.seconds()) <= rule.period().as_secs();
        TextLimiter {
            rule,
            table: match rule {
                AnyRule::Quota(quota) => Box::new(table(quota, max_keys, clock)),
                AnyRule::Window(window) => Box::new(table(window, max_keys, clock)),
            },
            tokens: u32::try_from(rule.tokens()).unwrap_or(u32::MAX),
            unit: Unit::ALL.into_iter().rev().find(is_shorter).unwrap_or(Unit::Second),
            capacity: rule.capacity(),
            period: rule.period(),
            kind: match rule {
                AnyRule::Window(window) => kind_of(&window.with_limit(1).unwrap_or(window).to_string()),
                AnyRule::Quota(quota) => kind_of(&quota.to_string()),
            },
        }
    }

    /// Returns the tokens that a key owes to its bucket, of a look at it.
    pub(super) fn owed(&self, looked: Taken) -> u64 {
        let AnyRule::Quota(quota) = self.rule else { return 0 };
        if looked.remaining > 0 {
            return 0;
        }
        let filling = looked.wait.as_nanos().saturating_mul(quota.tokens().into());
        let missing = filling.div_ceil(quota.period().as_nanos().max(1));
        u64::try_from(missing).unwrap_or(u64::MAX).saturating_sub(self.capacity)
    }

    /// Takes a token of a key, and returns whether there was one.
    pub fn grants_one(&self, key: CountKey) -> bool {
        self.table.take(key, 1).is_granted
    }
}

impl Taken {
    #[inline]
    fn granted(granted: Granted) -> Taken {
        Taken { is_granted: true, remaining: granted.remaining(), wait: granted.reset_after() }
    }

    fn denied(denied: &Denied, reset: impl FnOnce() -> Duration) -> Taken {
        let wait = denied.retry_after().unwrap_or_else(reset);
        Taken { is_granted: false, remaining: denied.remaining(), wait }
    }
}

/// The keys of a rule of the library.
pub(super) trait TextTable: Send + Sync {
    /// Takes all hits, or none if they are too many.
    fn take(&self, key: CountKey, hits: u64) -> Taken;

    /// Takes all hits, as `take` does, and holds them to be given back.
    fn hold(&self, key: CountKey, hits: u64) -> (Taken, Option<Hold<'_>>);

    /// Returns the result for these hits, and takes none.
    fn look(&self, key: CountKey, hits: u64) -> Taken;

    /// Takes hits that come after the fact: the tokens that are not there are owed. The wait after
    /// that is the one for the next token.
    fn charge(&self, key: CountKey, hits: u64) -> Taken;

    fn give_back(&self, key: CountKey, hits: u64) -> Taken;

    fn take_up_to(&self, key: CountKey, tokens: u64);

    fn holds(&self, key: CountKey) -> bool;

    fn forget(&self, key: CountKey);

    /// Returns a reading of the clock, in nanoseconds.
    fn now(&self) -> u64;

    fn stats(&self) -> Stats;

    /// Forgets the keys that have used nothing.
    fn sweep(&self);

    /// Returns the state of all keys, for a later process.
    fn save(&self) -> Vec<u8>;

    fn restore(&self, state: &[u8]) -> Result<(), NotRestored>;

    /// Calls a function with each key and its remaining tokens.
    fn each(&self, see: &mut dyn FnMut(CountKey, u64));

    /// Takes the tokens of a key that are more than these.
    fn lower(&self, key: CountKey, remaining: u64) {
        let more = self.look(key, 0).remaining.saturating_sub(remaining);
        if more > 0 {
            self.take(key, more);
        }
    }
}

impl<R: Rule> TextTable for HashedKeys<R> {
    fn take(&self, key: CountKey, hits: u64) -> Taken {
        match self.try_acquire_n(&key, hits) {
            Ok(granted) => Taken::granted(granted),
            Err(denied) => Taken::denied(&denied, || self.peek(&key).reset_after()),
        }
    }

    fn hold(&self, key: CountKey, hits: u64) -> (Taken, Option<Hold<'_>>) {
        match self.key(&key).n(hits).hold() {
            Ok(hold) => (Taken::granted(hold.granted()), Some(hold)),
            Err(denied) => (Taken::denied(&denied, || self.peek(&key).reset_after()), None),
        }
    }

    fn look(&self, key: CountKey, hits: u64) -> Taken {
        let seen = self.key(&key).n(hits).peek();
        let (is_granted, reset) = (seen.remaining() >= hits, seen.reset_after());
        let wait = if is_granted { reset } else { seen.retry_after().unwrap_or(reset) };
        Taken { is_granted, remaining: seen.remaining(), wait }
    }

    fn charge(&self, key: CountKey, hits: u64) -> Taken {
        let is_granted = self.look(key, hits).is_granted;
        if let Ok(hold) = self.key(&key).n(0).hold() {
            hold.settle(hits);
        }
        Taken { is_granted, ..self.look(key, u64::from(!is_granted)) }
    }

    fn give_back(&self, key: CountKey, hits: u64) -> Taken {
        self.refund(&key, hits);
        self.look(key, 0)
    }

    fn take_up_to(&self, key: CountKey, tokens: u64) {
        let _: Granted = self.key(&key).n(tokens).acquire_up_to();
    }

    fn holds(&self, key: CountKey) -> bool {
        self.contains(&key)
    }

    fn forget(&self, key: CountKey) {
        self.remove(&key);
    }

    fn now(&self) -> u64 {
        RateLimiter::now(self).as_nanos()
    }

    fn stats(&self) -> Stats {
        RateLimiter::stats(self)
    }

    fn sweep(&self) {
        self.evict_idle();
    }

    fn save(&self) -> Vec<u8> {
        RateLimiter::save(self)
    }

    fn restore(&self, state: &[u8]) -> Result<(), NotRestored> {
        RateLimiter::restore(self, state)
    }

    fn each(&self, see: &mut dyn FnMut(CountKey, u64)) {
        self.for_each(|key, seen| see(*key, seen.remaining()));
    }
}
