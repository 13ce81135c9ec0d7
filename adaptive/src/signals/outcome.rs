//! The outcome of an admitted request.

use crate::signals::counters::Answered;

/// The outcome of an admitted request, for [`Flight::note`](crate::Flight::note).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// An answer. Its latency is a sample.
    Answered,
    /// A failure by a lack of capacity, such as a timeout, a refused connection, or 503. It is a
    /// sample as slow as can be.
    Overloaded,
    /// Another failure, such as 500. It is no sample: a fast error does not raise the limit.
    Failed,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Outcome; 3] = [Outcome::Answered, Outcome::Overloaded, Outcome::Failed];

    /// Returns the name, such as `answered`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Answered => "answered",
            Outcome::Overloaded => "overloaded",
            Outcome::Failed => "failed",
        }
    }

    pub(crate) fn answered(self) -> Answered {
        match self {
            Outcome::Answered => Answered::InTime,
            Outcome::Overloaded => Answered::Overloaded,
            Outcome::Failed => Answered::Failed,
        }
    }
}
