//! Plots of the [closed loop](crate::closed_loop) as SVG: lines over time, in panels.

use std::fmt::Write;

const WIDTH: f64 = 800.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const PANEL: f64 = 190.0;
const GAP: f64 = 56.0;
const LEGEND: f64 = 40.0;

/// A line, with a gap where there is no point.
#[derive(Clone, Debug)]
pub struct Line {
    /// The name in the legend.
    pub name: &'static str,
    /// The colour, as SVG writes it.
    pub colour: &'static str,
    /// Its values, one a second.
    pub points: Vec<(f64, Option<f64>)>,
}

/// A panel.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The title.
    pub title: &'static str,
    /// The end of its axis, which begins at 0.
    pub most: f64,
    /// The steps of its axis.
    pub step: f64,
    /// A named line across.
    pub rule: Option<(f64, &'static str)>,
    /// The lines.
    pub lines: Vec<Line>,
}

/// The seconds that a plot shows, and those of the disturbance.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The first second.
    pub from: f64,
    /// The last second.
    pub to: f64,
    /// The begin and the end of the disturbance.
    pub disturbed: (f64, f64),
}

impl Span {
    fn x(self, second: f64) -> f64 {
        LEFT + (second - self.from) / (self.to - self.from) * (WIDTH - LEFT - RIGHT)
    }
}

/// Draws panels above each other, and the legend of the first under them.
#[must_use]
pub fn draw(span: Span, panels: &[Panel]) -> String {
    let height = panels.len() as f64 * (PANEL + GAP) + LEGEND + 8.0;
    let mut svg = String::new();
    svg.push_str(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"14\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    ));
    for (number, panel) in panels.iter().enumerate() {
        draw_panel(&mut svg, span, panel, number as f64 * (PANEL + GAP) + 28.0);
    }
    let mut x = LEFT;
    for line in panels.first().map_or(&[][..], |panel| &panel.lines) {
        let (y, end) = (height - 16.0, x + 26.0);
        put(
            &mut svg,
            format_args!(
                "<path d=\"M{x} {y}H{end}\" stroke=\"{}\" stroke-width=\"2.5\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
                line.colour,
                end + 6.0,
                y + 5.0,
                line.name
            ),
        );
        x += 130.0;
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_panel(svg: &mut String, span: Span, panel: &Panel, top: f64) {
    let y = |value: f64| top + PANEL * (1.0 - (value / panel.most).clamp(0.0, 1.0));
    let (begin, end) = (span.x(span.disturbed.0), span.x(span.disturbed.1));
    put(
        svg,
        format_args!(
            "<rect x=\"{begin:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{PANEL}\" fill=\"#f3efe4\"/>",
            end - begin
        ),
    );
    put(
        svg,
        format_args!("<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{}</text>", top - 9.0, panel.title),
    );
    let mut value = 0.0;
    while value <= panel.most {
        let at = y(value);
        put(
            svg,
            format_args!(
                "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 5.0
            ),
        );
        value += panel.step;
    }
    let mut second = span.from;
    while second <= span.to {
        put(
            svg,
            format_args!(
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{second} s</text>",
                span.x(second),
                top + PANEL + 18.0
            ),
        );
        second += 10.0;
    }
    for line in &panel.lines {
        put(
            svg,
            format_args!(
                "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
                path(span, line, y),
                line.colour
            ),
        );
    }
    if let Some((value, name)) = panel.rule {
        let at = y(value);
        put(
            svg,
            format_args!(
                "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#444\" stroke-dasharray=\"6 4\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#444\">{name}</text>",
                WIDTH - RIGHT,
                WIDTH - RIGHT - 4.0,
                at - 5.0
            ),
        );
    }
}

fn path(span: Span, line: &Line, y: impl Fn(f64) -> f64) -> String {
    let (mut path, mut drawn) = (String::new(), false);
    for (second, value) in line.points.iter().filter(|(at, _)| (span.from..=span.to).contains(at)) {
        if let Some(value) = value {
            let verb = if drawn { 'L' } else { 'M' };
            path.push_str(&format!("{verb}{:.1} {:.1}", span.x(*second), y(*value)));
        }
        drawn = value.is_some();
    }
    path
}

fn put(svg: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(svg, "{text}").expect("a string takes all");
}
