//! Draws panels beside each other, and a legend under them.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::axis::Axis;
use super::look::{self, Look};
use crate::contenders::FLOOR;

const WIDTH: u32 = 800;
const HEIGHT: u32 = 460;
// `plotters` writes 1 / 1.24 of these: 14.5 and 16 pixels.
const FONT: (&str, i32) = ("sans-serif", 18);
const TITLE: (&str, i32) = ("sans-serif", 20);
/// Pixels of a row of the legend.
const ROW: i32 = 24;
const COLUMNS: usize = 3;

/// The points of a contender.
#[derive(Clone, Debug)]
pub struct Line {
    /// Name in the legend, which has a look of its own.
    pub contender: String,
    /// Places on the axes, joined in their order.
    pub points: Vec<(f64, f64)>,
    /// Places of the markers, if not at each point.
    pub marks: Option<Vec<(f64, f64)>>,
}

impl Line {
    /// Makes a line without points.
    pub fn new(contender: &str) -> Self {
        Line { contender: contender.to_owned(), points: Vec::new(), marks: None }
    }
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Panel {
    title: String,
    x: Axis,
    y: Axis,
    lines: Vec<Line>,
    rule: Option<(f64, &'static str)>,
}

/// A drawing, or the failure of the library.
pub type Drawn<T> = Result<T, Box<dyn Error + Send + Sync>>;
type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Panel {
    /// Makes a panel, or none without data.
    pub fn new(title: &str, x: Axis, y: Axis, lines: Vec<Line>) -> Option<Self> {
        let has_data = lines.iter().any(|line| !line.points.is_empty());
        has_data.then(|| Panel { title: title.to_owned(), x, y, lines, rule: None })
    }

    /// Adds a named line across.
    pub fn with_rule(self, value: f64, name: &'static str) -> Self {
        Panel { rule: Some((value, name)), ..self }
    }

    fn draw(&self, canvas: &Canvas<'_>) -> Drawn<()> {
        let mut chart = ChartBuilder::on(canvas)
            .caption(&self.title, TITLE)
            .margin(10)
            .margin_right(46)
            .x_label_area_size(56)
            .y_label_area_size(74)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(225, 225, 225))
            .label_style(FONT)
            .axis_desc_style(FONT)
            .x_desc(self.x.title)
            .y_desc(self.y.title)
            .draw()?;

        if let Some((value, name)) = self.rule {
            let [left, right] = [self.x.range.start, self.x.range.end].map(|x| (x, value));
            chart.draw_series(DashedLineSeries::new([left, right], 2, 4, BLACK.into()))?;
            let text = EmptyElement::at(left) + Text::new(name, (4, -20), FONT);
            chart.draw_series([text])?;
        }
        // tollgate's lines, which come first, are drawn above the others.
        for line in self.lines.iter().rev() {
            let Look { colour, marker } = look::of(&line.contender);
            let points = line.points.clone();
            let style = colour.stroke_width(2);
            if line.contender == FLOOR {
                chart.draw_series(DashedLineSeries::new(points, 5, 4, style))?;
            } else {
                chart.draw_series(LineSeries::new(points, style))?;
            }
            let marks = line.marks.as_ref().unwrap_or(&line.points).iter();
            let marks =
                marks.map(|&at| EmptyElement::at(at) + Polygon::new(marker.corners(), colour.filled()));
            chart.draw_series(marks)?;
        }
        Ok(())
    }
}

/// Returns the panels as SVG.
///
/// # Errors
///
/// The library cannot draw them.
pub fn draw(panels: &[Panel]) -> Drawn<String> {
    let mut names: Vec<&str> = Vec::new();
    for line in panels.iter().flat_map(|panel| &panel.lines) {
        if !names.contains(&line.contender.as_str()) {
            names.push(&line.contender);
        }
    }
    let rows = names.len().div_ceil(COLUMNS);
    let legend = rows as u32 * ROW as u32 + 4;
    let mut svg = String::new();
    {
        let canvas = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT + legend)).into_drawing_area();
        canvas.fill(&WHITE)?;
        let (charts, below) = canvas.split_vertically(HEIGHT);
        for (panel, part) in panels.iter().zip(charts.split_evenly((1, panels.len()))) {
            panel.draw(&part)?;
        }
        for (n, name) in names.into_iter().enumerate() {
            draw_name(&below, name, (n / rows, n % rows))?;
        }
        canvas.present()?;
    }
    Ok(svg)
}

/// Draws the name and the look of a contender in the legend.
fn draw_name(canvas: &Canvas<'_>, name: &str, (column, row): (usize, usize)) -> Drawn<()> {
    let Look { colour, marker } = look::of(name);
    let x = 8 + column as i32 * (WIDTH as i32 - 8) / COLUMNS as i32;
    let y = 10 + row as i32 * ROW;
    let line = PathElement::new([(x, y), (x + 30, y)], colour.stroke_width(2));
    let middle = EmptyElement::at((x + 15, y)) + Polygon::new(marker.corners(), colour.filled());
    let text = Text::new(name.to_owned(), (x + 36, y - 9), FONT);
    canvas.draw(&line)?;
    canvas.draw(&middle)?;
    canvas.draw(&text)?;
    Ok(())
}
