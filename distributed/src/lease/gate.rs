//! Rules that no store counts: nothing is refused, or all.

use std::time::Duration;

use tollgate::{AnyRule, Denied, Granted, Quota, Reason};

/// Whether the tokens decide, or the name of the rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Counted,
    /// [`Quota::UNLIMITED`].
    Open,
    /// [`Quota::BLOCKED`], or a window that is blocked.
    Shut,
}

impl Gate {
    pub(crate) fn of(rule: AnyRule) -> Gate {
        match rule {
            AnyRule::Quota(Quota::UNLIMITED) => Gate::Open,
            AnyRule::Quota(Quota::BLOCKED) => Gate::Shut,
            AnyRule::Window(window) if window.limit() == 0 => Gate::Shut,
            _ => Gate::Counted,
        }
    }

    /// Returns a rule of the same kind that a store counts.
    pub(super) fn usual(rule: AnyRule) -> AnyRule {
        match rule {
            AnyRule::Quota(_) => Quota::per_second(1_000).into(),
            AnyRule::Window(window) => window.with_limit(1_000).unwrap_or(window).into(),
        }
    }

    /// Returns the decision on `n` tokens; `None` if the tokens decide.
    pub(crate) fn decide(self, n: u64) -> Option<Result<Granted, Denied>> {
        match self {
            Gate::Counted => None,
            Gate::Open => Some(Ok(Granted::from_parts(n, u64::MAX, Duration::ZERO))),
            Gate::Shut if n == 0 => Some(Ok(Granted::from_parts(0, 0, Duration::ZERO))),
            Gate::Shut => Some(Err(Denied::from_parts(Reason::Blocked, n, 0, None))),
        }
    }
}
