//! The limits in front of the server of the [closed loop](crate::closed_loop).

use std::sync::Arc;
use std::time::Duration;

use tollgate::{Clock, MockClock, Quota, TokenBucket};

use tollgate_adaptive::{Adaptive, Fraction, Inflight, InflightBuilder, OwnedFlight, Priority};

/// The limits of one or several proxies over the server, whose requests choose one at random.
pub struct Fleet {
    gates: Vec<Gate>,
    pub(crate) mock: MockClock,
    /// Whether classes are priorities.
    pub(crate) priorities: bool,
}

/// A limit: on the requests in flight, or on their rate.
enum Gate {
    Inflight(Arc<Inflight>),
    Quota(Arc<TokenBucket>, Option<Arc<Adaptive>>),
}

/// An admitted request.
pub(crate) enum Place {
    Flight(OwnedFlight),
    /// Under a quota, that may adapt.
    Sent(Option<Arc<Adaptive>>),
}

impl Fleet {
    /// Makes `n` limits on a clock of the simulation.
    pub fn new(n: usize, priorities: bool, limit: impl Fn(Clock) -> Inflight) -> Fleet {
        let (clock, mock) = Clock::mock();
        let gate = |_| Gate::Inflight(Arc::new(limit(clock.clone())));
        Fleet { gates: (0..n).map(gate).collect(), mock, priorities }
    }

    /// Makes `n` limits that adapt.
    pub fn adaptive(n: usize, priorities: bool, builder: impl Fn() -> InflightBuilder) -> Fleet {
        Fleet::new(n, priorities, |clock| builder().clock(clock).build().expect("the numbers are in bounds"))
    }

    /// Makes a quota that stays.
    #[must_use]
    pub fn quota(quota: Quota) -> Fleet {
        let (clock, mock) = Clock::mock();
        let bucket = Arc::new(TokenBucket::builder(quota).clock(clock).build());
        Fleet { gates: vec![Gate::Quota(bucket, None)], mock, priorities: false }
    }

    /// Makes a quota that adapts to a target, between a share of a ceiling and the ceiling.
    ///
    /// # Panics
    ///
    /// Panics if the floor or the target is out of its bounds.
    #[must_use]
    pub fn adaptive_quota(ceiling: Quota, floor: Fraction, target: Duration) -> Fleet {
        let (clock, mock) = Clock::mock();
        let bucket = Arc::new(TokenBucket::builder(ceiling).clock(clock.clone()).build());
        let builder = Adaptive::new(Arc::clone(&bucket), ceiling).and_then(|builder| builder.floor(floor));
        let builder = builder.expect("the floor is a quota").target(target).clock(clock);
        let adaptive = Arc::new(builder.build().expect("the target is in bounds"));
        Fleet { gates: vec![Gate::Quota(bucket, Some(adaptive))], mock, priorities: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.gates.len()
    }

    pub(crate) fn enter(&self, which: usize, priority: Priority) -> Option<Place> {
        match &self.gates[which] {
            Gate::Inflight(limit) => limit.try_enter_owned(priority).ok().map(Place::Flight),
            Gate::Quota(bucket, adaptive) => {
                let granted = bucket.try_acquire().is_ok();
                if let Some(adaptive) = adaptive
                    && !granted
                {
                    adaptive.refused();
                }
                granted.then(|| Place::Sent(adaptive.clone()))
            }
        }
    }

    /// Returns the sum of the limits: requests in flight, or requests a second.
    pub(crate) fn limit(&self) -> f64 {
        let of = |gate: &Gate| match gate {
            Gate::Inflight(limit) => f64::from(limit.limit()),
            Gate::Quota(bucket, _) => {
                let quota = bucket.rule();
                quota.tokens() as f64 / quota.period().as_secs_f64()
            }
        };
        self.gates.iter().map(of).sum()
    }
}

impl Place {
    pub(crate) fn answered(self, latency: Duration) {
        match self {
            Place::Flight(flight) => flight.answered(),
            Place::Sent(adaptive) => drop(adaptive.map(|adaptive| adaptive.answered(latency))),
        }
    }

    pub(crate) fn overloaded(self, after: Duration) {
        match self {
            Place::Flight(flight) => flight.overloaded(),
            Place::Sent(adaptive) => drop(adaptive.map(|adaptive| adaptive.overloaded(after))),
        }
    }

    pub(crate) fn failed(self) {
        match self {
            Place::Flight(flight) => flight.failed(),
            Place::Sent(adaptive) => drop(adaptive.map(|adaptive| adaptive.failed())),
        }
    }
}
