// promise: bounded
//! A flood of keys against the counts of the rate limit service: memory stays that of the keys with
//! room, and a limit of fixed values is exact. `FULL` in the environment makes the flood one
//! of 10^7 keys.
//!
//! The memory is the allocator's count and the process's resident size, so this is a program of its
//! own.

#[path = "common/resident.rs"]
mod resident;

use std::ops::Range;
use std::time::Duration;

use allocation_counter::measure;
use tollgate::{Clock, MockClock};
use tollgate_testing::size;
use tollgate_verify::watchdog::Watchdog;

use crate::resident::resident;
use tollgate_server::rules::load::{LoadOptions, load};
use tollgate_server::serve::counts::{CountOptions, LimitCounts};
use tollgate_server::serve::decide::{DecisionOptions, decide};
use tollgate_server::serve::loaded::LoadedRules;
use tollgate_server::serve::messages::{DescriptorEntry, RateLimitDescriptor, RateLimitRequest};

const ROOM: u64 = 50_000;
/// The flooding keys between two requests of the limit of fixed values.
const BETWEEN: u64 = 100;
/// The limit of the fixed values, which no test reaches.
const LIMIT: u32 = 1_000_000_000;

struct Service {
    counts: LimitCounts,
    rules: LoadedRules,
    clock: MockClock,
}

impl Service {
    /// Returns a service with a limit of fixed values, and one of any, in one unit.
    fn new(unit: &str, max_keys: u64) -> Service {
        let (clock, mock) = Clock::mock();
        let max_keys = usize::try_from(max_keys).expect("they fit");
        let counts = LimitCounts::new(&CountOptions { max_keys, clock, ..CountOptions::default() });
        let limit = format!("rate_limit: {{unit: {unit}, requests_per_unit: {LIMIT}}}");
        let text =
            format!("domain: d\ndescriptors: [{{key: a, value: v, {limit}}}, {{key: any, {limit}}}]\n");
        let loaded = load(&[("a.yaml".to_owned(), text)], LoadOptions::default()).expect("rules");
        let rules = counts.load(loaded).expect("no texts");
        Service { counts, rules, clock: mock }
    }

    /// Asks for one hit, and returns the hits that are left.
    fn ask(&self, key: &str, value: &str) -> u32 {
        let entries = vec![DescriptorEntry { key: key.to_owned(), value: value.to_owned() }];
        let descriptor = RateLimitDescriptor { entries, ..RateLimitDescriptor::default() };
        let request =
            RateLimitRequest { domain: "d".to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
        let options = DecisionOptions::default();
        let answer = decide(&self.rules, &self.counts, &options, &request, self.counts.now());
        answer.expect("a decision").statuses[0].limit_remaining
    }

    /// Asks for each key once and sweeps. Returns the bytes that were allocated at most, and that
    /// stay.
    fn flood(&self, keys: Range<u64>, step: Duration) -> [i64; 2] {
        let used = measure(|| {
            for key in keys {
                self.ask("any", &key.to_string());
                self.clock.advance(step);
            }
            self.counts.sweep_if_tight();
        });
        [i64::try_from(used.bytes_max).expect("bytes"), used.bytes_current]
    }
}

#[test]
fn a_flood_of_keys_is_bounded_and_reaches_no_limit_of_fixed_values() {
    let _watchdog = Watchdog::of("a flood of keys", 3_600);
    let keys = size(10 * ROOM, 10_000_000);
    // While the clock stands no key is evicted. In the seconds of the other one keys come and go. A
    // sweep takes as many as there are, which wait to be freed, and the map is copied meanwhile.
    let floods = [("year", Duration::ZERO, 64, 40), ("second", Duration::from_micros(100), 192, 112)];
    for (unit, step, each, later) in floods {
        let service = Service::new(unit, ROOM);
        let (mut held, mut most, mut filled, mut window) = (0, 0, None, (0, 0));
        for first in (0..keys).step_by(BETWEEN as usize) {
            let [above, more] = service.flood(first..first + BETWEEN, step);
            (most, held) = (most.max(held + above), held + more);
            let second = if unit == "second" { service.counts.now().0 } else { 0 };
            window = if window.0 == second { (second, window.1 + 1) } else { (second, 1) };
            assert_eq!(service.ask("a", "v"), LIMIT - window.1, "after {first} keys, {window:?}");
            if first == 5 * ROOM {
                filled = resident();
            }
        }
        let more = resident().zip(filled).map(|(end, filled)| end - filled);
        let page = service.counts.prometheus(false);
        let told = page.lines().find(|line| line.contains(&format!("keys{{unit=\"{unit}\"}}")));
        let told: u64 =
            told.and_then(|line| line.rsplit_once(' ')?.1.parse().ok()).expect("a number of keys");
        println!("{keys} keys of a {unit}: {most} bytes at most, {more:?} more in memory, {told} keys");
        assert!(told <= ROOM + 1, "{told}");
        assert!(most <= each * ROOM as i64, "{most} bytes for {ROOM} keys");
        assert!(more.is_none_or(|more| more <= later * ROOM as i64), "{more:?} bytes more for {ROOM} keys");
    }
}
