//! The policies of a limit with several quotas: plans, and quotas set after the layer was built.

use std::sync::Arc;

use papaya::HashMap;

use crate::http::Policy;
use crate::quota::rate::Quota;

/// The most quotas that are kept. Reaching it drops all of them.
const MAX_QUOTAS: usize = 256;

/// Formatted policies by quota. A reader takes no lock.
pub(crate) struct Policies(HashMap<Quota, Arc<Policy>>);

impl Policies {
    pub(crate) fn new() -> Policies {
        Policies(HashMap::new())
    }

    /// Returns a policy for another quota, formatted for the first request only.
    pub(crate) fn of(&self, policy: &Policy, quota: Quota) -> Arc<Policy> {
        match self.0.pin().get(&quota) {
            Some(made) => made.clone(),
            None => self.make(policy, quota),
        }
    }

    #[cold]
    fn make(&self, policy: &Policy, quota: Quota) -> Arc<Policy> {
        let (made, others) = (Arc::new(policy.with_quota(quota)), self.0.pin());
        if others.len() >= MAX_QUOTAS {
            others.clear();
        }
        others.insert(quota, made.clone());
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_quotas_there_are_few_are_kept() {
        let (policies, policy) = (Policies::new(), Policy::new("a", Quota::per_second(1)).expect("a name"));
        for n in 1..=10 * MAX_QUOTAS as u64 {
            assert_eq!(policies.of(&policy, Quota::per_second(n)).quota(), Quota::per_second(n));
            assert!(policies.0.len() <= MAX_QUOTAS);
        }
    }
}
