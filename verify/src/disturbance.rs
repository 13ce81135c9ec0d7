//! The disturbances of the closed loop, and the size of its server.

pub(crate) const WORKERS: f64 = 32.0;
pub(crate) const MEAN: f64 = 0.050;
/// Requests a second that the server can answer.
pub(crate) const CAPACITY: f64 = WORKERS / MEAN;

/// A disturbance between 60 s and `until`.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The name.
    pub name: &'static str,
    /// The load before and after, as a share of the capacity.
    pub load: f64,
    /// The load during the disturbance.
    pub during: f64,
    /// The share of the workers that are left.
    pub workers: f64,
    /// The factor by which service is slower.
    pub slow: f64,
    /// Seconds that an answer takes more on its way.
    pub extra: f64,
    /// The share of answers that are errors.
    pub errors: f64,
    /// Retries of a refused or late request.
    pub retries: u32,
    /// The end of the disturbance.
    pub until: u64,
    /// The size of the server, as a share of 32 workers.
    pub scale: f64,
    /// Whether one request in twenty takes ten times as long.
    pub bimodal: bool,
}

const CALM: Scenario = Scenario {
    name: "calm",
    load: 0.7,
    during: 0.7,
    workers: 1.0,
    slow: 1.0,
    extra: 0.0,
    errors: 0.0,
    retries: 0,
    until: 120,
    scale: 1.0,
    bimodal: false,
};

/// The scenarios.
pub const SCENARIOS: [Scenario; 11] = [
    CALM,
    Scenario { name: "overload", during: 1.5, ..CALM },
    Scenario { name: "flood", during: 5.0, ..CALM },
    Scenario { name: "capacity", workers: 0.5, ..CALM },
    Scenario { name: "slow", slow: 3.0, ..CALM },
    Scenario { name: "latency", extra: 0.080, ..CALM },
    Scenario { name: "far", extra: 0.300, ..CALM },
    Scenario { name: "storm", load: 0.8, during: 0.8, workers: 0.25, retries: 3, until: 70, ..CALM },
    Scenario { name: "errors", errors: 0.2, ..CALM },
    Scenario { name: "few", workers: 0.5, scale: 1.0 / 32.0, ..CALM },
    Scenario { name: "bimodal", load: 0.6, during: 1.3, bimodal: true, ..CALM },
];

impl Scenario {
    pub(crate) fn inside(&self, second: f64) -> bool {
        (60.0..self.until as f64).contains(&second)
    }

    pub(crate) fn rate(&self, second: f64) -> f64 {
        (if self.inside(second) { self.during } else { self.load }) * CAPACITY * self.scale
    }

    pub(crate) fn capacity(&self, second: f64) -> f64 {
        let share = if self.inside(second) { self.workers / self.slow } else { 1.0 };
        CAPACITY * self.scale * share
    }

    /// The answers a second that are possible.
    pub(crate) fn ideal(&self, second: u64) -> f64 {
        let at = second as f64 + 0.5;
        let errors = if self.inside(at) { self.errors } else { 0.0 };
        self.rate(at).min(self.capacity(at)) * (1.0 - errors)
    }
}
