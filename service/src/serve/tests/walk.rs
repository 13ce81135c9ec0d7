//! A random walk beside the model: rules, requests and time.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tollgate::{Clock, MockClock};
use tollgate_testing::Random;

use super::model::{Answer, Fault, Model};
use super::rules::{UNITS, json_of, level, number};
use crate::rules::load::{LoadOptions, load};
use crate::serve::counts::{Algorithm, CountOptions, LimitCounts};
use crate::serve::decide::{DecisionOptions, decide};
use crate::serve::in_store::decide_shared;
use crate::serve::loaded::LoadedRules;
use crate::serve::messages::{
    DescriptorEntry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, RateLimitResponse,
};
use crate::serve::shared::SharedCounts;
use crate::serve::shared::settings::StoreSettings;
use crate::serve::shared::tests::{self as shared, TestStore, replica};

const STEPS: u32 = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };

#[test]
fn a_random_walk_agrees_with_the_model() {
    Walk::new(1, None).steps(STEPS).unwrap();
}

/// Each request counts in the store, so two replicas that are asked in turn are one service.
#[test]
fn a_random_walk_of_two_replicas_agrees_with_the_model() {
    Walk::of_replicas(4, None).steps(STEPS / 2).unwrap();
}

#[test]
fn a_walk_sees_each_fault_of_the_model() {
    Walk::new(2, None).steps(20_000).unwrap();
    for fault in [
        Fault::CountStopsAtTheLimit,
        Fault::RefusalDoesNotCount,
        Fault::NegativeHitsBelowZero,
        Fault::ResetOfAnUnusedKey,
    ] {
        assert!(Walk::new(2, Some(fault)).steps(20_000).is_err(), "{fault:?} is not seen");
        assert!(Walk::of_replicas(2, Some(fault)).steps(20_000).is_err(), "{fault:?} is not seen");
    }
}

/// Sums are checked in this build.
#[test]
fn no_bytes_of_a_message_panic() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::TokenBucket] {
        let mut walk = Walk::with(Random(3), None, algorithm);
        let mut decided = 0;
        for step in 0..STEPS / 2 {
            if step % 1_000 == 0 {
                walk.reload();
            }
            let mut request = walk.request();
            for descriptor in &mut request.descriptors {
                descriptor.hits_addend = Some(walk.random.next() >> walk.random.below(64));
            }
            let mut bytes = request.encode_to_vec();
            for _ in 0..walk.random.below(3) {
                let at = walk.random.below(bytes.len() as u64) as usize;
                bytes[at] = walk.random.next() as u8;
            }
            walk.clock.advance(Duration::from_nanos(walk.random.any_below(1 << 50)));
            let Ok(request) = RateLimitRequest::decode(&*bytes) else { continue };
            let now = walk.counts.now();
            let answer = decide(&walk.rules, &walk.counts, &walk.model.options, &request, now);
            decided += u32::from(answer.is_ok());
        }
        assert!(decided > STEPS / 8, "{decided} decisions");
    }
}

struct Walk {
    random: Random,
    clock: MockClock,
    counts: LimitCounts,
    rules: LoadedRules,
    /// The replicas on a store, which are asked in turn in place of a service without one.
    replicas: Vec<Arc<SharedCounts>>,
    runtime: Runtime,
    /// The names of rules whose statistics are kept.
    names: HashSet<String>,
    model: Model,
}

impl Walk {
    fn new(seed: u64, fault: Option<Fault>) -> Walk {
        Walk::with(Random(seed), fault, Algorithm::FixedWindow)
    }

    fn with(random: Random, fault: Option<Fault>, algorithm: Algorithm) -> Walk {
        let (clock, mock) = Clock::mock();
        mock.advance(Duration::from_secs(1_790_000_000));
        let counts = LimitCounts::new(&CountOptions { max_keys: 1 << 16, clock, algorithm });
        let rules = counts.load(load(&[], LoadOptions::default()).unwrap()).unwrap();
        let model = Model { fault, ..Model::default() };
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (names, replicas) = (HashSet::new(), Vec::new());
        Walk { random, clock: mock, counts, rules, replicas, runtime, names, model }
    }

    /// A store carries no count to another unit, and this walk keeps no refusal for later.
    fn of_replicas(seed: u64, fault: Option<Fault>) -> Walk {
        let mut walk = Walk::new(seed, fault);
        let clock = &walk.counts.options.clock;
        let store = TestStore::new(clock);
        let settings = StoreSettings { lease: Duration::ZERO, caches_over: false, ..shared::settings() };
        let _inside = walk.runtime.enter();
        walk.replicas = (0..2).map(|_| replica(&store, &settings, clock)).collect();
        walk.model.is_shared = true;
        drop(_inside);
        walk
    }

    /// Decides by the next replica, or by the service without a store.
    fn decide(&mut self, request: &RateLimitRequest) -> RateLimitResponse {
        let Walk { rules, counts, model, .. } = self;
        let decided = match self.replicas.first() {
            Some(shared) => self.runtime.block_on(async {
                decide_shared(rules, counts, shared, &model.options, request, counts.now()).await
            }),
            None => decide(rules, counts, &model.options, request, counts.now()),
        };
        self.replicas.reverse();
        decided.unwrap()
    }

    /// Returns an error at the first step on which both differ.
    fn steps(&mut self, steps: u32) -> Result<(), String> {
        for step in 0..steps {
            if step % 500 == 0 {
                self.check_statistics()?;
                self.reload();
            }
            let nanos = match self.random.below(200) {
                0 => self.random.below(400 * 86_400_000_000_000),
                1..5 => self.random.below(7_200_000_000_000),
                5..40 => self.random.below(2_000_000_000),
                _ => 0,
            };
            self.clock.advance(Duration::from_nanos(nanos));
            let request = self.request();
            let now = self.counts.now();
            let answer = self.decide(&request);
            let expected = self.model.decide(&request, now.0);
            if plain(&answer) != expected {
                return Err(format!(
                    "step {step}: {request:?}\n{answer:?}\n{expected:?}\n{:?}",
                    self.model.rules
                ));
            }
        }
        self.check_statistics()
    }

    fn check_statistics(&self) -> Result<(), String> {
        let mut expected: Vec<String> = Vec::new();
        for (name, numbers) in &self.model.statistics {
            let rows = [
                "total_hits",
                "over_limit",
                "near_limit",
                "within_limit",
                "shadow_mode",
                "total_negative_hits",
            ];
            let line = |(row, number)| format!("ratelimit.service.rate_limit.{name}.{row}: {number}");
            expected.extend(rows.iter().zip(numbers).filter(|(_, number)| **number > 0).map(line));
        }
        expected.sort();
        let lines = self.counts.statistics.lines();
        let is_told = |line: &&str| line.contains(".rate_limit.d.") && !line.ends_with(": 0");
        let mut told: Vec<_> = lines.lines().filter(is_told).collect();
        told.sort();
        if told == expected { Ok(()) } else { Err(format!("{told:#?}\n{expected:#?}")) }
    }

    fn reload(&mut self) {
        let rules = level(&mut self.random, 0);
        let text =
            json!({"domain": "d", "descriptors": rules.iter().map(json_of).collect::<Vec<_>>()}).to_string();
        let loaded = load(&[("d.yaml".to_owned(), text)], LoadOptions::default()).unwrap();
        let is_named = |name: &str| !name.is_empty();
        let names: HashSet<String> = loaded
            .limits()
            .filter(|limit| matches!(limit.statistics.of(std::iter::empty()), std::borrow::Cow::Borrowed(_)))
            .map(|limit| limit.statistics.text().to_owned())
            .filter(|name| is_named(name))
            .collect();
        self.model.statistics.retain(|name, _| names.contains(name) || !self.names.contains(name));
        self.names = names;
        self.rules = self.counts.load(loaded).unwrap();
        self.model.rules = rules;
        let mut one_in = |n| self.random.below(n) == 0;
        self.model.options = DecisionOptions {
            near_limit_ratio: if one_in(2) { 0.8 } else { 0.5 },
            stops_when_over: one_in(3),
            headers: one_in(2).then(Default::default),
            is_shadow: one_in(5),
            is_quota: one_in(5),
            tells_metadata: false,
            tells_decision: false,
            spread: 0,
        };
    }

    fn request(&mut self) -> RateLimitRequest {
        let domain = if self.random.below(50) == 0 { "unknown" } else { "d" };
        let descriptors = (0..=self.random.below(4)).map(|_| self.descriptor()).collect();
        let hits_addend = self.random.below(3) as u32;
        RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend }
    }

    fn descriptor(&mut self) -> RateLimitDescriptor {
        let depth = [1, 1, 1, 2, 2, 3, 0][self.random.below(7) as usize];
        let entry = |random: &mut Random| DescriptorEntry {
            key: random.pick(&["a", "a", "b", "c"]).to_owned(),
            value: random.pick(&["", "x", "x1", "x12", "y", "z"]).to_owned(),
        };
        let entries = (0..depth).map(|_| entry(&mut self.random)).collect();
        let hits_addend = match self.random.below(40) {
            0..20 => None,
            20..25 => Some(0),
            25 => Some(self.random.any_below(1 << 40)),
            _ => Some(self.random.below(8)),
        };
        let limit = (self.random.below(8) == 0).then(|| {
            let unit = self.random.pick(&[0, 99]);
            let unit = if self.random.below(4) == 0 { unit } else { UNITS[self.random.below(7) as usize].1 };
            RateLimitOverride { requests_per_unit: number(&mut self.random), unit }
        });
        RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits: self.random.below(6) == 0 }
    }
}

/// Returns an answer in the terms of the model.
fn plain(answer: &RateLimitResponse) -> Answer {
    let statuses = answer.statuses.iter().map(|status| {
        let limit = status.current_limit.as_ref().map(|limit| (limit.requests_per_unit, limit.unit));
        (status.code, limit, status.limit_remaining, status.duration_until_reset.map(|reset| reset.seconds))
    });
    let headers: Vec<i64> =
        answer.response_headers_to_add.iter().map(|header| header.value.parse().unwrap()).collect();
    (answer.overall_code, statuses.collect(), headers.try_into().ok())
}
