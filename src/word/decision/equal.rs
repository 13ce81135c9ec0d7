//! Equality of decisions: by what they tell, and not by the moment or the counter that they keep.

use super::{Denied, Granted};

impl PartialEq for Granted {
    fn eq(&self, other: &Granted) -> bool {
        let told = |granted: &Granted| {
            (granted.tokens, granted.remaining, granted.next_token(), granted.reset_after())
        };
        told(self) == told(other)
    }
}

impl Eq for Granted {}

impl PartialEq for Denied {
    fn eq(&self, other: &Denied) -> bool {
        let told = |denied: &Denied| {
            (denied.reason, denied.asked, denied.remaining, denied.retry_after(), denied.bound())
        };
        told(self) == told(other)
    }
}

impl Eq for Denied {}
