//! The processor's counter, and the system's clock until the counter is calibrated. The only file
//! that names quanta.
//!
//! quanta needs up to 200 ms to calibrate the counter. A thread does that, started when a limiter
//! is built, or by a reading some time after the first. Until the thread is done, a reading is one
//! of the system's monotonic clock.
//!
//! # Invariants
//!
//! * *Invariant:* both clocks are one line of time, which goes on where they meet, because the
//!   counter's origin is chosen so that a count reads as the system's time taken just after it. So
//!   the line jumps forward by the time between these two readings, the least of some tries.
//! * *Invariant:* no thread sees the line go back, because a thread that has read the system's
//!   clock looks once more whether the counter is calibrated, and reads that instead.
//! * *Invariant:* a count of 0, which stands for a counter that is not calibrated, lets no time
//!   pass, because it is [`START`] before any time of the line. That is further behind each stamp
//!   than jitter is, or in the same tick.

use std::sync::{Once, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// The first nanosecond of the line: 18 minutes, so that a core whose counter is behind does not
/// read as 0.
pub(crate) const START: u64 = 1 << 40;
/// Pairs of readings of both clocks, of which the closest counts.
const TRIES: usize = 16;
/// Nanoseconds after the first reading without a calibration: the first decisions are not the ones
/// that start a thread.
const AT_REST: u64 = 1_000_000;

static COUNTER: OnceLock<Tsc> = OnceLock::new();

/// The calibrated counter of the process.
pub(crate) struct Tsc {
    quanta: quanta::Clock,
    line: TimeLine,
}

/// A line of time by counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLine {
    /// The count at nanosecond 0, modulo `2^64`.
    origin: u64,
    /// Whole nanoseconds per raw unit; `part` has the rest, in 2^-64ths of one.
    pub(crate) whole: u64,
    pub(crate) part: u64,
}

impl TimeLine {
    /// Returns a line that is nowhere behind `nanos`, and ahead of it by the least time between two
    /// readings of `count`, and four counts.
    pub(crate) fn after(count: impl Fn() -> u64, nanos: impl Fn() -> u64, whole: u64, part: u64) -> TimeLine {
        let pair = || {
            let (before, now) = (count(), nanos());
            (count().wrapping_sub(before), before, now)
        };
        let (mut between, mut before, mut now) = pair();
        for _ in 1..TRIES {
            let next = pair();
            if next.0 < between {
                (between, before, now) = next;
            }
        }
        let nanos_per_count = u128::from(whole) << 64 | u128::from(part);
        let counts = (u128::from(now) << 64).div_ceil(nanos_per_count.max(1)) as u64;
        // `before` may have been about to count one more.
        TimeLine { origin: before.wrapping_sub(counts + 1), whole, part }
    }

    /// Returns the counts from the origin on. A counter that was reset, so that it is before the
    /// origin, reads as 0.
    #[inline]
    pub(crate) fn raw(self, count: u64) -> u64 {
        (count.wrapping_sub(self.origin) as i64).max(0) as u64
    }

    #[inline]
    pub(crate) fn to_nanos(self, raw: u64) -> u64 {
        let part = (u128::from(raw) * u128::from(self.part)) >> 64;
        raw.wrapping_mul(self.whole).wrapping_add(part as u64)
    }
}

impl Tsc {
    /// Returns the counter. The first call of a process calibrates it, in 1 to 200 ms, while other
    /// callers wait.
    pub(crate) fn calibrated() -> &'static Tsc {
        COUNTER.get_or_init(|| {
            let quanta = quanta::Clock::new();
            // quanta's own scale, to 2^-52 of it, for counters of 250 kHz and more. One
            // multiplication by it takes 3 ns less than quanta's, which shifts a product of 128
            // bits by a number that is not known at compile time.
            let scale = quanta.delta_as_nanos(0, 1 << 52);
            let line = TimeLine::after(|| quanta.raw(), system_nanos, scale >> 52, scale << 12);
            Tsc { quanta, line }
        })
    }

    /// Returns the nanoseconds per raw unit: whole ones, and 2^-64ths of one.
    pub(crate) fn nanos_per_raw(&self) -> (u64, u64) {
        (self.line.whole, self.line.part)
    }

    #[inline]
    fn nanos(&self) -> u64 {
        self.line.to_nanos(self.line.raw(self.quanta.raw()))
    }
}

/// Returns whether the counter is calibrated.
pub(crate) fn is_calibrated() -> bool {
    COUNTER.get().is_some()
}

/// Returns the raw reading of the counter; 0 if it is not calibrated.
#[inline]
pub(crate) fn raw() -> u64 {
    match COUNTER.get() {
        Some(tsc) => tsc.line.raw(tsc.quanta.raw()),
        None => raw_before_calibration(),
    }
}

// A call, so that the common path has no value to choose: 14 instructions of a decision by key.
#[cold]
#[inline(never)]
fn raw_before_calibration() -> u64 {
    0
}

/// Returns the nanoseconds of the line.
#[inline]
pub(crate) fn nanos() -> u64 {
    match COUNTER.get() {
        Some(tsc) => tsc.nanos(),
        None => nanos_before_calibration(),
    }
}

/// Returns the nanoseconds by the system's clock, and starts the calibration a while after the
/// first reading.
#[cold]
#[inline(never)]
fn nanos_before_calibration() -> u64 {
    let nanos = system_nanos();
    if nanos - START > AT_REST {
        calibrate();
    }
    COUNTER.get().map_or(nanos, Tsc::nanos)
}

/// Starts a thread that calibrates the counter, if none has been started.
///
/// Without such a thread, this one calibrates.
#[cold]
pub(crate) fn calibrate() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let begun = thread::Builder::new().name("tollgate-tsc".into()).spawn(|| {
            // A new thread often has the processor of its parent, and a calibration does not yield.
            thread::sleep(Duration::from_millis(1));
            Tsc::calibrated();
        });
        if begun.is_err() {
            Tsc::calibrated();
        }
    });
}

/// Returns the nanoseconds of the line by the system's monotonic clock.
fn system_nanos() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    START + FIRST.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Returns raw counter units in nanoseconds, rounded up: 0 for 0 units.
#[cold]
pub(crate) fn raw_to_nanos(count: u64) -> u64 {
    if count == 0 { 0 } else { Tsc::calibrated().line.to_nanos(count).saturating_add(1) }
}
