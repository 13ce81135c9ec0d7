//! The policies of an outage.

/// The policy for a request that needs the store while it does not answer.
///
/// Tokens at hand are used first. Each decision by the policy is counted, and shows in its
/// [`source`](crate::Sourced::source).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum OnOutage {
    /// Limits each key by a bucket of this process, with a share of the quota.
    ///
    /// The bucket begins with that share of the tokens last known to be in the store. An outage of
    /// length `d` admits at most these and `share * rate * d` tokens of a key in a process. When
    /// the store answers again, they are charged there, down to a debt of one burst.
    ///
    /// All keys beyond [`max_keys`](crate::DistributedBuilder::max_keys) share one such bucket. It
    /// begins full, with the quota of the first of their requests, and later outages go on with it
    /// until the quota of the limiter changes. Its grants are not charged.
    Local {
        /// The share of this process, above 0 and at most 1: `1 / n` for a fleet of `n`.
        share: f64,
    },
    /// Refuses each request, with [`Reason::Unavailable`](tollgate::Reason::Unavailable) and the
    /// time to the next probe.
    Deny,
    /// Grants each request. When the store answers again, the tokens are charged there, down to a
    /// debt of one burst.
    Allow,
}
