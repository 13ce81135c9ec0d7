//! The time of a place in flight: taken and left, refused, and with its outcome noted.
//!
//! ```text
//! cargo run --release --manifest-path benches/Cargo.toml --bin inflight
//! ```
//!
//! Each round times every kind in turn, and then an empty loop, on one thread. The least of the
//! rounds is the cost without other work of the machine, and the median is beside it. The empty
//! loop is taken off.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate::Clock;

use tollgate_adaptive::{Inflight, Priority};

const ROUNDS: usize = 401;
const CALLS: u32 = 100_000;

/// Returns the nanoseconds of a call.
fn time(mut call: impl FnMut()) -> f64 {
    let begin = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    begin.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

/// Enters, and leaves without an outcome.
fn pass(limit: &Inflight) {
    drop(black_box(black_box(limit).try_enter()));
}

fn main() {
    Clock::new().warm();
    let adaptive =
        |ceiling| Arc::new(Inflight::adaptive(Duration::from_secs(1), ceiling).build().expect("a limit"));
    let (fixed, adapts) = (Arc::new(Inflight::fixed(100)), adaptive(100));
    let (full, full_adapts) = (Inflight::fixed(1), adaptive(1));
    let _held = (full.try_enter().expect("a place"), full_adapts.try_enter().expect("a place"));
    let refused = |limit: &Inflight| assert!(black_box(black_box(limit).try_enter()).is_err());
    let kinds: [(&str, &dyn Fn()); 8] = [
        ("fixed: enter and leave", &|| pass(&fixed)),
        ("fixed: enter and leave, owned", &|| {
            drop(black_box(black_box(&fixed).try_enter_owned(Priority::Default)));
        }),
        ("fixed: refused", &|| refused(&full)),
        ("adaptive: enter and leave, given up", &|| pass(&adapts)),
        ("adaptive: enter and leave, answered", &|| {
            if let Ok(flight) = black_box(black_box(&adapts).try_enter()) {
                flight.answered();
            }
        }),
        ("adaptive: refused", &|| refused(&full_adapts)),
        ("a reading of the clock", &|| {
            black_box(Clock::new().now());
        }),
        ("nothing", &|| {
            black_box(());
        }),
    ];
    let rounds: Vec<[f64; 8]> = (0..ROUNDS).map(|_| kinds.map(|(_, call)| time(call))).collect();
    let of = |kind: usize| {
        let mut times: Vec<f64> = rounds.iter().map(|times| times[kind]).collect();
        times.sort_by(f64::total_cmp);
        [times[0], times[ROUNDS / 2]]
    };
    let nothing = of(7);
    println!("{:<37} least  median, ns", "");
    for (kind, (name, _)) in kinds.iter().enumerate().take(7) {
        let [least, median] = of(kind);
        println!("{name:<37} {:5.1}  {:6.1}", least - nothing[0], median - nothing[1]);
    }
}
