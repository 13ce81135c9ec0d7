//! The colour and the marker of a contender, the same in every plot.

use plotters::prelude::RGBColor;

use crate::contenders::FLOOR;

/// A filled shape that is told from the others without its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Circle,
    Square,
    Up,
    Down,
    Diamond,
    Cross,
}

/// The colour and the marker of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) colour: RGBColor,
    pub(super) marker: Marker,
}

// Okabe and Ito's colours, which the colour-blind tell apart, without the yellow, which is pale on
// white.
const BLACK: RGBColor = RGBColor(0, 0, 0);
const BLUE: RGBColor = RGBColor(0, 114, 178);
const SKY: RGBColor = RGBColor(86, 180, 233);
const GREEN: RGBColor = RGBColor(0, 158, 115);
const ORANGE: RGBColor = RGBColor(230, 159, 0);
const VERMILION: RGBColor = RGBColor(213, 94, 0);
const PURPLE: RGBColor = RGBColor(204, 121, 167);
const GREY: RGBColor = RGBColor(136, 136, 136);

type Looks = &'static [(&'static str, RGBColor, Marker)];

/// The looks of limiters and of fleets. No plot has lines of both.
const LOOKS: [Looks; 2] = [LIMITERS, FLEETS];

/// tollgate is blue, governor red, the designs with a mutex black and grey.
const LIMITERS: Looks = &[
    ("tollgate", BLUE, Marker::Circle),
    ("tollgate, pinned", SKY, Marker::Square),
    ("tollgate, inline", BLUE, Marker::Diamond),
    ("tollgate, inline, batches of 16", SKY, Marker::Down),
    ("tollgate, spread", BLUE, Marker::Square),
    ("tollgate, coarse clock", SKY, Marker::Up),
    ("tollgate, reading at hand", SKY, Marker::Diamond),
    ("governor", VERMILION, Marker::Circle),
    ("governor, upkeep clock", ORANGE, Marker::Up),
    ("governor, its hasher", ORANGE, Marker::Square),
    ("std mutex", BLACK, Marker::Square),
    ("parking_lot + quanta", GREY, Marker::Square),
    ("one mutex", BLACK, Marker::Diamond),
    ("rwlock map", GREY, Marker::Up),
    ("dashmap + mutex", GREY, Marker::Down),
    ("ratelimit", GREEN, Marker::Diamond),
    ("ratelimit, quanta", GREEN, Marker::Up),
    ("leaky-bucket", GREEN, Marker::Cross),
    ("better-bucket", PURPLE, Marker::Circle),
    ("better-bucket, quanta", PURPLE, Marker::Up),
    ("better-bucket, reading at hand", PURPLE, Marker::Diamond),
    ("rate-net", PURPLE, Marker::Down),
    ("rate-net, coarse clock", PURPLE, Marker::Cross),
    ("rate-net, its hasher", PURPLE, Marker::Square),
    ("pingora-limits", GREEN, Marker::Square),
    ("pingora-limits, its hasher", GREEN, Marker::Down),
    ("none: the two readings", BLACK, Marker::Circle),
    (FLOOR, BLACK, Marker::Up),
    ("tollgate, sliding", BLUE, Marker::Down),
    ("tollgate, inline sliding", BLUE, Marker::Cross),
    // Algorithms.
    ("bucket", BLUE, Marker::Up),
    ("at most, burst 15", SKY, Marker::Cross),
    ("fixed utc", VERMILION, Marker::Square),
    ("fixed, first use", ORANGE, Marker::Circle),
    ("weighted", BLACK, Marker::Down),
    ("sliding", GREEN, Marker::Circle),
    ("a log of stamps", GREY, Marker::Circle),
];

/// Modes of fleets, and the decisions in an outage.
const FLEETS: Looks = &[
    ("leased", BLUE, Marker::Circle),
    ("exact", VERMILION, Marker::Square),
    ("leased, 10,000/s", SKY, Marker::Up),
    ("exact, 10,000/s", ORANGE, Marker::Down),
    ("Local, a quarter each", GREEN, Marker::Circle),
    ("Deny", VERMILION, Marker::Circle),
    ("Allow", ORANGE, Marker::Circle),
    ("the server is frozen, and goes on", BLACK, Marker::Cross),
];

/// Returns the look of a contender, a black cross if it is not in the list.
pub(super) fn of(contender: &str) -> Look {
    let found = LOOKS.iter().copied().flatten().find(|(name, ..)| *name == contender);
    found
        .map_or(Look { colour: BLACK, marker: Marker::Cross }, |&(_, colour, marker)| Look { colour, marker })
}

impl Marker {
    /// Returns its corners, in pixels from its middle.
    pub(super) fn corners(self) -> Vec<(i32, i32)> {
        let (corners, turn, radii) = match self {
            Marker::Circle => (12, 0.0, [5.0, 5.0]),
            Marker::Square => (4, 45.0, [6.0, 6.0]),
            Marker::Up => (3, -90.0, [6.0, 6.0]),
            Marker::Down => (3, 90.0, [6.0, 6.0]),
            Marker::Diamond => (4, 0.0, [6.0, 6.0]),
            Marker::Cross => (8, 45.0, [6.0, 2.0]),
        };
        let corner = |n: usize| {
            let angle = (turn + 360.0 * n as f64 / corners as f64).to_radians();
            let radius = radii[n % 2];
            ((radius * angle.cos()).round() as i32, (radius * angle.sin()).round() as i32)
        };
        (0..corners).map(corner).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_look_alike() {
        for looks in LOOKS {
            for (n, (name, colour, marker)) in looks.iter().enumerate() {
                let other = looks[..n].iter().find(|other| (other.1, other.2) == (*colour, *marker));
                assert!(other.is_none(), "{name} looks like {other:?}");
            }
        }
    }
}
