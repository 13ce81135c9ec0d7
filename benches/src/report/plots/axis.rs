//! Axes: the place of a value, and the text beside it.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::report::numbers::grouped;

/// An axis of a panel.
#[derive(Clone, Debug)]
pub struct Axis {
    pub(super) title: &'static str,
    is_log: bool,
    pub(super) range: Range<f64>,
    ticks: Vec<f64>,
    written: fn(f64) -> String,
}

impl Axis {
    /// Makes an axis from 0.
    pub fn linear(title: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let most = values.fold(f64::MIN_POSITIVE, f64::max);
        let decade = 10_f64.powf(most.log10().floor());
        let step = [0.2, 0.5, 1.0].map(|part| part * decade).into_iter().find(|step| most / step <= 6.0);
        let step = step.unwrap_or(2.0 * decade);
        let ticks = (0..).map(|n| f64::from(n) * step).take_while(|&tick| tick <= most * 1.001).collect();
        Axis { title, is_log: false, range: 0.0..most * 1.03, ticks, written: plain }
    }

    /// Makes an axis with ticks at powers of ten, and between them where there is room.
    pub fn log(title: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = values.fold((f64::MAX, f64::MIN), |(least, most), v| (least.min(v), most.max(v)));
        let room = (most / least).max(1.2).powf(0.05);
        let range = least / room..most * room;
        let parts: &[f64] = if most / least < 500.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let decades = range.start.log10().floor() as i32..=range.end.log10().floor() as i32;
        let ticks = decades.flat_map(|decade| parts.iter().map(move |part| part * 10_f64.powi(decade)));
        let ticks = ticks.filter(|tick| range.contains(tick)).collect();
        Axis { title, is_log: true, range, ticks, written: plain }
    }

    /// Makes an axis with ticks at these values alone.
    pub fn log_at(title: &'static str, values: &[f64]) -> Self {
        Axis { ticks: values.to_vec(), ..Axis::log(title, values.iter().copied()) }
    }

    /// Writes values as times, given in nanoseconds.
    pub fn in_time(self) -> Self {
        Axis { written: time, ..self }
    }

    /// Writes values as powers of ten.
    pub(super) fn in_powers(self) -> Self {
        Axis { written: power, ..self }
    }

    /// Returns the place of a value: 0 at the start of the range, 1 at its end.
    fn place(&self, value: f64) -> f64 {
        let Range { start, end } = self.range;
        if self.is_log { (value / start).ln() / (end / start).ln() } else { (value - start) / (end - start) }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, &value: &f64, (first, last): (i32, i32)) -> i32 {
        first + (f64::from(last - first) * self.place(value)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, &value: &f64) -> String {
        (self.written)(value)
    }
}

fn plain(value: f64) -> String {
    // Without the error of floating point.
    let value = (value * 1e6).round() / 1e6;
    if value >= 1_000.0 { grouped(value.round() as u64) } else { value.to_string() }
}

fn time(ns: f64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
    let (size, unit) = units.into_iter().find(|(size, _)| ns >= size * 0.999).unwrap_or((1.0, "ns"));
    format!("{} {unit}", plain(ns / size))
}

fn power(value: f64) -> String {
    match value.log10().round() as i32 {
        0 => "1".to_owned(),
        exponent => format!("10^{exponent}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        let labels = |axis: Axis| axis.ticks.iter().map(|tick| axis.format_ext(tick)).collect::<Vec<_>>();
        assert_eq!(labels(Axis::log("", [1.0, 1e4].into_iter())), ["1", "10", "100", "1,000", "10,000"]);
        assert_eq!(labels(Axis::log("", [3.0, 30.0].into_iter())), ["5", "10", "20"]);
        assert_eq!(
            labels(Axis::log("", [40.0, 3e6].into_iter()).in_time()),
            ["100 ns", "1 µs", "10 µs", "100 µs", "1 ms"]
        );
        assert_eq!(labels(Axis::linear("", [0.3, 2.0].into_iter())), ["0", "0.5", "1", "1.5", "2"]);
    }
}
