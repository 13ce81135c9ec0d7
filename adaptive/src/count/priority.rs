//! Priorities, as shares of a limit.

/// The priority of a request: the share of a limit that it may use.
///
/// As the requests in flight grow, the lower priorities are refused first. Every share admits at
/// least one request.
///
/// | priority | share of the limit |
/// |---|---|
/// | `Critical` | all of it |
/// | `Default` | 230/256 |
/// | `Sheddable` | 3/4 |
/// | `Background` | 1/2 |
///
/// Derive the priority from the route or the account. A header, such as `Priority` of RFC 9218, is
/// the client's to write: every client would be critical.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Work of a batch, which can wait for hours.
    Background,
    /// Work that its caller can do without, such as a suggestion.
    Sheddable,
    /// Any other request.
    #[default]
    Default,
    /// Requests without which nothing works, such as a health check or a payment.
    Critical,
}

impl Priority {
    /// All priorities, the lowest first.
    pub const ALL: [Priority; 4] =
        [Priority::Background, Priority::Sheddable, Priority::Default, Priority::Critical];

    /// Returns the share in 256ths.
    #[inline]
    pub(crate) const fn share(self) -> u16 {
        match self {
            Priority::Critical => 256,
            Priority::Default => 230,
            Priority::Sheddable => 192,
            Priority::Background => 128,
        }
    }

    /// Returns the name, such as `default`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Priority::Critical => "critical",
            Priority::Default => "default",
            Priority::Sheddable => "sheddable",
            Priority::Background => "background",
        }
    }
}
