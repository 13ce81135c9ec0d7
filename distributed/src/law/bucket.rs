//! One step of a shared bucket: the law of every store.
//!
//! Tests compare the steps in Lua and in SQL with this function, number by number.

use super::amount::{Amount, StoreAnswer};
use super::spec::{MAX_CREDITS, MAX_SKEW_US, Spec};

/// A bucket as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The level at `last_us`, in credits; negative in debt.
    pub credits: i64,
    /// The server's time of the level, in microseconds since 1970.
    pub last_us: u64,
    /// The credits of a token when the bucket was written.
    pub per_token: u64,
}

impl Bucket {
    /// Returns the bucket of a key that is not stored: full.
    #[must_use]
    pub fn full(spec: &Spec, now_us: u64) -> Bucket {
        Bucket { credits: spec.capacity() as i64, last_us: now_us, per_token: spec.per_token() }
    }

    /// Returns the bucket at a time, under a spec that may be a new one.
    ///
    /// After a step back of the clock by a second or less, the bucket earns nothing until
    /// `last_us`. After a longer one, the new time becomes `last_us`: the bucket earns nothing now,
    /// and refills from there.
    #[must_use]
    pub fn at(&self, spec: &Spec, now_us: u64) -> Bucket {
        let credits = self.level_under(spec);
        let refilled = match now_us.checked_sub(self.last_us) {
            None if self.is_ahead(now_us) => (credits, now_us),
            None => (credits, self.last_us),
            Some(elapsed) => match elapsed / spec.tick_us() {
                ticks if ticks >= spec.fill_ticks() => (spec.capacity() as i64, now_us),
                ticks => match credits + (ticks * spec.per_tick()) as i64 {
                    // A full bucket does not keep the part of a tick.
                    level if level >= spec.capacity() as i64 => (level, now_us),
                    level => (level, now_us - elapsed % spec.tick_us()),
                },
            },
        };
        let credits = refilled.0.min(spec.capacity() as i64);
        Bucket { credits, last_us: refilled.1, per_token: spec.per_token() }
    }

    /// Tells whether the clock went back by more than the longest step after which a bucket waits.
    fn is_ahead(&self, now_us: u64) -> bool {
        self.last_us.saturating_sub(now_us) > MAX_SKEW_US
    }

    /// Returns the level in the credits of a spec, not below its floor: whole tokens stay whole,
    /// and a part of a token is rounded down.
    fn level_under(&self, spec: &Spec) -> i64 {
        // A stored number may have any value.
        let before = self.per_token.clamp(1, MAX_CREDITS) as i64;
        let (after, most) = (spec.per_token() as i64, MAX_CREDITS as i64);
        let credits = self.credits.clamp(-most, most);
        if before == after {
            return credits.max(-(spec.floor() as i64));
        }
        let (tokens, part) = (credits.div_euclid(before), credits.rem_euclid(before));
        let part = i128::from(part) * i128::from(after) / i128::from(before);
        let level = i128::from(tokens) * i128::from(after) + part;
        level.clamp(-i128::from(spec.floor()), i128::from(spec.capacity())) as i64
    }

    /// Decides a call. Returns the bucket to store, unless the call changes nothing.
    ///
    /// After a step back of the clock by more than a second, a call stores the new time even if it
    /// grants nothing: so the refill begins at once.
    ///
    /// A spec with a debt is for leases. A call is then granted at most half of the tokens there,
    /// the debt included, or `min` if that is more: later callers find some.
    #[must_use]
    pub fn step(
        stored: Option<Bucket>,
        spec: &Spec,
        now_us: u64,
        amount: Amount,
    ) -> (Option<Bucket>, StoreAnswer) {
        let went_back = stored.is_some_and(|bucket| bucket.is_ahead(now_us));
        let mut bucket = stored.map_or_else(|| Bucket::full(spec, now_us), |bucket| bucket.at(spec, now_us));
        let per_token = spec.per_token() as i64;
        if amount.spent > 0 {
            let spent = amount.spent.min((spec.capacity() + spec.floor()) / spec.per_token() + 1);
            bucket.credits = (bucket.credits - spent as i64 * per_token).max(-(spec.floor() as i64));
        }
        let granted = if amount.max < 0 {
            let back =
                amount.max.max(-(spec.quota().capacity() as i64) - spec.floor() as i64 / per_token - 1);
            bucket.credits = (bucket.credits - back * per_token).min(spec.capacity() as i64);
            amount.max
        } else {
            let there = spec.tokens(bucket.credits + spec.debt_credits() as i64) as i64;
            let share = if spec.debt() > 0 { amount.min.max(there / 2) } else { there };
            let granted = if there >= amount.min { amount.max.min(share) } else { 0 };
            bucket.credits -= granted * per_token;
            granted
        };
        let changed = granted != 0 || amount.spent > 0 || went_back;
        (
            changed.then_some(bucket),
            StoreAnswer { granted, credits: bucket.credits, now_us, ..StoreAnswer::default() },
        )
    }
}
