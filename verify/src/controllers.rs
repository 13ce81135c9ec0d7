//! Known rules for a limit as [`Controller`]s, to run in the [closed loop](crate::closed_loop)
//! beside the rule of the crate.
//!
//! They are adapted to the interface: a controller sees a window, not each answer, and the harness
//! bounds its steps. `tests/controllers.rs` measures the faults that are named at each.

use std::time::Duration;

use tollgate_adaptive::{Controller, Fraction, Next, Samples};

/// Returns a share of a ceiling as places.
fn places(share: Fraction, ceiling: u32) -> f64 {
    share.of(u64::from(ceiling) << 16) as f64 / 65_536.0
}

/// Returns places as a share of a ceiling.
fn share(places: f64, ceiling: u32) -> Fraction {
    let all = f64::from(u32::MAX);
    Fraction::new((places / f64::from(ceiling) * all).clamp(0.0, all) as u32, u32::MAX)
}

/// Returns the samples that took no longer than a time, in thousandths of all, rounded down.
fn within(samples: &Samples, time: Duration) -> u64 {
    let is_within = |thousandths: u16| samples.quantile(thousandths).is_some_and(|slow| slow <= time);
    (0..1_000)
        .rev()
        .find(|thousandths| is_within(*thousandths))
        .map_or(0, |thousandths| u64::from(thousandths) + 1)
}

/// `AIMDLimit` of Netflix's concurrency-limits: a sample over the timeout takes a tenth off, and
/// any other adds one, if half of the limit is in use.
///
/// The original does this for each sample in its order. Here the faster samples of a window come
/// first, and the harness bounds the step: by half down, and by an eighth and one up.
///
/// Its fault: where the way is longer than the timeout it ends at the floor, although no limit
/// helps. Of the possible answers it had 0.02, and the rule of the crate 0.91. The original also
/// swings, as a queue's worth of late samples takes it far down at once: its coefficient of
/// variation under overload is 1.07. The bounded step takes most of that away, and leaves 0.23.
#[derive(Clone, Copy, Debug)]
pub struct Aimd {
    /// The ceiling of the limit, in places.
    pub ceiling: u32,
    /// The time over which an answer is late.
    pub timeout: Duration,
}

impl Controller for Aimd {
    fn next(&mut self, samples: &Samples, now: Fraction) -> Next {
        let count = samples.count();
        if count == 0 {
            return Next::Wait;
        }
        let limit = places(now, self.ceiling);
        let fast = count * within(samples, self.timeout) / 1_000;
        let more = if f64::from(samples.peak()) * 2.0 >= limit { fast as f64 } else { 0.0 };
        let late = i32::try_from(count - fast).unwrap_or(i32::MAX);
        Next::Set(share((limit + more) * 0.9_f64.powi(late), self.ceiling))
    }
}

/// `Gradient2Limit` of Netflix's concurrency-limits (78a74b9, 2026-01): the limit times
/// `1.5 * long / short`, from a half to 1, and 4, smoothed by a fifth. `long` is the average of
/// some 600 windows of a second.
///
/// The original takes the mean of a window. Here it is the median: the harness shows quantiles. Its
/// limit is at least 20 and at most 200: these are the floor and the ceiling.
///
/// Its fault: it sheds whenever latency rises for another reason than load. With 80 ms more on the
/// way it had 0.41 of the possible answers, and with service three times as long 0.69. On a server
/// of one worker its least limit is too high: 0.07. (The rule of the crate: 0.99, 1.00, 0.85.)
#[derive(Clone, Copy, Debug)]
pub struct Gradient2 {
    /// The ceiling of the limit, in places.
    pub ceiling: u32,
    long: f64,
    windows: u32,
}

impl Gradient2 {
    /// Returns the controller of a limit up to `ceiling`.
    #[must_use]
    pub fn new(ceiling: u32) -> Gradient2 {
        Gradient2 { ceiling, long: 0.0, windows: 0 }
    }
}

impl Controller for Gradient2 {
    fn next(&mut self, samples: &Samples, now: Fraction) -> Next {
        let Some(short) = samples.quantile(500).filter(|_| samples.count() >= 10) else { return Next::Wait };
        // A minute stands for a median of samples that are as slow as can be.
        let short = short.min(Duration::from_secs(60)).as_secs_f64();
        // The mean of the first ten windows, then an exponential average.
        if self.windows < 10 {
            self.windows += 1;
            self.long += (short - self.long) / f64::from(self.windows);
        } else {
            self.long += (short - self.long) * 2.0 / 601.0;
        }
        if self.long > 2.0 * short {
            self.long *= 0.95;
        }
        let limit = places(now, self.ceiling);
        if f64::from(samples.peak()) < limit / 2.0 {
            return Next::Stay;
        }
        let gradient = (1.5 * self.long / short).clamp(0.5, 1.0);
        Next::Set(share(limit * 0.8 + (limit * gradient + 4.0) * 0.2, self.ceiling))
    }
}

/// The rule of the crate without its guard, a control: it never finds that a fall was in vain. It
/// falls by the p90 alone.
///
/// Its fault: where the way is longer than the target it falls until next to nothing is admitted.
#[derive(Clone, Copy, Debug)]
pub struct Unguarded {
    /// The ceiling of the limit, in places.
    pub ceiling: u32,
    /// The time within which nine tenths are answered.
    pub target: Duration,
}

impl Controller for Unguarded {
    fn next(&mut self, samples: &Samples, now: Fraction) -> Next {
        let more_than_half_are_slow = samples.quantile(500).is_some_and(|median| median > self.target);
        if samples.count() < if more_than_half_are_slow { 4 } else { 32 } {
            return Next::Wait;
        }
        let Some(slow) = samples.quantile(900) else { return Next::Wait };
        let (limit, peak) = (places(now, self.ceiling), f64::from(samples.peak()));
        let ratio = self.target.as_secs_f64() / slow.as_secs_f64();
        if slow > self.target {
            let was = limit.min(peak.max(1.0));
            return Next::Set(share(was * ratio.clamp(0.5, 0.875), self.ceiling));
        }
        if samples.refused() || peak * 5.0 >= limit * 4.0 {
            return Next::Set(share(limit * (ratio * 0.75).clamp(1.0, 1.125) + 1.0, self.ceiling));
        }
        Next::Stay
    }
}

/// The three steps of a survey: a quarter of the ceiling if more than 5 in 100 requests fail or one
/// in 100 takes longer than 2 s, half of it above 1 in 100 or 500 ms, else all of it.
///
/// The original sets a rate. A fall to a quarter takes two intervals here.
///
/// Its fault: the steps are of the ceiling, not of the server. With a ceiling of 96, errors that no
/// limit cures leave 0.89 of the possible answers. On a server of one worker the lowest step is too
/// high: 0.07. (The rule of the crate: 1.00, 0.85.) As a rate, as in the original, it also stays
/// above a server that has become slower: 0.03 in the study of the design.
#[derive(Clone, Copy, Debug)]
pub struct ThreeSteps;

impl Controller for ThreeSteps {
    fn next(&mut self, samples: &Samples, _: Fraction) -> Next {
        let Some(slow) = samples.quantile(990) else { return Next::Wait };
        let (bad, all) = (samples.failed() + samples.overloaded(), samples.count() + samples.failed());
        let above = |percent: u64| bad * 100 > all * percent;
        // An overloaded sample is a failure. Its latency is not known.
        let above_time = |time| slow > time && slow < Duration::MAX;
        Next::Set(if above(5) || above_time(Duration::from_secs(2)) {
            Fraction::QUARTER
        } else if above(1) || above_time(Duration::from_millis(500)) {
            Fraction::HALF
        } else {
            Fraction::ALL
        })
    }
}
