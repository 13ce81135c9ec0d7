//! The policies of a limit with several rules: plans, caps, rules set after the layer was built.

use std::sync::Arc;

use papaya::HashMap;

use crate::response::policy::Policy;
use tollgate::AnyRule;

/// The most rules that are kept. Reaching it drops all of them.
const MAX_RULES: usize = 256;

/// Formatted policies by rule. A reader takes no lock.
pub(crate) struct Policies(HashMap<AnyRule, Arc<Policy>>);

impl Policies {
    pub(crate) fn new() -> Policies {
        Policies(HashMap::new())
    }

    /// Returns a policy for another rule, formatted for the first request only.
    pub(crate) fn of(&self, policy: &Policy, rule: AnyRule) -> Arc<Policy> {
        match self.0.pin().get(&rule) {
            Some(made) => made.clone(),
            None => self.make(policy, rule),
        }
    }

    #[cold]
    fn make(&self, policy: &Policy, rule: AnyRule) -> Arc<Policy> {
        let (made, others) = (Arc::new(policy.with_rule(rule)), self.0.pin());
        if others.len() >= MAX_RULES {
            others.clear();
        }
        others.insert(rule, made.clone());
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::Quota;

    #[test]
    fn however_many_rules_there_are_few_are_kept() {
        let (policies, policy) = (Policies::new(), Policy::new("a", Quota::per_second(1)).expect("a name"));
        for n in 1..=10 * MAX_RULES as u64 {
            let rule = AnyRule::from(Quota::per_second(n));
            assert_eq!(policies.of(&policy, rule).rule(), rule);
            assert!(policies.0.len() <= MAX_RULES);
        }
    }
}
