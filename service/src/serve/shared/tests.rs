// promise: replicas
//! Replicas of the service over a store in memory, in virtual time.

mod clear;
mod keys;
mod lists;
mod networks;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tollgate::{Clock, MockClock};
use tollgate_distributed::OnOutage;
use tollgate_testing::Random;

use super::SharedCounts;
use super::service_store::ServiceStore;
use super::settings::StoreSettings;
pub(in crate::serve) use super::test_store::TestStore;
use crate::rules::load::{LoadOptions, load};
use crate::serve::counts::{CountOptions, LimitCounts};
use crate::serve::decide::DecisionOptions;
use crate::serve::in_store::decide_shared;
use crate::serve::loaded::LoadedRules;
use crate::serve::messages::{
    Code, DescriptorEntry, DescriptorStatus, RateLimitDescriptor, RateLimitRequest,
};

/// Returns the settings of the tests.
pub(in crate::serve) fn settings() -> StoreSettings {
    StoreSettings {
        name: "serve".to_owned(),
        lease: Duration::from_millis(100),
        deadline: Duration::from_millis(15),
        on_outage: OnOutage::Local { share: 0.5 },
        ..StoreSettings::default()
    }
}

/// Returns the shared counts of a replica.
pub(in crate::serve) fn replica(
    store: &TestStore,
    settings: &StoreSettings,
    clock: &Clock,
) -> Arc<SharedCounts> {
    SharedCounts::on(ServiceStore::Test(store.of_other()), settings, 10_000, clock).unwrap()
}

/// Replicas on one store, in virtual time.
struct Fleet {
    clock: Clock,
    mock: MockClock,
    store: TestStore,
    replicas: Vec<Replica>,
}

struct Replica {
    counts: LimitCounts,
    rules: LoadedRules,
    shared: Arc<SharedCounts>,
}

const RULES: &str = "domain: d
descriptors:
- key: second
  rate_limit: {unit: second, requests_per_unit: 1000}
- key: minute
  rate_limit: {unit: minute, requests_per_unit: 100}
- key: busy
  rate_limit: {unit: day, requests_per_unit: 1000}
- key: bucket
  rate_limit: {limit: 100/s burst 200}
- key: sliding
  rate_limit: {limit: 100/min sliding}
- key: daily
  rate_limit: {limit: 1000/d fixed utc+2}
- key: multiple
  rate_limit: {unit: minute, unit_multiplier: 3, requests_per_unit: 100}
- key: network
  ipv6_prefix: 64
  rate_limit: {unit: day, requests_per_unit: 100}
- key: list
  rate_limit: {limits: [50/h burst 50, 100/d burst 60, {unit: hour, requests_per_unit: 30}]}
";

impl Fleet {
    fn new(replicas: usize, settings: &StoreSettings) -> Fleet {
        let (clock, mock) = Clock::mock();
        // The begin of a minute.
        mock.advance(Duration::from_secs(1_790_000_040));
        let store = TestStore::new(&clock);
        let mut fleet = Fleet { clock, mock, store, replicas: Vec::new() };
        (0..replicas).for_each(|_| fleet.start(settings));
        fleet
    }

    /// Starts a replica more.
    fn start(&mut self, settings: &StoreSettings) {
        let clock = self.clock.clone();
        let counts = LimitCounts::new(&CountOptions { clock, max_keys: 10_000, ..CountOptions::default() });
        let rules = load(&[("d.yaml".to_owned(), RULES.to_owned())], LoadOptions::default()).unwrap();
        let rules = counts.load(rules).unwrap();
        let shared = replica(&self.store, settings, &self.clock);
        self.replicas.push(Replica { counts, rules, shared });
    }

    /// Asks a replica, and returns whether the hits are granted.
    async fn ask(&self, replica: usize, key: &str, hits: u64) -> bool {
        self.status(replica, key, hits, false).await.code() == Code::Ok
    }

    /// Asks for one hit of a value.
    async fn ask_value(&self, replica: usize, key: &str, value: &str) -> bool {
        self.status_of(replica, (key, value), 1, false).await.code() == Code::Ok
    }

    async fn status(&self, replica: usize, key: &str, hits: u64, is_negative_hits: bool) -> DescriptorStatus {
        self.status_of(replica, (key, "ann"), hits, is_negative_hits).await
    }

    async fn status_of(
        &self,
        replica: usize,
        (key, value): (&str, &str),
        hits: u64,
        is_negative_hits: bool,
    ) -> DescriptorStatus {
        let entry = DescriptorEntry { key: key.to_owned(), value: value.to_owned() };
        let (entries, hits_addend) = (vec![entry], Some(hits));
        let descriptor = RateLimitDescriptor { entries, hits_addend, is_negative_hits, limit: None };
        let request =
            RateLimitRequest { domain: "d".to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
        let Replica { counts, rules, shared } = &self.replicas[replica];
        let options = DecisionOptions::default();
        let decided = decide_shared(rules, counts, shared, &options, &request, counts.now()).await;
        decided.unwrap().statuses.remove(0)
    }

    async fn pass(&self, time: Duration) {
        self.mock.advance(time);
        tokio::time::advance(time).await;
        // The background tasks take their turns.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    fn calls(&self) -> u64 {
        self.store.calls.swap(0, SeqCst)
    }

    /// Asks all replicas in turn for a time, a request each `pause`. Returns the granted hits.
    async fn run(&self, key: &str, time: Duration, pause: Duration) -> u64 {
        let (mut granted, mut passed, mut next) = (0, Duration::ZERO, 0);
        while passed < time {
            granted += u64::from(self.ask(next % self.replicas.len(), key, 1).await);
            (passed, next) = (passed + pause, next + 1);
            self.pass(pause).await;
        }
        granted
    }
}

const MILLI: Duration = Duration::from_millis(1);

/// One hot descriptor at 1,000 requests a second over four replicas.
#[tokio::test(start_paused = true)]
async fn a_busy_key_takes_leases_and_the_limit_holds_in_each_window() {
    let fleet = Fleet::new(4, &settings());
    fleet.run("second", Duration::from_secs(2), MILLI).await;
    fleet.calls();
    let granted = fleet.run("second", Duration::from_secs(5), MILLI).await;
    let calls = fleet.calls();
    println!("{granted} of 5,000 granted with {calls} calls");
    assert!(calls <= 5 * 60, "{calls} calls for 5,000 requests");
    assert!(granted >= 4_750, "{granted} of 5,000");
    for _ in 0..3 {
        // Twice the limit.
        let granted = fleet.run("second", Duration::from_secs(1), MILLI / 2).await;
        assert!((900..=1_000).contains(&granted), "{granted} in a window of 1,000");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_key_costs_no_call_until_its_window_ends() {
    let fleet = Fleet::new(2, &settings());
    for request in 0..100 {
        assert!(fleet.ask(request % 2, "minute", 1).await);
        fleet.pass(20 * MILLI).await;
    }
    assert!(!fleet.ask(0, "minute", 1).await && !fleet.ask(1, "minute", 1).await);
    fleet.calls();
    for request in 0..500 {
        assert!(!fleet.ask(request % 2, "minute", 1).await);
        fleet.pass(100 * MILLI).await;
    }
    assert_eq!(fleet.calls(), 0);
    fleet.pass(Duration::from_secs(10)).await;
    assert!(fleet.ask(0, "minute", 1).await);
    // What was known of the window before is gone.
    fleet.pass(Duration::from_secs(70)).await;
    fleet.replicas.iter().for_each(|replica| replica.shared.sweep());
    assert!(fleet.replicas.iter().all(|replica| replica.shared.known.is_empty()));
}

/// Each rule beside each failure: at most as much is granted as the page of the outage says.
#[tokio::test(start_paused = true)]
async fn no_failure_of_the_store_grants_more_than_the_limit_and_its_share() {
    let second = Duration::from_secs(1);
    for (key, limit, pause) in
        [("minute", 100, 250 * MILLI), ("daily", 1_000, 20 * MILLI), ("sliding", 100, 250 * MILLI)]
    {
        for policy in [OnOutage::Local { share: 0.5 }, OnOutage::Deny, OnOutage::Allow] {
            for lease in [Duration::ZERO, 100 * MILLI] {
                let name = format!("{key}, {policy:?}, {lease:?}");
                let settings = StoreSettings { on_outage: policy, lease, ..settings() };
                let fleet = Fleet::new(2, &settings);
                let before = fleet.run(key, 10 * second, pause).await;
                fleet.store.fails.store(true, SeqCst);
                let during = fleet.run(key, 10 * second, pause).await;
                fleet.store.fails.store(false, SeqCst);
                let asked = (10 * second).as_millis().div_ceil(pause.as_millis()) as u64;
                assert_eq!(before, asked, "{name}");
                let left = limit - before;
                match policy {
                    // Half of the rest, by each of two replicas.
                    OnOutage::Local { .. } => {
                        assert!(during <= left.min(asked), "{name}: {during} of {left}");
                        assert!(during + 2 >= left.min(asked), "{name}: {during} of {left}");
                    }
                    OnOutage::Deny => assert!(during <= 20, "{name}: {during}"),
                    _ => assert_eq!(during, asked, "{name}"),
                }
                let without: u64 =
                    fleet.replicas.iter().map(|each| each.shared.without_store.load(SeqCst)).sum();
                assert!(without * 10 >= asked * 9, "{name}: {without} of {asked} without the store");
                // The breaker closes, and the store is told.
                fleet.pass(second).await;
                fleet.pass(second).await;
                let mut rest = 0;
                for turn in 0..2 * limit {
                    rest += u64::from(fleet.ask(turn as usize % 2, key, 1).await);
                    fleet.pass(MILLI).await;
                }
                let all = before + during + rest;
                let most = if matches!(policy, OnOutage::Allow) { limit.max(before + during) } else { limit };
                assert!(all <= most, "{name}: {all} of {most}");
                assert!(all + 40 >= limit, "{name}: {all} of {limit}");
            }
        }
    }
}

/// A key whose tokens were leased has one share of the rest, however quiet it is before and while
/// the store fails.
#[tokio::test(start_paused = true)]
async fn a_leased_key_has_no_second_share_after_a_pause() {
    for pause in [0, 3, 30] {
        let local = StoreSettings { on_outage: OnOutage::Local { share: 1.0 }, ..settings() };
        let fleet = Fleet::new(1, &local);
        let before = fleet.run("busy", Duration::from_millis(1_800), 2 * MILLI).await;
        assert_eq!(before, 900);
        fleet.pass(Duration::from_secs(pause)).await;
        fleet.store.fails.store(true, SeqCst);
        let mut during = 0;
        for _ in 0..40 {
            for _ in 0..20 {
                during += u64::from(fleet.ask(0, "busy", 1).await);
            }
            fleet.pass(200 * MILLI).await;
        }
        assert!(before + during <= 1_000, "{pause} s: {during} of 100");
        assert!(during >= 50, "{pause} s: {during} of 100");
    }
}

/// An outage over the end of a window: the lease of a busy key decides until then, and the share of
/// the next window is granted once.
#[tokio::test(start_paused = true)]
async fn the_window_after_that_of_a_lease_has_one_share() {
    let fleet = Fleet::new(1, &StoreSettings { on_outage: OnOutage::Local { share: 1.0 }, ..settings() });
    fleet.pass(Duration::from_secs(30)).await;
    assert_eq!(fleet.run("minute", Duration::from_millis(60), MILLI).await, 60);
    fleet.store.fails.store(true, SeqCst);
    fleet.pass(Duration::from_secs(31)).await;
    // The next minute, with pauses in it.
    let mut granted = 0;
    for _ in 0..11 {
        granted += fleet.run("minute", Duration::from_millis(150), MILLI).await;
        fleet.pass(Duration::from_secs(5)).await;
    }
    assert!((90..=100).contains(&granted), "{granted} of 100");
}

/// The policy that grants all does so beyond the limit as well, and tells the store.
#[tokio::test(start_paused = true)]
async fn allow_is_no_limit() {
    let fleet = Fleet::new(1, &StoreSettings { on_outage: OnOutage::Allow, ..settings() });
    fleet.store.fails.store(true, SeqCst);
    for _ in 0..300 {
        assert!(fleet.ask(0, "minute", 1).await);
        fleet.pass(10 * MILLI).await;
    }
    fleet.store.fails.store(false, SeqCst);
    fleet.pass(Duration::from_secs(1)).await;
    fleet.pass(Duration::from_secs(1)).await;
    assert!(!fleet.ask(0, "minute", 1).await);
}

/// Requests in flight that end while the store does not answer give their places back later.
#[tokio::test(start_paused = true)]
async fn hits_that_go_back_without_the_store_go_back_later() {
    let fleet = Fleet::new(1, &settings());
    for _ in 0..100 {
        assert!(fleet.ask(0, "minute", 1).await);
    }
    fleet.status(0, "minute", 1, true).await;
    fleet.store.fails.store(true, SeqCst);
    for _ in 0..10 {
        // The breaker opens.
        fleet.ask(0, "daily", 1).await;
        fleet.pass(20 * MILLI).await;
    }
    assert!(fleet.replicas[0].shared.is_away());
    for _ in 0..30 {
        fleet.status(0, "minute", 1, true).await;
    }
    // 10 were granted without the store.
    fleet.store.fails.store(false, SeqCst);
    for _ in 0..30 {
        fleet.pass(100 * MILLI).await;
    }
    assert!(!fleet.replicas[0].shared.is_away());
    let mut granted = 0;
    for _ in 0..100 {
        granted += u64::from(fleet.ask(0, "minute", 1).await);
    }
    assert_eq!(granted, 31);
    let left = fleet.status(0, "daily", 0, false).await.limit_remaining;
    assert!((970..=990).contains(&left), "{left}");
}

/// A key that becomes busy while the store does not answer has one share, not another by a lease.
#[tokio::test(start_paused = true)]
async fn a_burst_without_the_store_has_one_share() {
    for was_busy in [false, true] {
        let fleet = Fleet::new(2, &settings());
        if was_busy {
            assert_eq!(fleet.run("daily", Duration::from_secs(1), 2 * MILLI).await, 500);
        }
        fleet.store.fails.store(true, SeqCst);
        let mut granted = 0;
        for request in 0..6_000 {
            granted += usize::from(fleet.ask(request % 2, "daily", 1).await);
            if request % 10 == 0 {
                fleet.pass(MILLI * if request < 3_000 { 1 } else { 20 }).await;
            }
        }
        let left = if was_busy { 500 } else { 1_000 };
        // Those at hand of its leases are beside its share.
        let at_hand = if was_busy { 60 } else { 0 };
        assert!(granted <= left + at_hand && granted * 10 >= left * 9, "{was_busy}: {granted} of {left}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_ends_tells_its_hits_and_gives_its_leases_back() {
    let mut fleet = Fleet::new(2, &settings());
    let second = Duration::from_secs(1);
    let before = fleet.run("daily", second, 2 * MILLI).await;
    assert_eq!(before, 500);
    for replica in fleet.replicas.drain(..) {
        replica.shared.shutdown().await;
    }
    fleet.start(&settings());
    let mut granted = 0;
    for _ in 0..1_000 {
        granted += u64::from(fleet.ask(0, "daily", 1).await);
        fleet.pass(30 * MILLI).await;
    }
    assert_eq!(granted, 500);
}

/// Hits that come after the fact, by another replica than the one that was asked.
#[tokio::test(start_paused = true)]
async fn each_use_of_hits_is_seen_by_the_other_replica() {
    for lease in [Duration::ZERO, 100 * MILLI] {
        let fleet = Fleet::new(2, &StoreSettings { lease, ..settings() });
        for key in ["minute", "bucket", "sliding", "daily", "multiple"] {
            let left = fleet.status(0, key, 10, false).await.limit_remaining;
            assert_eq!(fleet.status(1, key, 5, false).await.limit_remaining, left - 5, "{key}");
            assert_eq!(fleet.status(0, key, 8, true).await.limit_remaining, left + 3, "{key}");
            assert_eq!(fleet.status(1, key, 0, false).await.limit_remaining, left + 3, "{key}");
        }
    }
}

/// Requests in flight: each one counts, also one that is refused, and each one comes back, by
/// whichever replica. From the first that came back on, no refusal is known to one replica alone.
#[tokio::test(start_paused = true)]
async fn hits_that_come_back_from_refused_requests_free_no_place() {
    for lease in [Duration::ZERO, 100 * MILLI] {
        let fleet = Fleet::new(2, &StoreSettings { lease, ..settings() });
        for replica in 0..2 {
            fleet.ask(replica, "minute", 1).await;
            fleet.status(replica, "minute", 1, true).await;
        }
        let (mut random, mut in_flight, mut most) = (Random(7), Vec::new(), 0);
        for _ in 0..3_000 {
            let replica = random.below(2) as usize;
            // More begin than end, up to twice the limit.
            if random.below(200) >= in_flight.len() as u64 {
                in_flight.push(fleet.ask(replica, "minute", 1).await);
            } else {
                in_flight.swap_remove(random.below(in_flight.len() as u64) as usize);
                fleet.status(replica, "minute", 1, true).await;
            }
            most = most.max(in_flight.iter().filter(|is_granted| **is_granted).count());
        }
        assert!((90..=100).contains(&most), "{lease:?}: {most} of 100 in flight");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_keys_is_bounded_and_each_is_limited() {
    let fleet = Fleet::new(1, &settings());
    let Replica { shared, .. } = &fleet.replicas[0];
    for number in 0..20_000_u32 {
        let mut key = [0; 16];
        key[..4].copy_from_slice(&number.to_le_bytes());
        shared.with_known((key, 1), |known| known.is_leased(shared.now(), 0, false, false));
    }
    assert!(shared.known.len() <= 10_000 / 3, "{}", shared.known.len());
    // Keys without room share counts while the store does not answer.
    fleet.store.fails.store(true, SeqCst);
    let mut granted = 0;
    for _ in 0..200 {
        granted += usize::from(fleet.ask_value(0, "minute", "new").await);
    }
    assert_eq!((granted, shared.lent().len()), (50, 0));
    fleet.store.fails.store(false, SeqCst);
    fleet.pass(Duration::from_secs(1)).await;
    fleet.pass(Duration::from_secs(1)).await;
    for _ in 0..100 {
        assert!(fleet.ask(0, "minute", 1).await);
    }
    assert!(!fleet.ask(0, "minute", 1).await);
}
