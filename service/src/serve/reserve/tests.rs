//! Tests of reservations.
