//! The times between two connections to the control plane.

use std::time::Duration;

use super::settings::BackOffSettings;
use crate::serve::jitter::between;

/// The waits after connections in a row that brought no configuration.
pub(super) struct BackOff<'s> {
    settings: &'s BackOffSettings,
    before: i32,
}

impl<'s> BackOff<'s> {
    pub(super) fn new(settings: &'s BackOffSettings) -> BackOff<'s> {
        BackOff { settings, before: 0 }
    }

    /// Begins anew.
    pub(super) fn reset(&mut self) {
        self.before = 0;
    }

    /// Returns the next wait: the first interval times the factor for each wait before, within both
    /// intervals. With jitter it is a time from the first interval to that, and to a half above the
    /// first one at least, as the factor may be below 1.
    pub(super) fn next(&mut self) -> Duration {
        let BackOffSettings { first, most, factor, has_jitter } = *self.settings;
        let most = most.max(first);
        let grown = first.as_secs_f64() * factor.powi(self.before);
        // A time that no `Duration` has is above the bound.
        let grown = Duration::try_from_secs_f64(grown).unwrap_or(most).clamp(first, most);
        self.before = self.before.saturating_add(1);
        if has_jitter { between(first, grown.max(first.mul_f64(1.5)).min(most)) } else { grown }
    }
}
