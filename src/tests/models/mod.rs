//! Models of the production code, on a clock that moves while the threads run.
//!
//! loom tries every interleaving within a bound on preemptions, and the effects of weak memory:
//! `RUSTFLAGS="--cfg loom --cfg rmw_loads" cargo test --lib --release`, and without `rmw_loads`
//! (see `src/sync.rs`). shuttle tries random ones: `RUSTFLAGS="--cfg shuttle" cargo test --lib
//! --release`. `src/fault.rs` breaks the rules that they check.

mod attempts;
mod bucket;
#[cfg_attr(loom, path = "loom.rs")]
#[cfg_attr(shuttle, path = "shuttle.rs")]
mod checker;
mod limiter;
mod line;
mod map;
mod moves;
mod places;
mod plans;
mod regime;
mod ring;
mod spread;
mod table;
mod verbs;
mod windows;
mod world;

use std::sync::Arc;

use checker::{explore, explore_within, thread};

/// Runs each function in a thread of its own, and waits for all.
fn run<W: Send + Sync + 'static>(world: &Arc<W>, threads: &[fn(&W)]) {
    let spawn = |run: &fn(&W)| {
        let (world, run) = (Arc::clone(world), *run);
        thread::spawn(move || run(&world))
    };
    let threads: Vec<_> = threads.iter().map(spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
