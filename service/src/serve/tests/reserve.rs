// promise: replicas
//! Reservations of tokens, in one process and over a store, in virtual time.

mod calls;
mod cases;
mod crossed;
mod store;
mod walk;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tollgate::{Clock, MockClock};

use super::super::counts::{CountOptions, LimitCounts};
use super::super::options::ServeOptions;
use super::super::reserve::messages::{
    CommitRequest, CommitResponse, Outcome, ReserveRequest, ReserveResponse, Time,
};
use super::super::shared::settings::{Layout, StoreSettings};
use super::super::shared::tests::{self as shared, TestStore, replica};
use super::super::sources;
use super::super::state::{Configured, Files, Service};
use super::client::request;
use super::variables;
use crate::rules::load::{LoadOptions, load};
use crate::serve::messages::{Code, RateLimitDescriptor, RateLimitRequest};

const RULES: &str = "domain: d
descriptors:
- key: minute
  rate_limit: {unit: minute, requests_per_unit: 100}
- key: hour
  rate_limit: {unit: hour, requests_per_unit: 1000}
- key: bucket
  rate_limit: {limit: 60/min burst 100}
- key: sliding
  rate_limit: {limit: 100/min sliding}
- key: fixed
  rate_limit: {limit: 100/min fixed utc}
- key: first
  rate_limit: {limit: 100/min fixed}
- key: free
  rate_limit: {unlimited: true}
- key: shadow
  shadow_mode: true
  rate_limit: {unit: minute, requests_per_unit: 100}
- key: quota
  quota_mode: true
  rate_limit: {unit: minute, requests_per_unit: 100}
- key: named
  rate_limit: {name: named, unit: minute, requests_per_unit: 100}
- key: replaces
  rate_limit: {unit: minute, requests_per_unit: 50, replaces: [{name: named}]}
- key: network
  ipv4_prefix: 24
  rate_limit: {unit: minute, requests_per_unit: 100}
- key: shared
  value: 'a*'
  share_threshold: true
  rate_limit: {unit: minute, requests_per_unit: 100}
";
const SECOND: Duration = Duration::from_secs(1);

/// Services on one clock, and on one store if there is one.
struct World {
    mock: MockClock,
    clock: Clock,
    store: Option<TestStore>,
    layout: Layout,
    services: Vec<Arc<Service>>,
    given: Vec<(&'static str, &'static str)>,
}

impl World {
    /// Returns one service without a store.
    fn new(given: &[(&'static str, &'static str)]) -> World {
        World::of(1, false, given)
    }

    /// Returns two services on a store.
    fn of_store(given: &[(&'static str, &'static str)]) -> World {
        World::of(2, true, given)
    }

    fn of(services: usize, has_store: bool, given: &[(&'static str, &'static str)]) -> World {
        World::of_layout(services, has_store.then(Layout::default), given)
    }

    fn of_layout(services: usize, layout: Option<Layout>, given: &[(&'static str, &'static str)]) -> World {
        let (clock, mock) = Clock::mock();
        // The begin of an hour.
        mock.advance(Duration::from_secs(1_790_002_800));
        let store = layout.map(|_| TestStore::new(&clock));
        let (layout, given) = (layout.unwrap_or_default(), given.to_vec());
        let mut world = World { mock, clock, store, layout, services: Vec::new(), given };
        for _ in 0..services {
            world.start();
        }
        world
    }

    /// Starts a service more.
    fn start(&mut self) {
        let counts = LimitCounts::new(&CountOptions {
            clock: self.clock.clone(),
            max_keys: 10_000,
            ..CountOptions::default()
        });
        let mut service = Service::of(self.settings(), counts);
        if let Some(store) = &self.store {
            let settings = StoreSettings {
                lease: Duration::ZERO,
                caches_over: false,
                layout: self.layout,
                ..shared::settings()
            };
            service.shared = Some(replica(store, &settings, &self.clock));
        }
        self.services.push(Arc::new(service));
        self.load(self.services.len() - 1, RULES);
    }

    fn settings(&self) -> super::super::settings::ServeSettings {
        let options = ServeOptions { paths: vec![PathBuf::from("d.yaml")], ..ServeOptions::default() };
        sources::load(&options, &variables(&self.given)).unwrap()
    }

    /// Loads other rules.
    fn load(&self, service: usize, rules: &str) {
        let rules = load(&[("d.yaml".to_owned(), rules.to_owned())], LoadOptions::default()).unwrap();
        let loaded = Some(self.services[service].counts.load(rules).unwrap());
        let (settings, files) = (self.settings(), Files::default());
        self.services[service].set(Configured { settings, files, loaded, version: String::new() });
    }

    async fn pass(&self, time: Duration) {
        self.mock.advance(time);
        tokio::time::advance(time).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    /// Lapses what is over, on each service.
    async fn lapse(&self) {
        for service in &self.services {
            service.lapse(service.counts.nanos() / 1_000_000).await;
        }
    }

    fn fail_store(&self, fails: bool) {
        self.store.as_ref().unwrap().fails.store(fails, SeqCst);
    }

    /// Lets the answers of the store come later than the effects of its calls.
    fn delay_store(&self, delay_ms: u64) {
        self.store.as_ref().unwrap().delay_ms.store(delay_ms, SeqCst);
    }

    async fn reserve_on(&self, service: usize, keys: &[&str], amount: u64, ttl: u64) -> ReserveResponse {
        let RateLimitRequest { domain, descriptors, .. } = asked(keys);
        let ttl = (ttl > 0).then_some(Time { seconds: ttl as i64, nanos: 0 });
        self.services[service].reserve(ReserveRequest { domain, descriptors, amount, ttl }).await.unwrap()
    }

    /// Reserves for 10 s on the first service, and returns the id if the amount is granted.
    async fn reserve(&self, keys: &[&str], amount: u64) -> Option<String> {
        let answer = self.reserve_on(0, keys, amount, 10).await;
        let is_granted = answer.code() == Code::Ok;
        assert_eq!(is_granted, !answer.reservation_id.is_empty());
        is_granted.then(|| text_of(answer.reservation_id))
    }

    async fn commit_on(&self, service: usize, keys: &[&str], id: &str, actual: u64) -> Outcome {
        let RateLimitRequest { domain, descriptors, .. } = asked(keys);
        let (reservation_id, actual_amount) = (id.to_owned(), actual);
        let request = CommitRequest { domain, descriptors, reservation_id, actual_amount };
        let answer: CommitResponse = self.services[service].commit(request).await.unwrap();
        assert_eq!(answer.reservation_released, answer.outcome() == Outcome::Committed);
        answer.outcome()
    }

    /// Commits on the last service.
    async fn commit(&self, keys: &[&str], id: &str, actual: u64) -> Outcome {
        self.commit_on(self.services.len() - 1, keys, id, actual).await
    }

    /// Returns the tokens that are left.
    async fn left(&self, key: &str) -> u32 {
        let mut request = asked(&[key]);
        request.descriptors[0].hits_addend = Some(0);
        self.services[0].ask(&request).await.unwrap().statuses[0].limit_remaining
    }

    /// Adds hits as a proxy does.
    async fn hit(&self, key: &str, hits: u64) -> Code {
        let mut request = asked(&[key]);
        request.descriptors[0].hits_addend = Some(hits);
        self.services[0].ask(&request).await.unwrap().overall_code()
    }

    /// Returns a number of the metrics.
    fn metric(&self, service: usize, name: &str) -> u64 {
        let text = super::super::pages::metrics(&self.services[service]);
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }
}

/// Returns an id as a text.
fn text_of(id: Vec<u8>) -> String {
    String::from_utf8(id).unwrap()
}

/// Returns a request of descriptors, each of a key and, behind `=`, a value.
fn asked(keys: &[&str]) -> RateLimitRequest {
    let mut all = request("d", &[]);
    all.descriptors =
        keys.iter().flat_map(|key| of_key(key).descriptors).collect::<Vec<RateLimitDescriptor>>();
    all
}

fn of_key(key: &str) -> RateLimitRequest {
    request("d", &[key.split_once('=').unwrap_or((key, "ann"))])
}
