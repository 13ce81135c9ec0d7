//! The figures of the [closed loop](crate::closed_loop), each beside its bound.

use std::fmt;

use crate::closed_loop::Outcome;
use crate::disturbance::SCENARIOS;
use crate::policies::{CLASSES, EIGHT, FIXED, OURS, Policy, QUOTA, Results, TARGET, UNGUARDED};

/// The scenarios in which more is asked for than the server can do.
pub const OVERLOADED: [&str; 6] = ["overload", "flood", "capacity", "slow", "storm", "bimodal"];

/// The scenarios that the quota that adapts is for, and the storm, in which no rate helps.
pub const OF_QUOTA: [&str; 5] = ["overload", "flood", "capacity", "latency", "storm"];

/// A bound on a figure.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// The figure is at least this.
    AtLeast(f64),
    /// The figure is at most this.
    AtMost(f64),
}

impl Bound {
    fn holds(self, figure: f64) -> bool {
        match self {
            Bound::AtLeast(least) => figure >= least,
            Bound::AtMost(most) => figure <= most,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::AtLeast(least) => write!(f, "at least {}", in_digits(*least)),
            Bound::AtMost(most) => write!(f, "at most {}", in_digits(*most)),
        }
    }
}

/// A figure: the mean of the seeds of one scenario.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The requirement that it belongs to.
    pub requirement: &'static str,
    /// The scenario.
    pub scenario: &'static str,
    /// The figure.
    pub measured: f64,
    /// The bound of the requirement.
    pub bound: Bound,
    /// A wider bound, which this figure has to keep instead, and the reason.
    pub known: Option<(Bound, &'static str)>,
}

impl Figure {
    /// Returns whether the figure keeps its bound, or the wider one.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.known.map_or(self.bound, |(wider, _)| wider).holds(self.measured)
    }

    /// Returns whether the figure is outside of the bound of the requirement.
    #[must_use]
    pub fn is_outside(&self) -> bool {
        !self.bound.holds(self.measured)
    }
}

/// The results that the requirements are about.
#[derive(Debug)]
pub struct Measured {
    /// The crate's rule.
    pub ours: Results,
    /// The crate's rule in eight proxies.
    pub eight: Results,
    /// The crate's rule with priorities.
    pub classes: Results,
    /// The rule without its guard.
    pub unguarded: Results,
    /// The quota that adapts.
    pub quota: Results,
    /// A limit that is tuned by hand.
    pub fixed: Results,
}

impl Measured {
    /// Runs all of them.
    #[must_use]
    pub fn now() -> Measured {
        let of = |policy: Policy| Results::of(policy);
        Measured {
            ours: of(OURS),
            eight: of(EIGHT),
            classes: of(CLASSES),
            unguarded: of(UNGUARDED),
            quota: of(QUOTA),
            fixed: of(FIXED),
        }
    }

    /// Returns all figures.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        let mut all = Figures(Vec::new());
        self.refusals(&mut all);
        self.under_load(&mut all);
        self.steadiness(&mut all);
        self.fleet(&mut all);
        self.priorities(&mut all);
        self.quota(&mut all);
        all.0
    }

    fn refusals(&self, all: &mut Figures) {
        let refused = |outcome: &Outcome| outcome.refused;
        let none = Bound::AtMost(0.0);
        all.add("refused", "calm", &self.ours, refused, none);
        all.add("refused", "latency", &self.ours, refused, none).known(
            Bound::AtMost(0.002),
            "the requests in flight double within a second, and the limit rises by an eighth four times \
             a second",
        );
        let later = |outcome: &Outcome| outcome.refused_later;
        all.add("refused after three seconds", "latency", &self.ours, later, none);
    }

    fn under_load(&self, all: &mut Figures) {
        let goodput = |outcome: &Outcome| outcome.goodput;
        let slow = |outcome: &Outcome| outcome.p90 / TARGET.as_secs_f64();
        for name in OVERLOADED {
            all.add("goodput", name, &self.ours, goodput, Bound::AtLeast(0.97));
        }
        for name in OVERLOADED {
            all.add("p90, in targets", name, &self.ours, slow, Bound::AtMost(1.15));
        }
        all.add("goodput, far", "far", &self.ours, goodput, Bound::AtLeast(0.80));
        let control = "goodput without the guard (a control)";
        all.add(control, "far", &self.unguarded, goodput, Bound::AtMost(0.10));
        all.add("goodput, few", "few", &self.ours, goodput, Bound::AtLeast(0.80));
    }

    fn steadiness(&self, all: &mut Figures) {
        let variation = |outcome: &Outcome| outcome.variation;
        for name in ["calm", "overload", "flood", "capacity", "slow", "latency", "far", "errors", "bimodal"] {
            all.add("variation of the limit", name, &self.ours, variation, Bound::AtMost(0.15));
        }
        for (name, wider, reason) in [
            ("storm", 0.35, "the disturbance lasts 10 s, of which the fall is a part: no steady state"),
            ("few", 0.4, "a limit of one to four requests changes by whole requests"),
        ] {
            all.add("variation of the limit", name, &self.ours, variation, Bound::AtMost(0.15))
                .known(Bound::AtMost(wider), reason);
        }
        for scenario in &SCENARIOS[1..] {
            let back = |outcome: &Outcome| outcome.back;
            all.add("seconds back to 9/10", scenario.name, &self.ours, back, Bound::AtMost(2.0));
        }
    }

    fn fleet(&self, all: &mut Figures) {
        let goodput = |outcome: &Outcome| outcome.goodput;
        let slow = |outcome: &Outcome| outcome.p90 / TARGET.as_secs_f64();
        for scenario in SCENARIOS {
            all.add("goodput, 8 proxies", scenario.name, &self.eight, goodput, Bound::AtLeast(0.85));
        }
        for name in OVERLOADED.into_iter().chain(["few"]) {
            all.add("p90 in targets, 8 proxies", name, &self.eight, slow, Bound::AtMost(2.0));
        }
    }

    fn priorities(&self, all: &mut Figures) {
        let served = |class: usize| move |outcome: &Outcome| outcome.classes[class];
        all.add("served, critical", "overload", &self.classes, served(0), Bound::AtLeast(0.95));
        all.add("served, sheddable", "overload", &self.classes, served(2), Bound::AtMost(0.05));
    }

    /// The bounds are the figures of the design's simulation, less 0.03.
    fn quota(&self, all: &mut Figures) {
        let requirement = "goodput, a quota that adapts";
        for (name, least) in [("overload", 0.90), ("flood", 0.90), ("capacity", 0.89), ("latency", 0.97)] {
            let goodput = |outcome: &Outcome| outcome.goodput;
            all.add(requirement, name, &self.quota, goodput, Bound::AtLeast(least));
        }
        let refused = |outcome: &Outcome| outcome.refused;
        let none = Bound::AtMost(0.0);
        all.add("refused, a quota that adapts", "latency", &self.quota, refused, none);
        let back = |outcome: &Outcome| outcome.back;
        all.add("seconds back, a quota that adapts", "capacity", &self.quota, back, Bound::AtMost(2.0));
    }
}

struct Figures(Vec<Figure>);

impl Figures {
    fn add(
        &mut self,
        requirement: &'static str,
        scenario: &'static str,
        results: &Results,
        figure: impl Fn(&Outcome) -> f64,
        bound: Bound,
    ) -> &mut Figure {
        let measured = results.mean(scenario, figure);
        self.0.push(Figure { requirement, scenario, measured, bound, known: None });
        self.0.last_mut().expect("one was pushed")
    }
}

impl Figure {
    fn known(&mut self, wider: Bound, reason: &'static str) {
        self.known = Some((wider, reason));
    }
}

/// Returns a number with two digits after the point, or more if it is small.
#[must_use]
pub fn in_digits(number: f64) -> String {
    if number == 0.0 {
        "0".to_owned()
    } else if number < 0.005 {
        format!("{number:.4}")
    } else {
        format!("{number:.2}")
    }
}
