//! A step back of the clock: rows with a time in the future.

use std::time::{Duration, Instant};

use tollgate::Quota;
use tollgate_distributed::Spec;

use super::world::{World, ask, exactly, now_us};

const SECOND: Duration = Duration::from_secs(1);

/// After a step back of a second or less a bucket waits. After a longer one it refills from the new
/// time. Neither earns a token.
pub(crate) async fn a_step_back_mints_nothing_and_stalls_a_second(world: &mut impl World) {
    // One token every 10 ms.
    let spec = Spec::new(Quota::per_second(100).burst(10), 0).unwrap();
    for (key, left, by_us) in
        [("short", 5, 900_000), ("long", 5, 10_000_000), ("empty", 0, 10_000_000), ("hour", 5, 3_600_000_000)]
    {
        let key = key.as_bytes();
        ask(world.store(), key, spec, exactly(10 - left)).await;
        let mut rows = world.rows().await;
        rows.retain(|id, _| id == key);
        rows.get_mut(key).unwrap().last_us = now_us() as i64 + by_us;
        world.put(&rows).await;
        let begin = Instant::now();
        assert_eq!(ask(world.store(), key, spec, exactly(left + 1)).await.granted, 0, "a token of no time");
        let taken = ask(world.store(), key, spec, exactly(left)).await;
        assert_eq!(taken.granted, left, "the tokens that were left");
        while ask(world.store(), key, spec, exactly(1)).await.granted == 0 {
            assert!(begin.elapsed() < 2 * SECOND, "a stall at a step of {by_us} us");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let stall = begin.elapsed();
        let waited = if by_us <= 1_000_000 { stall > Duration::from_millis(850) } else { stall < SECOND / 2 };
        assert!(stall < SECOND + SECOND / 2 && waited, "a stall of {stall:?} at a step of {by_us} us");
    }
}
