//! The processor's counter, calibrated. The only file that names quanta.

use std::sync::OnceLock;

/// The calibrated counter of the process.
pub(crate) struct Tsc {
    quanta: quanta::Clock,
    origin: u64,
    /// Whole nanoseconds per raw unit; `part` has the rest, in 2^-64ths of one.
    pub(crate) whole: u64,
    pub(crate) part: u64,
}

impl Tsc {
    #[inline]
    pub(crate) fn get() -> &'static Tsc {
        static COUNTER: OnceLock<Tsc> = OnceLock::new();
        COUNTER.get_or_init(|| {
            let quanta = quanta::Clock::new();
            // The origin is some 20 minutes back, so that a core whose counter is behind this one's
            // does not read as 0.
            let origin = quanta.raw().saturating_sub(1 << 42);
            // quanta's own scale, to 2^-52 of it, for counters of 250 kHz and more. One
            // multiplication by it takes 3 ns less than quanta's, which shifts a product of 128
            // bits by a number that is not known at compile time.
            let scale = quanta.delta_as_nanos(0, 1 << 52);
            Tsc { quanta, origin, whole: scale >> 52, part: scale << 12 }
        })
    }

    #[inline]
    pub(crate) fn raw(&self) -> u64 {
        self.quanta.raw().saturating_sub(self.origin)
    }

    #[inline]
    pub(crate) fn nanos(&self) -> u64 {
        self.to_nanos(self.raw())
    }

    #[inline]
    fn to_nanos(&self, count: u64) -> u64 {
        let part = (u128::from(count) * u128::from(self.part)) >> 64;
        count.wrapping_mul(self.whole).wrapping_add(part as u64)
    }
}

/// Returns raw counter units in nanoseconds, rounded up: 0 for 0 units.
#[cold]
pub(crate) fn raw_to_nanos(count: u64) -> u64 {
    if count == 0 { 0 } else { Tsc::get().to_nanos(count).saturating_add(1) }
}
