//! Another quota for some keys.

use std::sync::Arc;
use std::time::Duration;

use papaya::HashMap;
use tollgate::Quota;

use crate::law::spec::InvalidSpec;
use crate::lease::terms::Terms;

/// Another quota for some keys of a limiter, from
/// [`DistributedLimiter::plan`](crate::DistributedLimiter::plan).
///
/// A key that changes its plan keeps its whole tokens, up to the new burst. Its lease under the old
/// plan is given back at each change.
#[derive(Clone, Debug)]
pub struct Plan(pub(crate) Arc<Terms>);

impl Plan {
    /// Returns the quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.0.quota()
    }
}

/// The most plans that are kept. The next one drops all of them: a plan in use keeps its quota.
const MAX_PLANS: usize = 256;

/// Plans by their quotas.
pub(crate) struct Plans(HashMap<Quota, Plan>);

impl Plans {
    pub(crate) fn new() -> Plans {
        Plans(HashMap::new())
    }

    /// Returns the plan of a quota, which is computed once while it is kept.
    pub(crate) fn of(&self, quota: Quota, horizon: Duration) -> Result<Plan, InvalidSpec> {
        let plans = self.0.pin();
        if let Some(plan) = plans.get(&quota) {
            return Ok(plan.clone());
        }
        let plan = Plan(Arc::new(Terms { is_planned: true, ..Terms::new(quota, horizon)? }));
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        plans.insert(quota, plan.clone());
        Ok(plan)
    }
}
