//! A rate that changes in proportion to another.

use crate::rule::layout::RawQuota;

/// The least period in which a rate is told that is no whole number of tokens in its own period:
/// rounded up to a nanosecond, it is right to a millionth.
const MIN_NANOS: u128 = 1 << 20;

impl RawQuota {
    /// Returns these numbers with the rate times that of `now` over that of `then`.
    ///
    /// The burst stays, and so does the period where the tokens come out whole. Otherwise the rate
    /// is rounded down, to one token in some time.
    pub(crate) fn in_proportion(self, now: RawQuota, then: RawQuota) -> RawQuota {
        let product = |a, b| u128::from(a) * u128::from(b);
        let (up, down) = narrow(product(now.tokens, then.nanos), product(then.tokens, now.nanos), 64);
        let (tokens, nanos) = (u128::from(self.tokens), u128::from(self.nanos));
        let whole = (tokens * up).is_multiple_of(down).then(|| u64::try_from(tokens * up / down));
        if let Some(Ok(tokens)) = whole {
            return RawQuota { tokens, ..self };
        }
        let (up, down) = narrow(tokens * up, nanos * down, 100);
        let tokens = (up * MIN_NANOS).div_ceil(down).max(1);
        let bounded = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        RawQuota { tokens: bounded(tokens), nanos: bounded((tokens * down).div_ceil(up)), ..self }
    }
}

/// Returns a fraction in lowest terms, rounded down to numbers of at most `bits` bits.
fn narrow(up: u128, down: u128, bits: u32) -> (u128, u128) {
    let common = gcd(up, down);
    let (up, down) = (up / common, down / common);
    let excess = (128 - up.max(down).leading_zeros()).saturating_sub(bits);
    ((up >> excess).max(1), down.div_ceil(1 << excess))
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
            (of(100, 3 * second), 1, 3_000_000),
            (of(1, 60 * second), 1, 6 * second),
            (of(7, second), 70, second),
            (of(33, 32 * second), 1, 96_969_697),
            (of(100, 2_500_000_003), 1, 2_500_001),
        ] {
            assert_eq!(of(1_000, second).in_proportion(now, of(100, second)), of(tokens, nanos), "{now:?}");
        }
    }

    /// Numbers that nothing reduces: the rate is told in a short period, and is a quota.
    #[test]
    fn a_rate_that_is_not_round_is_right_to_a_millionth() {
        let odd =
            [(1, 6_000_000_001), (1_000, 5_000_000_001), (999_983, 1_000_000_007), (7, 3_600_000_000_011)];
        let rates = || odd.map(|(tokens, nanos)| of(tokens, nanos));
        for (rate, now, then) in
            rates().iter().flat_map(|a| rates().map(|b| rates().map(|c| (*a, b, c)))).flatten()
        {
            let value = |RawQuota { tokens, nanos, .. }: RawQuota| tokens as f64 / nanos as f64;
            let told = rate.in_proportion(now, then);
            let (given, exact) = (value(told), value(rate) * value(now) / value(then));
            // A token in 2^62 ns, or in longer, is no rate of a quota.
            let right = given <= exact * (1.0 + 1e-12) && given >= exact * (1.0 - 1e-6);
            assert!(right || exact < 0.5_f64.powi(62), "{rate:?} {now:?} {then:?}: {given} {exact}");
            let is_short = told.nanos == rate.nanos || told.tokens == 1 || told.nanos < 1 << 21;
            assert!(is_short, "{rate:?} {now:?} {then:?}: {told:?}");
            // Rates that no 64 bits hold are the nearest that there are.
            let (most, least) = (of(u64::MAX, 1), of(1, u64::MAX));
            for extreme in [rate.in_proportion(most, least), rate.in_proportion(least, most)] {
                assert!(extreme.tokens > 0 && extreme.nanos > 0, "{rate:?}: {extreme:?}");
            }
        }
    }
}
