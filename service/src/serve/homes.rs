//! The home of a limit's counts: the windows of a unit, or the limiter of a text.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tollgate::AnyRule;

use super::key_room::Share;
use super::limiters::{CountKey, MOST, TextLimiter, Windows};
use tollgate_common::past::{Carried, CountTable, Past, Use, longest_use};

/// The table that has the counts of a limit.
#[derive(Clone)]
pub(super) enum Home {
    /// The windows, and the limit of their counts.
    Windows(Arc<Windows>, u32),
    Text(Arc<TextLimiter>),
}

/// The part of a limit that outlives a reload which leaves it in its home.
#[derive(Default)]
pub(super) struct LimitState {
    pub(super) past: Past<Home>,
    pub(super) share: Share,
    /// Hits under it came back, so a refusal of a replica has to count in the others as well.
    pub(super) gives_back: AtomicBool,
}

impl Home {
    /// Returns the name in a saved state. It has no tab.
    pub(super) fn name(&self) -> String {
        match self {
            Home::Windows(windows, requests) => format!("{} {requests}", windows.unit.text()),
            Home::Text(limiter) => limiter.rule.to_string(),
        }
    }
}

impl CountTable for Home {
    type Key = CountKey;

    fn now(&self) -> u64 {
        match self {
            Home::Windows(windows, _) => windows.keys.now().as_nanos(),
            Home::Text(limiter) => limiter.table.now(),
        }
    }

    fn longest_use(&self) -> Duration {
        match self {
            Home::Windows(windows, _) => Duration::from_secs(windows.unit.seconds().into()),
            Home::Text(limiter) => longest_use(limiter.rule),
        }
    }

    fn is(&self, other: &Home) -> bool {
        match (self, other) {
            (Home::Windows(one, _), Home::Windows(other, _)) => Arc::ptr_eq(one, other),
            (Home::Text(one), Home::Text(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    fn counts(&self) -> Carried {
        match self {
            Home::Text(limiter) if matches!(limiter.rule, AnyRule::Quota(_)) => Carried::Both,
            _ => Carried::Used,
        }
    }

    fn capacity(&self) -> u64 {
        match self {
            Home::Windows(..) => MOST,
            Home::Text(limiter) => limiter.capacity,
        }
    }

    fn holds(&self, key: &CountKey) -> bool {
        match self {
            Home::Windows(windows, _) => windows.keys.contains(key),
            Home::Text(limiter) => limiter.table.holds(*key),
        }
    }

    fn use_of(&self, key: &CountKey) -> Use {
        match self {
            Home::Windows(windows, requests) => {
                let used = MOST - windows.keys.peek(key).remaining();
                Use { used, left: u64::from(*requests).saturating_sub(used), owed: 0 }
            }
            Home::Text(limiter) => {
                let looked = limiter.table.look(*key, 0);
                let used = limiter.capacity.saturating_sub(looked.remaining);
                Use { used, left: looked.remaining, owed: limiter.owed(looked) }
            }
        }
    }

    fn take(&self, key: &CountKey, tokens: u64) {
        match self {
            Home::Windows(windows, _) => drop(windows.add(*key, tokens)),
            Home::Text(limiter) => limiter.table.take_up_to(*key, tokens),
        }
    }

    fn owe(&self, key: &CountKey, tokens: u64) {
        if let Home::Text(limiter) = self {
            limiter.table.charge(*key, tokens);
        }
    }

    fn forget(&self, key: &CountKey) {
        match self {
            Home::Windows(windows, _) => drop(windows.keys.remove(key)),
            Home::Text(limiter) => limiter.table.forget(*key),
        }
    }
}
