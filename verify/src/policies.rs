//! The limits that the [closed loop](crate::closed_loop) compares.

use std::time::Duration;

use tollgate::Quota;

use tollgate_adaptive::{Fraction, Inflight, InflightBuilder};

use crate::closed_loop::{Outcome, run};
use crate::controllers::{Aimd, Gradient2, ThreeSteps, Unguarded};
use crate::disturbance::{SCENARIOS, Scenario};
use crate::fleet::Fleet;

/// The time within which nine tenths are to be answered.
pub const TARGET: Duration = Duration::from_millis(300);
/// The runs of each scenario, each with random numbers of its own.
pub const SEEDS: u64 = 3;
const SECOND: Duration = Duration::from_secs(1);

/// A limit, by its name in the tables.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The name.
    pub name: &'static str,
    /// Makes the limit, or those of several proxies.
    pub make: fn() -> Fleet,
}

fn adaptive() -> InflightBuilder {
    Inflight::adaptive(TARGET, 1_000)
}

/// No limit.
pub const NOTHING: Policy =
    Policy { name: "nothing", make: || Fleet::new(1, false, |_| Inflight::fixed(1_000_000)) };
/// A limit that is tuned by hand for 32 workers.
pub const FIXED: Policy = Policy { name: "fixed 64", make: || Fleet::new(1, false, |_| Inflight::fixed(64)) };
/// AIMD on latency.
pub const AIMD: Policy = Policy {
    name: "AIMD",
    make: || {
        let rule = || Aimd { ceiling: 1_000, timeout: TARGET };
        Fleet::adaptive(1, false, || adaptive().controller(rule()))
    },
};
/// Gradient2 of Netflix, between 20 and 200.
pub const GRADIENT2: Policy = Policy {
    name: "Gradient2",
    make: || {
        let rule = || Gradient2::new(200);
        Fleet::adaptive(1, false, || {
            Inflight::adaptive(TARGET, 200).floor(20).interval(SECOND).controller(rule())
        })
    },
};
/// Three steps of a ceiling that is half more than a limit tuned by hand.
pub const STEPS: Policy = Policy {
    name: "three steps",
    make: || {
        Fleet::adaptive(1, false, || {
            Inflight::adaptive(TARGET, 96).start(96).interval(SECOND).controller(ThreeSteps)
        })
    },
};
/// The crate's rule without its guard.
pub const UNGUARDED: Policy = Policy {
    name: "tollgate, never in vain",
    make: || {
        let rule = || Unguarded { ceiling: 1_000, target: TARGET };
        Fleet::adaptive(1, false, || adaptive().controller(rule()))
    },
};
/// The crate's rule.
pub const OURS: Policy = Policy { name: "tollgate", make: || Fleet::adaptive(1, false, adaptive) };
/// The crate's rule with a fifth of the requests critical, and a fifth sheddable.
pub const CLASSES: Policy =
    Policy { name: "tollgate, priorities", make: || Fleet::adaptive(1, true, adaptive) };
/// The crate's rule in eight proxies over one server.
pub const EIGHT: Policy = Policy {
    name: "tollgate, 8 proxies",
    make: || Fleet::adaptive(8, false, || Inflight::adaptive(TARGET, 250).start(8).samples(16)),
};
/// The same without the guard.
pub const EIGHT_UNGUARDED: Policy = Policy {
    name: "the same, never in vain",
    make: || {
        let rule = || Unguarded { ceiling: 250, target: TARGET };
        Fleet::adaptive(8, false, || Inflight::adaptive(TARGET, 250).start(8).samples(16).controller(rule()))
    },
};

/// The ceiling of the quota that adapts: half more than the server can do, with a burst of 100 ms.
pub const CEILING: Quota = Quota::per_second(960).burst(96);
/// Its floor: a 32nd.
pub const FLOOR: Quota = Quota::per_second(30).burst(3);
/// The quota that adapts, for a caller that cannot bracket a request.
pub const QUOTA: Policy = Policy {
    name: "a quota that adapts",
    make: || Fleet::adaptive_quota(CEILING, Fraction::new(1, 32), TARGET),
};
/// A quota that is tuned by hand for 32 workers.
pub const FIXED_QUOTA: Policy =
    Policy { name: "a quota of 640 a second", make: || Fleet::quota(Quota::per_second(640).burst(64)) };

/// Returns the scenario of a name.
///
/// # Panics
///
/// Panics if there is none.
#[must_use]
pub fn scenario(name: &str) -> Scenario {
    SCENARIOS.into_iter().find(|scenario| scenario.name == name).expect("a scenario has this name")
}

/// The outcomes of a policy in each scenario, for each seed.
#[derive(Debug)]
pub struct Results {
    outcomes: Vec<Vec<Outcome>>,
}

impl Results {
    /// Runs all scenarios.
    #[must_use]
    pub fn of(policy: Policy) -> Results {
        let runs = |scenario| (0..SEEDS).map(|seed| run(scenario, &(policy.make)(), seed)).collect();
        Results { outcomes: SCENARIOS.into_iter().map(runs).collect() }
    }

    /// Returns the outcomes of a scenario, by seed.
    ///
    /// # Panics
    ///
    /// Panics if no scenario has this name.
    #[must_use]
    pub fn runs(&self, scenario: &str) -> &[Outcome] {
        let place = SCENARIOS.iter().position(|of| of.name == scenario);
        &self.outcomes[place.expect("a scenario has this name")]
    }

    /// Returns the mean of a figure.
    #[must_use]
    pub fn mean(&self, scenario: &str, figure: impl Fn(&Outcome) -> f64) -> f64 {
        let runs = self.runs(scenario);
        runs.iter().map(figure).sum::<f64>() / runs.len() as f64
    }

    /// Returns the least goodput of all scenarios, each the mean of its seeds.
    #[must_use]
    pub fn worst(&self) -> f64 {
        let goodput = |scenario: &Scenario| self.mean(scenario.name, |outcome| outcome.goodput);
        SCENARIOS.iter().map(goodput).fold(f64::INFINITY, f64::min)
    }
}
