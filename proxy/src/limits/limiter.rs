//! The buckets or windows of the keys of one limit.

use tollgate::{AnyRule, InvalidRule, Quota, RateLimiter, Rule, Window};
use tollgate_http::AnyLimiter;

use super::hasher::KeyHasher;
use super::keys::Key;
use super::store::{Fleet, SharedLimiter};
use crate::config::store::counts;

/// How far up a limit may go while it is in use, in rate and burst: a bucket's word is laid out for
/// it.
const HEADROOM: [u64; 3] = [16, 4, 2];

/// A limiter of this process.
type KeyLimiter<R> = RateLimiter<Key, R, KeyHasher>;

/// The keys' buckets or windows, with the largest rule that they have room for.
#[derive(Clone)]
pub(crate) enum Limiter {
    Buckets(KeyLimiter<Quota>, Room<Quota>),
    Windows(KeyLimiter<Window>, Room<Window>),
    /// Those that a fleet shares, with the largest rule that the store counts.
    Shared(SharedLimiter, AnyRule),
}

/// The home of the keys of a limit that no fleet shares.
#[derive(Clone, Copy)]
pub(crate) struct KeyPlace {
    /// The most keys, in a table; `None` is a map.
    pub(crate) most: Option<usize>,
    pub(crate) hasher: KeyHasher,
}

/// The rules and the number of keys by which a limiter was built.
#[derive(Clone, Copy)]
pub(crate) struct Room<R> {
    first: R,
    most: R,
    keys: Option<usize>,
}

/// The rule and the number of keys of a limiter at first. One that was built by both takes its
/// saved state.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct BuiltBy {
    pub(super) rule: AnyRule,
    pub(super) keys: Option<usize>,
}

impl<R: Copy + Into<AnyRule>> Room<R> {
    fn built_by(&self) -> BuiltBy {
        BuiltBy { rule: self.first.into(), keys: self.keys }
    }
}

impl Limiter {
    /// Returns the limiter of a rule, under this name in the store of a fleet.
    pub(crate) fn new(
        name: &str,
        rule: AnyRule,
        keys: KeyPlace,
        fleet: Option<&Fleet>,
    ) -> Result<Limiter, String> {
        let no_memory = |why: InvalidRule| format!("limit {name}: keys_per_limit: {why}");
        match (rule, fleet) {
            (AnyRule::Quota(quota), None) => {
                let (limiter, room) = with_room(quota, larger(quota), keys).map_err(no_memory)?;
                Ok(Limiter::Buckets(limiter, room))
            }
            (AnyRule::Window(window), None) => Limiter::of_windows(window, keys).map_err(no_memory),
            (_, Some(fleet)) => {
                let larger: Vec<AnyRule> = match rule {
                    AnyRule::Quota(quota) => larger(quota).map(Into::into).collect(),
                    AnyRule::Window(window) => larger_windows(window).map(Into::into).collect(),
                };
                let is_counted = |most: &AnyRule| counts(*most, fleet.settings.exact).is_ok();
                let most = larger.into_iter().find(is_counted).unwrap_or(rule);
                Ok(Limiter::Shared(fleet.limiter(name, rule)?, most))
            }
        }
    }

    /// A sliding window keeps its sub-windows: room for a larger limit would make them longer.
    fn of_windows(window: Window, keys: KeyPlace) -> Result<Limiter, InvalidRule> {
        let as_fine = |most: &Window| most.sub_window() == window.sub_window();
        let (limiter, room) = with_room(window, larger_windows(window).filter(as_fine), keys)?;
        Ok(Limiter::Windows(limiter, room))
    }

    pub(crate) fn any(&self) -> AnyLimiter<Key> {
        match self {
            Limiter::Buckets(limiter, _) => limiter.clone().into(),
            Limiter::Windows(limiter, _) => limiter.clone().into(),
            Limiter::Shared(limiter, _) => limiter.any(),
        }
    }

    /// Returns the limiter that a fleet shares, if it is one.
    pub(crate) fn shared(&self) -> Option<&SharedLimiter> {
        match self {
            Limiter::Shared(limiter, _) => Some(limiter),
            _ => None,
        }
    }

    pub(crate) fn rule(&self) -> AnyRule {
        match self {
            Limiter::Buckets(limiter, _) => limiter.rule().into(),
            Limiter::Windows(limiter, _) => limiter.rule().into(),
            Limiter::Shared(limiter, _) => limiter.rule(),
        }
    }

    /// Puts another rule of the same kind in force. The sentence says why it cannot be.
    pub(crate) fn set_rule(&self, rule: AnyRule) -> Result<(), String> {
        match (self, rule) {
            (Limiter::Buckets(limiter, _), AnyRule::Quota(quota)) => {
                limiter.set_rule(quota).map_err(|why| why.to_string())
            }
            (Limiter::Windows(limiter, room), AnyRule::Window(window))
                if has_places_of(room.most.into(), rule) =>
            {
                limiter.set_rule(window).map_err(|why| why.to_string())
            }
            (Limiter::Shared(limiter, most), _) if has_places_of(*most, rule) => limiter.set_rule(rule),
            _ => Err(format!("{rule} counts in another way than {}", self.rule())),
        }
    }

    /// The largest rule that there is room for.
    pub(crate) fn most(&self) -> AnyRule {
        match self {
            Limiter::Buckets(_, Room { most, .. }) => (*most).into(),
            Limiter::Windows(_, Room { most, .. }) => (*most).into(),
            Limiter::Shared(_, most) => *most,
        }
    }

    /// Returns the state of all keys, for a later process. A store keeps its own.
    pub(super) fn save(&self) -> Option<(BuiltBy, Vec<u8>)> {
        match self {
            Limiter::Buckets(limiter, room) => Some((room.built_by(), limiter.save())),
            Limiter::Windows(limiter, room) => Some((room.built_by(), limiter.save())),
            Limiter::Shared(..) => None,
        }
    }

    pub(super) fn has_keys(&self) -> bool {
        match self {
            Limiter::Buckets(limiter, _) => !limiter.is_empty(),
            Limiter::Windows(limiter, _) => !limiter.is_empty(),
            Limiter::Shared(..) => false,
        }
    }

    pub(super) fn is_built_by(&self, other: BuiltBy) -> bool {
        match self {
            Limiter::Buckets(_, room) => room.built_by() == other,
            Limiter::Windows(_, room) => room.built_by() == other,
            Limiter::Shared(..) => false,
        }
    }

    pub(super) fn restore(&self, state: &[u8]) -> Result<(), String> {
        let restored = match self {
            Limiter::Buckets(limiter, _) => limiter.restore(state),
            Limiter::Windows(limiter, _) => limiter.restore(state),
            Limiter::Shared(..) => return Err("the limit is in a store".to_owned()),
        };
        restored.map_err(|why| why.to_string())
    }

    pub(crate) fn left(&self, key: &Key) -> u64 {
        match self {
            Limiter::Buckets(limiter, _) => limiter.peek(key).remaining(),
            Limiter::Windows(limiter, _) => limiter.peek(key).remaining(),
            Limiter::Shared(limiter, _) => limiter.left(key),
        }
    }
}

/// Returns the limiter of a rule, with the first of some larger rules that there is room for. The
/// error is one of memory for the keys.
fn with_room<R: Rule>(
    rule: R,
    mut larger: impl Iterator<Item = R>,
    keys: KeyPlace,
) -> Result<(KeyLimiter<R>, Room<R>), InvalidRule> {
    let with_room = larger.find_map(|most| Some((RateLimiter::builder(rule).headroom(most).ok()?, most)));
    let (builder, most) = with_room.unwrap_or_else(|| (RateLimiter::builder(rule), rule));
    let builder = builder.hasher(keys.hasher);
    let builder = match keys.most {
        Some(most) => builder.max_keys(most).inline()?,
        None => builder,
    };
    Ok((builder.build(), Room { first: rule, most, keys: keys.most }))
}

/// Tells whether counts under a rule go on under another one: a quota, or the window with another
/// limit.
fn has_places_of(before: AnyRule, rule: AnyRule) -> bool {
    match (before, rule) {
        (AnyRule::Quota(_), AnyRule::Quota(_)) => true,
        (AnyRule::Window(before), AnyRule::Window(window)) => before.with_limit(window.limit()) == Ok(window),
        _ => false,
    }
}

/// Returns the window with larger limits, the largest first.
fn larger_windows(window: Window) -> impl Iterator<Item = Window> {
    HEADROOM.iter().filter_map(move |times| window.with_limit(window.limit().checked_mul(*times)?).ok())
}

/// Returns larger quotas, the largest first.
fn larger(quota: Quota) -> impl Iterator<Item = Quota> {
    HEADROOM.iter().filter_map(move |times| {
        let tokens = quota.tokens().checked_mul(*times)?;
        let burst = quota.capacity().checked_mul(*times)?;
        Quota::try_per(tokens, quota.period()).and_then(|rate| rate.try_burst(burst)).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_common::past::CountTable;

    const RULES: [&str; 2] = ["1/h burst 5", "5/h sliding"];

    fn limiter(rule: &str, most: Option<usize>, hasher: KeyHasher) -> Limiter {
        let rule = rule.parse().expect("a rule");
        Limiter::new("a", rule, KeyPlace { most, hasher }, None).expect("no store is asked")
    }

    fn key(last: u32) -> Key {
        Key::Address(std::net::Ipv4Addr::from(last).into())
    }

    /// A table has a third more slots than it has room for keys.
    #[test]
    fn a_limit_with_a_number_of_keys_holds_no_more() {
        for rule in RULES {
            let limiter = limiter(rule, Some(100), KeyHasher::new());
            (0..10_000).for_each(|last| limiter.take(&key(last), 1));
            let keys = match limiter {
                Limiter::Buckets(limiter, _) => limiter.len(),
                Limiter::Windows(limiter, _) => limiter.len(),
                Limiter::Shared(..) => unreachable!("there is no store"),
            };
            assert!((100..200).contains(&keys), "{keys} keys");
        }
    }

    #[test]
    fn a_table_is_restored_by_its_secret_whatever_its_room_is() {
        for rule in RULES {
            let [hasher, other] = [KeyHasher::new(), KeyHasher::new()];
            let saved = |most| {
                let limiter = limiter(rule, most, hasher);
                (0..20).for_each(|last| limiter.take(&key(last), 1 + u64::from(last % 5)));
                limiter.save().expect("it is no store").1
            };
            let (table, map) = (saved(Some(100)), saved(None));
            for (state, most, hasher) in
                [(&table, Some(1_000_000), hasher), (&table, Some(20), hasher), (&map, None, other)]
            {
                let restored = limiter(rule, most, hasher);
                restored.restore(state).expect("it has room");
                for last in 0..20 {
                    assert_eq!(restored.left(&key(last)), 4 - u64::from(last % 5), "{rule}, {most:?}");
                }
            }
            let small = limiter(rule, Some(1), hasher);
            small.restore(&table).expect("keys without room share");
            (0..20).for_each(|last| assert!(small.left(&key(last)) <= 4 - u64::from(last % 5)));
            for (state, most, hasher, why) in [
                (&table, Some(100), other, "under another hasher"),
                (&table, None, hasher, "of a table of keys, and the limiter is a map of keys"),
                (&map, Some(100), hasher, "of a map of keys, and the limiter is a table of keys"),
            ] {
                let restored = limiter(rule, most, hasher);
                let error = restored.restore(state).expect_err(why);
                assert!(error.contains(why) && !restored.has_keys(), "{error}");
            }
        }
    }
}
