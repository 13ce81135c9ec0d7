//! The limiter in virtual time.

mod bounds;
mod world;
