//! Decisions as they are printed: waits as times, and no field of a word.

use std::fmt;

use super::snapshot::Snapshot;
use super::{Denied, Granted};

impl fmt::Debug for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Granted")
            .field("tokens", &self.tokens())
            .field("remaining", &self.remaining())
            .field("reset_after", &self.reset_after())
            .finish()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("remaining", &self.remaining())
            .field("reset_after", &self.reset_after())
            .finish()
    }
}

impl fmt::Debug for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut denied = f.debug_struct("Denied");
        denied.field("reason", &self.reason()).field("asked", &self.asked());
        denied.field("remaining", &self.remaining());
        match self.retry_after() {
            Some(wait) => denied.field("retry_after", &wait),
            None => denied.field("retry_after", &format_args!("None")),
        };
        denied.finish()
    }
}
