//! The policies of an outage.

/// The policy for a request that needs the store while it does not answer.
///
/// Tokens at hand are used first. Each decision by the policy is counted, and shows in its
/// [`source`](crate::Sourced::source).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum OnOutage {
    /// Limits each key by a bucket or a window of this process, with a share of the limit.
    ///
    /// The bucket begins with that share of the tokens that the store can have: those of its last
    /// answer to this process and those earned since, or a burst for a key that it never asked for.
    /// An outage of length `d` admits at most these and `share * rate * d` tokens of a key in a
    /// process, whatever quotas and plans the key has in turn. So a fleet whose shares are 1
    /// together admits at most `burst + rate * d`, beside the tokens that were granted before. When
    /// the store answers again, the tokens are charged there, down to a debt of one burst.
    ///
    /// Of a [window](tollgate::Window) the process grants that share of the tokens that were left
    /// at its last answer, and then that share of the limit in each window. Its windows are by the
    /// clock of the store as of the last answer, late by the way of that answer. The tokens are
    /// charged in the window in which they were granted, if the store answers in it.
    ///
    /// A key is known until its bucket is full, or the tokens of its window do not count any more.
    /// All keys beyond [`max_keys`](crate::DistributedBuilder::max_keys) share one such bucket or
    /// window. It begins full, and later outages go on with it. Its grants are not charged.
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
