//! The two outcomes that are timed apart.

use tollgate::Quota;

/// What a timed loop gets: nothing but grants, or nothing but refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// 10^9 tokens/s into a bucket of 10^6: refills faster than 2 threads can take.
    Granted,
    /// A token an hour into a bucket of 1, which was taken before: empty for as long as a run lasts.
    Refused,
}

impl Path {
    /// Both.
    pub const ALL: [Path; 2] = [Path::Granted, Path::Refused];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Path::Granted => "granted",
            Path::Refused => "refused",
        }
    }

    /// The quota of its limiters.
    #[must_use]
    pub fn quota(self) -> Quota {
        match self {
            Path::Granted => Quota::per_second(1_000_000_000).burst(1_000_000),
            Path::Refused => Quota::per_hour(1).burst(1),
        }
    }

    /// Checks that all of `decisions`, made after a first token was taken, went this way.
    ///
    /// # Panics
    ///
    /// If one did not.
    pub fn check(self, decisions: u64, granted: u64) {
        let expected = match self {
            Path::Granted => decisions,
            Path::Refused => 0,
        };
        assert_eq!(granted, expected, "granted, of {decisions} decisions that should all be {}", self.name());
    }
}
