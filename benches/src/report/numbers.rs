//! Medians and ratios of rounds, and how numbers are written.

use std::fmt;

/// A median and its quartiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) low: f64,
    pub(super) median: f64,
    pub(super) high: f64,
}

impl Spread {
    /// Of some values; none if there are none.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |part: f64| {
            let place = part * last as f64;
            let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Some(Spread { low: at(0.25), median: at(0.5), high: at(0.75) })
    }

    /// Of `ours / theirs`, round by round.
    pub(super) fn of_ratios(ours: &[f64], theirs: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        Spread::of(&ratios)
    }

    /// Of a ratio: whether the rounds do not tell who was faster.
    pub(super) fn is_undecided(&self) -> bool {
        self.low < 1.0 && self.high > 1.0
    }

    fn written(&self, number: fn(f64) -> String) -> String {
        format!("{} ({} to {})", number(self.median), number(self.low), number(self.high))
    }

    /// As a ratio.
    pub(super) fn ratio(&self) -> String {
        self.written(ratio)
    }

    /// As a ratio in a sentence.
    pub(super) fn ratio_in_text(&self) -> String {
        format!("ratio {}, quartiles {} to {}", ratio(self.median), ratio(self.low), ratio(self.high))
    }

    /// In words, of a ratio of times: "ours is {} theirs".
    pub(super) fn is_to(&self) -> String {
        let ratio = self.median;
        if self.is_undecided() || (ratio - 1.0).abs() < 0.005 {
            "as fast, as far as the rounds tell, as".to_owned()
        } else if ratio < 1.0 {
            format!("{} times as fast as", short(1.0 / ratio))
        } else if ratio < 2.0 {
            format!("{:.0} % slower than", (ratio - 1.0) * 100.0)
        } else {
            format!("{} times as slow as", short(ratio))
        }
    }
}

/// As a quantity.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written(short))
    }
}

/// Of a ratio, so that 1.004 is not 1.
pub(super) fn ratio(value: f64) -> String {
    if value < 2.0 { format!("{value:.3}") } else { short(value) }
}

/// Three digits, or all of a large number's.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    if size < 9.995 {
        format!("{value:.2}")
    } else if size < 99.95 {
        format!("{value:.1}")
    } else {
        let sign = if value < 0.0 { "-" } else { "" };
        format!("{sign}{}", grouped(size.round() as u64))
    }
}

/// Of nanoseconds, in the unit that leaves three digits or four.
pub(super) fn lasting(nanos: f64) -> String {
    let (part, unit) = match nanos {
        ..9_999.5 => (1.0, "ns"),
        ..999_500.0 => (1e3, "µs"),
        _ => (1e6, "ms"),
    };
    format!("{} {unit}", short(nanos / part))
}

/// 12,345.
pub(super) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A part of all in hundredths, small ones too.
pub(super) fn percent(part: u64, all: u64) -> String {
    let percent = part as f64 / all.max(1) as f64 * 100.0;
    if percent < 0.095 { format!("{percent:.5}") } else { short(percent) }
}

/// 1 thread, 2 threads.
pub(super) fn count(value: usize, of: &str) -> String {
    format!("{} {of}{}", grouped(value as u64), if value == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_and_the_quartiles() {
        let spread = Spread::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!(spread, Spread { low: 2.0, median: 3.0, high: 4.0 });
        assert_eq!(Spread::of(&[1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let spread = Spread::of_ratios(&[1.0, 10.0, 9.0], &[2.0, 40.0, 3.0]).unwrap();
        assert_eq!(spread.median, 0.5, "the ratio of the medians is 3");
        assert_eq!(Spread::of_ratios(&[1.0], &[0.0]), None);
    }

    #[test]
    fn words_follow_the_ratio() {
        let is = |ratio: f64| Spread { low: ratio, median: ratio, high: ratio }.is_to();
        assert_eq!(is(0.25), "4.00 times as fast as");
        assert_eq!(is(1.14), "14 % slower than");
        assert_eq!(is(23.0), "23.0 times as slow as");
        assert_eq!(is(1.001), "as fast, as far as the rounds tell, as");
        let undecided = Spread { low: 0.9, median: 1.1, high: 1.2 };
        assert_eq!(undecided.is_to(), "as fast, as far as the rounds tell, as");
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!([0.5, 12.34, 123.4, 1_234_567.8].map(short), ["0.50", "12.3", "123", "1,234,568"]);
        assert_eq!(ratio(1.004), "1.004");
        assert_eq!([1_290.0, 12_345.6, 45_600_000.0].map(lasting), ["1,290 ns", "12.3 µs", "45.6 ms"]);
        assert_eq!(
            [(0, 9), (1, 100_000), (1, 8)].map(|(part, all)| percent(part, all)),
            ["0.00000", "0.00100", "12.5"]
        );
        assert_eq!(count(1, "thread") + &count(1_000, "key"), "1 thread1,000 keys");
    }
}
