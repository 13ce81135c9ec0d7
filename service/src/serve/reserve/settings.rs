//! The settings of reservations, as rows of the table of the service.

use std::time::Duration;

use super::super::settings::ServeSettings;
use tollgate_common::settings;
use tollgate_common::settings::table::Set::One;
use tollgate_common::settings::table::Value::Usual;
use tollgate_common::settings::values::{DAY, choice, number, time};

/// The settings of reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct ReservationSettings {
    /// The longest time of a reservation, and that of one without a time.
    pub(in crate::serve) max_ttl: Duration,
    /// The amount of a reservation that lapses goes back.
    pub(in crate::serve) are_released: bool,
    /// The most reservations of this process that are not settled.
    pub(in crate::serve) most: usize,
}

const LAPSED: [(&str, bool); 2] = [("charge", false), ("release", true)];

settings! { pub(in crate::serve) static RESERVATIONS: ServeSettings;
    "max_reservation_ttl", "max-reservation-ttl DURATION" = "TOLLGATE_MAX_RESERVATION_TTL",
        "the longest time of a reservation, and that of one without a time" =>
        One(|to, v, _| time(v, Duration::from_millis(1), DAY).map(|it| to.reservations.max_ttl = it)),
        Usual("1m");
    "lapsed_reservations", "lapsed-reservations charge|release" = "TOLLGATE_LAPSED_RESERVATIONS",
        "the amount of a reservation that no commit settles in time stays charged, or goes back" =>
        One(|to, v, _| choice(v, &LAPSED).map(|it| to.reservations.are_released = it)), Usual("charge");
    "max_reservations", "max-reservations N" = "TOLLGATE_MAX_RESERVATIONS",
        "the most open reservations of this process; further ones are refused" =>
        One(|to, v, _| number(v, 1, 1 << 28).map(|it| to.reservations.most = it)), Usual("1048576");
}
