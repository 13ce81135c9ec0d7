//! The treatment of requests while the store does not answer.

/// The decision on a request that needs the store while it does not answer.
///
/// Tokens of a lease are used first. Each decision is counted, and its
/// [`source`](crate::Sourced::source) tells it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum OnOutage {
    /// Each process limits by a share of the quota, in a bucket of its own.
    ///
    /// The bucket begins with that share of the tokens that the store was known to have. An outage
    /// of length `d` admits at most these and `share * rate * d` tokens in a process. When the
    /// store answers again, they are charged there, down to a debt of one burst.
    Local {
        /// The share of this process, above 0 and at most 1: `1 / n` for a fleet of `n`.
        share: f64,
    },
    /// Refuses, with [`Reason::Unavailable`](tollgate::Reason::Unavailable).
    Deny,
    /// Grants everything. When the store answers again, the tokens are charged there.
    Allow,
}
