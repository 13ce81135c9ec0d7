//! The settings of reservations.

use std::time::Duration;

/// The settings of reservations. They are read again at each reload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct ReservationSettings {
    /// The longest time of a reservation, and that of one without a time.
    pub(in crate::serve) max_ttl: Duration,
    /// The amount of a reservation that lapses goes back.
    pub(in crate::serve) are_released: bool,
    /// The most reservations of this process that are not settled.
    pub(in crate::serve) most: usize,
}

/// The fates of a reservation that lapses, each with whether its amount goes back.
pub(in crate::serve) const LAPSED: [(&str, bool); 2] = [("charge", false), ("release", true)];
