//! A place of a key in flight: the guard, and the refusal.

use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::Ledger;
use crate::limiter::inner::Inner;

/// The place of a key's request in flight, from
/// [`InflightLimiter::try_enter`](crate::InflightLimiter::try_enter).
///
/// The place is free again when this is dropped, also by a panic or with a cancelled future. The
/// place of a flight that is forgotten by [`mem::forget`](std::mem::forget) is never given back.
#[must_use = "a flight that is dropped leaves"]
pub struct KeyFlight<'a> {
    pub(super) ledger: &'a (dyn Ledger + Send + Sync),
    pub(super) receipt: Receipt,
}

impl Drop for KeyFlight<'_> {
    fn drop(&mut self) {
        self.ledger.settle(&self.receipt, Settle::Refund(1));
    }
}

impl fmt::Debug for KeyFlight<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFlight").finish_non_exhaustive()
    }
}

/// A [`KeyFlight`] that owns a handle of its limiter, for a task; from
/// [`InflightLimiter::try_enter_owned`](crate::InflightLimiter::try_enter_owned).
#[must_use = "a flight that is dropped leaves"]
pub struct OwnedKeyFlight<K: Hash + Eq, S> {
    pub(super) places: Arc<Inner<K, S>>,
    pub(super) receipt: Receipt,
}

impl<K: Hash + Eq, S> Drop for OwnedKeyFlight<K, S> {
    fn drop(&mut self) {
        self.places.keyspace.settle(&self.receipt, Settle::Refund(1));
    }
}

/// Prints no key.
impl<K: Hash + Eq, S> fmt::Debug for OwnedKeyFlight<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedKeyFlight").finish_non_exhaustive()
    }
}

/// The refusal of a request: its key has no place left, or the limiter has no room for the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct KeyOverloaded {
    pub(super) limit: u32,
    /// `None` if the key is new, and the limiter has no room for it.
    pub(super) in_flight: Option<u32>,
}

impl KeyOverloaded {
    /// Returns the limit of each key.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the key's requests in flight; 0 for a new key.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.unwrap_or(0)
    }

    /// Returns whether the key is new and the limiter has no room for it: the call found only keys
    /// with requests in flight.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.in_flight.is_none()
    }
}

impl Error for KeyOverloaded {}

impl fmt::Display for KeyOverloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.in_flight {
            Some(count) => {
                write!(f, "{count} requests of the key are in flight, and the limit is {}", self.limit)
            }
            None => f.write_str("no room for a new key"),
        }
    }
}
