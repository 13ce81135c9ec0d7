//! The quota of some keys in the ideal bucket: the limiter's own earnings, times a ratio.

use super::{Ideal, Windows};

/// A plan that earns `up / down` of the own quota's earnings, from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    up: i128,
    down: i128,
    pub(super) burst: u64,
    /// The own quota's earnings at that moment.
    since: i128,
}

/// A bound on all earnings, far from overflow.
const MOST: i128 = i128::MAX >> 3;

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Plan {
    /// Returns the plan's share of `earned`, rounded down.
    fn times(&self, earned: i128) -> i128 {
        let (whole, rest) = (earned / self.down, earned % self.down);
        let product = whole.checked_mul(self.up).map(|whole| whole + rest * self.up / self.down);
        product.unwrap_or(MOST).min(MOST)
    }

    /// Returns the own earnings in which the plan earns `level`, rounded up.
    fn over(&self, level: i128) -> i128 {
        let (whole, rest) = (level / self.up, level % self.up);
        let rest = (rest * self.down + self.up - 1) / self.up;
        whole.checked_mul(self.down).map_or(MOST, |whole| whole + rest).min(MOST)
    }
}

impl Ideal {
    /// Returns a plan that is made now, of `tokens` in `nanos`.
    pub fn plan(&mut self, tokens: u64, nanos: u64, burst: u64) -> Plan {
        self.plans = true;
        let (up, down) = (i128::from(tokens) * self.nanos, self.rate.tokens * i128::from(nanos));
        let all = gcd(up, down);
        let plan = Plan { up: up / all, down: down / all, burst, since: self.changed.unwrap_or(-MOST) };
        let fill = plan.over(self.units(self.unit.debt + burst)) / self.tick();
        self.longest = self.longest.max(fill);
        plan
    }

    /// Starts anew after a removal: full, or at the initial level.
    pub fn begin_anew(&mut self) {
        (self.level, self.at, self.used) = (0, None, None);
        (self.jumps, self.changes, self.slack) = (0, 0, 0);
        self.serial += 1;
    }

    /// Puts the next steps under a plan, or under the own quota.
    pub fn under(&mut self, plan: Option<Plan>) {
        self.plan = plan;
    }

    /// Returns the plan's earnings between two moments, each given by the own earnings until then.
    pub(super) fn came(&self, from: i128, to: i128) -> i128 {
        match self.plan {
            None => to - from,
            Some(plan) => plan.times((to - from.max(plan.since)).max(0)),
        }
    }

    /// Returns the own earnings until the plan begins.
    pub(super) fn early(&self, at: i128) -> i128 {
        self.plan.map_or(0, |plan| (plan.since - at).max(0))
    }

    pub(super) fn times(&self, earned: i128) -> i128 {
        self.plan.map_or(earned, |plan| plan.times(earned) + 1)
    }

    pub(super) fn over(&self, level: i128) -> i128 {
        self.plan.map_or(level, |plan| plan.over(level))
    }

    /// Returns the earnings of a tick of the own quota, under the plan or under the own quota, the
    /// larger.
    pub(super) fn grain(&self) -> i128 {
        self.times(self.tick()).max(self.tick())
    }

    /// Returns whether all readings up to `due` count as time since the stamp, or as jitter. Beyond
    /// that an own quota has refilled. A plan that has not begun has earned nothing, and no wait
    /// under it is exact.
    pub fn is_straight_until(&self, now: u64, due: u64) -> bool {
        let Windows { jitter, jump } = self.windows;
        let straight = -jitter..self.range() - jitter - jump;
        self.at
            .is_none_or(|at| [now, due].iter().all(|n| straight.contains(&(self.moment(*n).tick - at.tick))))
    }

    /// Returns whether ticks never wrap, however much faster the quota becomes within bounds. Then
    /// they always tell the time before a plan.
    pub fn ticks_are_slow(&self) -> bool {
        self.rate.tokens << (self.unit.fraction + 6) < self.nanos << self.unit.scale
    }

    /// Returns the error of the plan: a tick and a unit, at the start and at the end of its time.
    pub(super) fn loose(&self) -> i128 {
        self.left_by(self.plan)
    }

    /// Returns the error of a level that a plan, or the own quota, has left.
    pub(super) fn left_by(&self, plan: Option<Plan>) -> i128 {
        plan.map_or(0, |_| self.loose_under(plan))
    }

    /// Returns the error of a level that another pace has left.
    pub(super) fn moving(&self) -> i128 {
        if self.used == self.plan { 0 } else { self.loose_under(self.used) + self.loose() }
    }

    fn loose_under(&self, plan: Option<Plan>) -> i128 {
        let (tick, unit) = (self.tick(), self.tick() >> self.unit.scale);
        plan.map_or(tick + unit, |plan| 2 * (plan.times(tick) + 1 + unit))
    }
}
