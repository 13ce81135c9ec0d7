//! The plots, each an SVG of 800 pixels' width.

mod all;
mod axis;
mod look;
mod panel;

pub(super) use all::all;
pub use axis::Axis;
pub use panel::{Drawn, Line, Panel, draw};
