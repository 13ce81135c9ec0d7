//! The plan of a request to a layer.

use crate::limiter::plan::Plan;
use crate::limiter::rule::Rule;
use crate::rule::rate::Quota;
use crate::word::plan::PlanTerms;

/// The plan of a request: a [`Plan`] of the limiter, or the quota itself for a limiter that is
/// [asked](super::AnyLimiter::asked).
#[derive(Clone, Copy, Debug)]
pub struct LayerPlan(pub(super) PlanTerms);

impl<R: Rule> From<Plan<R>> for LayerPlan {
    fn from(plan: Plan<R>) -> LayerPlan {
        LayerPlan(plan.terms)
    }
}

impl From<Quota> for LayerPlan {
    fn from(quota: Quota) -> LayerPlan {
        LayerPlan(PlanTerms::of_no_limiter(quota))
    }
}
