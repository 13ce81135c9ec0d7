//! Input that is meant to break a limiter: keys that collide, panic or call back.
//!
//! A hang ends the run (see [`tollgate_verify::watchdog`]). One verdict depends on a duration: the
//! bound on colliding keys, of 2 s, in a release build.

mod callbacks;
mod collisions;
mod panics;
