// promise: bounded
//! Allocations of a request in flight: the global allocator counts them for each thread by itself.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use allocation_counter::measure;
use tollgate::{Clock, Places, RateLimiter};
use tollgate_adaptive::{Enter, Inflight, Outcome, Priority};

fn allocates_nothing(what: &str, work: impl FnOnce()) {
    let counted = measure(work);
    assert_eq!((counted.count_total, counted.bytes_current), (0, 0), "{what} allocates");
}

#[test]
fn a_request_in_flight_allocates_nothing() {
    let (clock, mock) = Clock::mock();
    let target = Duration::from_millis(100);
    let adaptive = Inflight::adaptive(target, 100).start(8).clock(clock).build().unwrap();
    let keys = RateLimiter::<String, _>::new(Places::new(2));
    let held = keys.try_enter("the key of some length").unwrap();
    for limit in [Arc::new(adaptive), Arc::new(Inflight::fixed(8))] {
        allocates_nothing("a request in flight", || {
            for round in 0..1_000_u32 {
                let mut flights = [(); 9].map(|()| black_box(limit.try_enter()));
                let _ = black_box(limit.try_enter_owned(Priority::Background));
                mock.advance(Duration::from_millis(round.into()));
                let outcome = Outcome::ALL[round as usize % 3];
                for flight in flights.iter_mut().take(4).flatten() {
                    flight.note(outcome);
                }
                flights.into_iter().flatten().for_each(|flight| flight.end(outcome));
                let _ = black_box((limit.stats(), limit.target()));
            }
        });
        assert_eq!(limit.in_flight(), 0);
        assert_eq!(limit.target().is_some(), limit.stats().fell > 0, "the one that adapts has decided");
    }
    allocates_nothing("a request of a key", || {
        for _ in 0..20 {
            let second = black_box(keys.try_enter("the key of some length"));
            assert!(black_box(keys.try_enter("the key of some length")).is_err());
            drop(second);
            drop(black_box(keys.try_enter_owned("the key of some length")));
        }
    });
    drop(held);
}

#[test]
fn a_limit_is_one_word() {
    let counted = measure(|| {
        let limit = Box::new(Inflight::fixed(2));
        assert!(limit.try_enter().is_ok());
    });
    assert!(counted.bytes_max <= 512, "{} bytes", counted.bytes_max);
}
