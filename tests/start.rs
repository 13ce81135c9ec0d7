// promise: law
//! The first decisions of a process, made while its counter is calibrated.

#![cfg(not(any(loom, shuttle)))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use tollgate::{Clock, Quota, TokenBucket};

static BUCKET: TokenBucket = TokenBucket::new(Quota::per_second(1_000_000).burst(10));

#[test]
fn time_goes_on_while_the_counter_is_calibrated() {
    let (done, granted) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Instant::now();
    assert!(BUCKET.try_acquire().is_ok(), "the bucket starts full");
    let read = || {
        let mut last = BUCKET.now();
        let mut readings = 0;
        // Reads on after the calibration as well.
        while readings < 10_000 {
            let now = BUCKET.now();
            assert!(now >= last, "{now:?} after {last:?}");
            last = now;
            granted.fetch_add(u64::from(BUCKET.try_acquire().is_ok()), Relaxed);
            readings += u64::from(done.load(Relaxed));
        }
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(read);
        }
        Clock::new().warm();
        done.store(true, Relaxed);
    });
    // The two clocks may differ by one in a hundred.
    let most = 11 + u64::try_from(start.elapsed().as_micros()).unwrap() * 101 / 100;
    let granted = 1 + granted.into_inner();
    println!("{granted} granted of {most}");
    assert!(granted > 10 && granted <= most, "{granted} granted of {most}");
}
