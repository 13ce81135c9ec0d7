//! A request that is decided together with those of other limits.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tollgate::{Denied, Granted};

use super::Slot;
use super::calls::time_until;
use super::count_calls::GIVEN_BACK;
use crate::law::amount::StoreAnswer;
use crate::law::any_law::Law;
use crate::law::count_spec::CountSpec;
use crate::lease::lease_time::nanos;
use crate::lease::terms::TermsKind;

impl Slot {
    /// Returns the law of a call for one request: it takes no debt, and no lease.
    pub(crate) fn law_of_one(&self, count: Option<CountSpec>) -> Option<Law> {
        match &self.terms.kind {
            TermsKind::Bucket(bucket) => Some(bucket.without_debt.into()),
            TermsKind::Window(_) => count.map(Law::from),
        }
    }

    /// Notes the answer to a request for `n` tokens, of which `held` were at hand. The call was
    /// sent at `sent`. Returns the decision; a grant holds if all other requests are granted.
    pub(crate) fn end_joint(
        &self,
        (n, held): (u64, u64),
        (law, answer): (Law, StoreAnswer),
        sent: u64,
    ) -> Result<Granted, Denied> {
        let (mut state, now) = (self.state(), self.lease.now());
        *self.key.fallback() = None;
        let granted = u64::try_from(answer.granted).unwrap_or(0);
        let missing = n - held;
        let left = match &law {
            Law::Bucket(spec) => {
                self.key.shadow.tell(spec, answer.credits, sent);
                spec.tokens(answer.credits)
            }
            Law::Count(_) => u64::try_from(answer.credits).unwrap_or(0),
        };
        let is_refused = missing > left + granted;
        let wait = match &law {
            Law::Bucket(spec) => {
                let wait = if is_refused { time_until(spec, answer, missing as i64) } else { 0 };
                self.key.block(missing, wait, now);
                wait
            }
            Law::Count(_) => {
                let rest = nanos(Duration::from_micros(answer.edge_us.saturating_sub(answer.now_us)));
                let until = sent.saturating_add(rest);
                // An answer of an earlier window may be overtaken by one of the present window.
                if answer.edge_us >= state.back_of {
                    self.key.tell_window(answer, until, sent);
                    self.enter(&mut state, answer.edge_us, until);
                    state.of_window += granted;
                    let pause = self.idle().saturating_add(GIVEN_BACK);
                    self.key.block_window(is_refused, pause, left, now);
                }
                until.saturating_sub(now)
            }
        };
        self.granted.fetch_add(granted, Relaxed);
        match is_refused {
            true => Err(self.deny(n, Duration::from_nanos(wait))),
            false => Ok(self.told(n, left.saturating_add(self.lease.matured()))),
        }
    }
}
