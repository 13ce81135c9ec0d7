//! `tollgate` timed against other limiters that do the same work.
//!
//! * [`Limiter`] is the trait of every contender, in a file each of [`contenders`].
//! * [`law`] counts the grants of a contender on the real clock against `burst + rate * T`. A
//!   contender that does not limit is reported, and not timed.
//! * [`Path`] is the outcome of a timed loop: decisions that are all granted, or all refused. It is
//!   asserted.
//! * [`timing`] runs the loop on 1 or more threads, [`scenarios`] measure with it, and [`results`]
//!   hold the numbers.
//! * [`report`] makes them [`rows`] of a CSV file. `scripts/tables` fills the tables of the page
//!   from the files of all runs, and `scripts/plot` draws.
//!
//! `cargo run --release --bin performance` does it all. `cargo bench` gives criterion's statistics
//! of each contender by itself, and their change.
//!
//! The comparison is fair, because:
//!
//! * every decision of every contender reads a clock and refills, unless its name says that it does
//!   not: at hand, batches, and spread, which reads one for each batch of tokens;
//! * all keyed contenders have the same hasher, unless their name says another, and room for all
//!   keys from the start;
//! * keys are drawn before the timing starts, each thread's own;
//! * threads are started and warm before the timing; if there is a processor for each, they start
//!   once all are seen to run at the same time;
//! * all contenders are timed in turn, in each of many rounds, in another order each time: other
//!   load of the machine falls on all of them. Ratios are taken in each round.

pub mod contenders;
pub mod keys;
pub mod law;
mod limiter;
pub mod numbers;
mod path;
pub mod report;
pub mod results;
pub mod rows;
pub mod scenarios;
mod start_line;
pub mod timing;

pub use limiter::{Contender, Limiter, Setup};
pub use path::Path;
