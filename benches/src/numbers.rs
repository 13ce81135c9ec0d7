//! Medians and quartiles of rounds, and numbers as text.

/// A median and its quartiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// A quarter of the rounds is below.
    pub low: f64,
    /// Half of the rounds is below.
    pub median: f64,
    /// A quarter of the rounds is above.
    pub high: f64,
}

impl Spread {
    /// Returns the spread of the finite values, or `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
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

    /// Returns the spread of `ours / theirs`, taken in each round.
    pub fn of_ratios(ours: &[f64], theirs: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        Spread::of(&ratios)
    }
}

/// Writes three digits or more: a ratio of 1.004 is not 1.
pub fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size.fract() == 0.0 => 0,
        ..1.9995 => 3,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

/// Writes 12345 as 12,345.
pub fn grouped(value: u64) -> String {
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

/// Writes a number and its noun: 1 thread, 2 threads.
pub fn count(value: usize, of: &str) -> String {
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
    fn numbers_keep_three_digits() {
        let written = [0.5, 1.004, 3.456, 12.34, 123.4, 7.0].map(short);
        assert_eq!(written, ["0.500", "1.004", "3.46", "12.3", "123", "7"]);
        assert_eq!(count(1, "thread") + &count(1_000, "key"), "1 thread1,000 keys");
    }
}
