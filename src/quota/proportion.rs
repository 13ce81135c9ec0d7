//! A rate that changes in proportion to another.

use crate::quota::layout::RawQuota;

impl RawQuota {
    /// Returns these numbers with the rate times that of `now` over that of `then`.
    ///
    /// The burst stays, and so does the period where the tokens come out whole. Numbers above 64
    /// bits lose their last ones, and the rate is rounded down.
    pub(crate) fn in_proportion(self, now: RawQuota, then: RawQuota) -> RawQuota {
        let product = |a, b| u128::from(a) * u128::from(b);
        let (up, down) = narrow(product(now.tokens, then.nanos), product(then.tokens, now.nanos), true);
        let common = gcd(self.tokens.into(), down.into()) as u64;
        let (up, down) = (product(self.tokens / common, up), product(self.nanos, down / common));
        let (tokens, nanos) = narrow(up, down, false);
        RawQuota { tokens, nanos, ..self }
    }
}

/// Returns a fraction in 64 bits, reduced if it is asked for or needed.
fn narrow(up: u128, down: u128, reduced: bool) -> (u64, u64) {
    let fits = up.max(down) <= u64::MAX.into();
    let common = if fits && !reduced { 1 } else { gcd(up, down) };
    let (up, down) = (up / common, down / common);
    let excess = 128 - (up.max(down) >> 64).leading_zeros();
    let rounded = down.div_ceil(1 << excess).min(u64::MAX.into());
    (((up >> excess) as u64).max(1), rounded as u64)
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn of(tokens: u64, nanos: u64) -> RawQuota {
        RawQuota { tokens, nanos, burst: 7 }
    }

    #[test]
    fn a_rate_in_proportion_keeps_its_period_where_the_tokens_come_out_whole() {
        let second = 1_000_000_000;
        for (now, tokens, nanos) in [
            (of(50, second), 500, second),
            (of(100, second), 1_000, second),
            (of(400, second), 4_000, second),
            (of(100, 3 * second), 1_000, 3 * second),
            (of(1, 60 * second), 1, 6 * second),
            (of(7, second), 70, second),
            (of(33, 32 * second), 165, 16 * second),
        ] {
            assert_eq!(of(1_000, second).in_proportion(now, of(100, second)), of(tokens, nanos), "{now:?}");
        }
    }

    /// Primes near 2^64, and the largest numbers, so that little can be reduced.
    #[test]
    fn large_numbers_lose_their_last_bits_only() {
        let large = [u64::MAX - 58, u64::MAX - 82, u64::MAX - 94, u64::MAX, (1 << 61) - 1];
        let rates = || large.iter().flat_map(|tokens| large.map(|nanos| of(*tokens, nanos)));
        for (rate, now) in rates().flat_map(|rate| rates().map(move |now| (rate, now))) {
            for then in rates() {
                let value = |RawQuota { tokens, nanos, .. }: RawQuota| tokens as f64 / nanos as f64;
                let (given, exact) =
                    (value(rate.in_proportion(now, then)), value(rate) * value(now) / value(then));
                assert!((given / exact - 1.0).abs() < 1e-12, "{rate:?} {now:?} {then:?}: {given} {exact}");
            }
            // Rates that no 64 bits hold are the nearest that there are.
            let most = rate.in_proportion(of(u64::MAX, 1), of(1, u64::MAX));
            let least = rate.in_proportion(of(1, u64::MAX), of(u64::MAX, 1));
            assert!(most.tokens >> 60 > 0 && (1..16).contains(&most.nanos), "{rate:?} {most:?}");
            assert!((1..16).contains(&least.tokens) && least.nanos >> 60 > 0, "{rate:?} {least:?}");
        }
    }
}
