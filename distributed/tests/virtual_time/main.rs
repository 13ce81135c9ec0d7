//! The limiter in virtual time: tokio's clock is paused, so that it leaps to the next timer.

mod bounds;
mod breaker;
mod counts;
mod disorder;
mod fleet;
mod outage;
mod verbs;
mod world;
