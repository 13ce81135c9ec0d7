//! The refusal of a request that found no place.

use std::error::Error;
use std::fmt;

use crate::count::word::FlightWord;

/// The refusal of a request: no place is free, or the limiter has no room for a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Overloaded {
    limit: u32,
    /// 0 for a new key without room, and in a pause: any other refusal is beside a request in
    /// flight.
    in_flight: u32,
}

impl Overloaded {
    #[inline]
    pub(crate) fn by(word: FlightWord) -> Overloaded {
        Overloaded::new(word.limit(), word.count())
    }

    #[inline]
    pub(crate) fn new(limit: u32, in_flight: u32) -> Overloaded {
        Overloaded { limit, in_flight }
    }

    /// Returns the limit at the refusal. The priority of a request has a share of it.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the number of requests in flight; 0 for a new key without room, and perhaps in a
    /// pause.
    ///
    /// Of a key it is at least the limit: a look just after the refusal may have counted others.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns whether the key is new and the limiter has no room for it: the call found only keys
    /// with requests in flight.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.in_flight == 0 && self.limit > 0
    }
}

impl Error for Overloaded {}

impl fmt::Display for Overloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.in_flight, self.limit) {
            (0, 0) => f.write_str("no request is admitted: the limit is 0"),
            (0, _) => f.write_str("no room for a new key"),
            (count, limit) => write!(f, "{count} requests are in flight, and the limit is {limit}"),
        }
    }
}
