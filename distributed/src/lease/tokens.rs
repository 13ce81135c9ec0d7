//! The tokens of a lease, under either law.

use tollgate::{Clock, Denied, Granted, Moment};

use super::ending::EndingTokens;
use super::maturing::MaturingTokens;
use super::terms::{Terms, TermsKind};

/// The tokens of one key that one process holds.
#[expect(clippy::large_enum_variant, reason = "a take of a bucket follows no further pointer")]
pub(crate) enum Lease {
    Bucket(MaturingTokens),
    Window(EndingTokens),
}

impl Lease {
    pub(crate) fn new(terms: &Terms, clock: Clock, origin: Moment) -> Lease {
        match &terms.kind {
            TermsKind::Bucket(terms) => Lease::Bucket(MaturingTokens::new(terms, clock, origin)),
            TermsKind::Window(_) => Lease::Window(EndingTokens::new(clock, origin)),
        }
    }

    /// Returns the real time.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        match self {
            Lease::Bucket(tokens) => tokens.now(),
            Lease::Window(tokens) => tokens.now(),
        }
    }

    /// Takes tokens at hand: those that have matured, or those of the window that runs.
    #[inline]
    pub(crate) fn take(&self, n: u64) -> Result<Granted, Denied> {
        match self {
            Lease::Bucket(tokens) => tokens.take(n),
            Lease::Window(tokens) => tokens.take(n),
        }
    }

    /// Takes the tokens at hand, up to `n`, and returns their number.
    pub(crate) fn take_up_to(&self, n: u64) -> u64 {
        match self {
            Lease::Bucket(tokens) => tokens.take_up_to(n),
            Lease::Window(tokens) => tokens.take_up_to(n),
        }
    }

    /// Takes all tokens at hand.
    pub(crate) fn take_all(&self) -> u64 {
        self.take_up_to(u64::MAX)
    }

    /// Adds tokens that are valid at once.
    pub(crate) fn put(&self, n: u64) {
        match self {
            Lease::Bucket(tokens) => tokens.put(n),
            Lease::Window(tokens) => tokens.put(n),
        }
    }

    /// Returns the tokens at hand.
    pub(crate) fn matured(&self) -> u64 {
        match self {
            Lease::Bucket(tokens) => tokens.matured(),
            Lease::Window(tokens) => tokens.held(),
        }
    }

    /// Returns the tokens that are held, matured or not.
    pub(crate) fn held(&self, terms: &Terms) -> u64 {
        match self {
            Lease::Bucket(tokens) => tokens.held(terms),
            Lease::Window(tokens) => tokens.held(),
        }
    }
}
