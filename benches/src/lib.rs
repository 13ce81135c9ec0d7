//! `tollgate` timed against other limiters that do the same work.
//!
//! * [`Limiter`] and [`KeyedLimiter`] are what every contender implements, in a file each of [`contenders`].
//! * [`Path`] is what a timed loop asks for: decisions that are all granted, or all refused. It is asserted.
//! * [`timing`] runs the loop on 1 or more threads.
//!
//! `cargo run --release --bin ratios` times ours and theirs in turn, in one run, and prints a table: how many times
//! faster. `cargo bench` gives criterion's statistics of each contender by itself: how fast, and whether that changed.
//!
//! What makes the comparison fair:
//!
//! * every decision of every contender reads a clock and refills; `tests/law.rs` counts what each
//!   contender grants on the real clock against `burst + rate * T`;
//! * both keyed contenders have the same hasher, and room for all keys from the start;
//! * keys are drawn before the timing starts, and each thread has its own order of them;
//! * threads are started and warm before the timing, are let go once all of them are seen to run at the same
//!   time, and the time is that from the first one's start to the last one's end.
//!
//! What it leaves out: more than 2 threads, keys that are new or evicted, and what a decision tells beyond yes or no
//! (`remaining`, `retry_after`).

pub mod contenders;
mod limiter;
mod path;
mod start_line;
pub mod timing;

pub use limiter::{KeyedLimiter, Limiter};
pub use path::Path;
