//! A random walk beside a small model: reservations, commits, plain requests, time and lapses.

use std::collections::HashMap;
use std::time::Duration;

use tollgate_testing::Random;

use super::{Code, Outcome, World, asked};

/// The keys of the walk, with the seconds of their windows and their limits.
const KEYS: [(&str, u64, u64); 3] = [("minute", 60, 100), ("hour", 3_600, 1_000), ("fixed", 60, 100)];
const RELEASE: (&str, &str) = ("TOLLGATE_LAPSED_RESERVATIONS", "release");

/// Returns a number of steps, or that of a full run.
fn steps(few: u32) -> u32 {
    if std::env::var_os("FULL").is_some() { 100_000 } else { few }
}

#[test]
fn a_walk_of_one_process_agrees_with_the_model() {
    walk(World::new, &[], 1, None, steps(2_000)).unwrap();
    walk(World::new, &[RELEASE], 2, None, steps(2_000)).unwrap();
}

#[test]
fn a_walk_of_two_replicas_agrees_with_the_model() {
    walk(World::of_store, &[], 3, None, steps(600)).unwrap();
    walk(World::of_store, &[RELEASE], 4, None, steps(600)).unwrap();
}

#[test]
fn a_walk_sees_each_fault_of_the_model() {
    for make in [World::new, World::of_store] {
        for fault in [
            Fault::RefusalCounts,
            Fault::TwiceCounts,
            Fault::GivesBackToALaterWindow,
            Fault::MoreIsLost,
            Fault::LateGivesBack,
            Fault::LapseFrees,
        ] {
            assert!(walk(make, &[], 5, Some(fault), 4_000).is_err(), "{fault:?} is not seen");
        }
    }
}

/// A fault of the model, which a walk is to see.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    RefusalCounts,
    TwiceCounts,
    GivesBackToALaterWindow,
    MoreIsLost,
    LateGivesBack,
    LapseFrees,
}

#[derive(Clone)]
struct Reserved {
    id: String,
    keys: Vec<usize>,
    amount: u64,
    /// In seconds.
    made: u64,
    ttl: u64,
    is_settled: bool,
    /// The sweep has seen its lapse.
    has_lapsed: bool,
}

#[derive(Default)]
struct Model {
    /// The window and its count, by the key.
    counts: HashMap<usize, (u64, u64)>,
    reserved: Vec<Reserved>,
    fault: Option<Fault>,
    is_released: bool,
    has_store: bool,
}

impl Model {
    fn count(&mut self, key: usize, now: u64) -> &mut u64 {
        let window = now / KEYS[key].1;
        let count = self.counts.entry(key).or_default();
        if count.0 != window {
            *count = (window, 0);
        }
        &mut count.1
    }

    fn reserve(&mut self, keys: &[usize], amount: u64, now: u64) -> bool {
        let mut all: HashMap<usize, u64> = HashMap::new();
        let is_granted = keys.iter().all(|key| {
            let more = all.entry(*key).or_default();
            *more += amount;
            // A text refuses 0 hits where none is left.
            let least = u64::from(KEYS[*key].0 == "fixed" && amount == 0);
            *self.count(*key, now) + *more + least <= KEYS[*key].2
        });
        if is_granted || self.fault == Some(Fault::RefusalCounts) {
            keys.iter().for_each(|key| *self.count(*key, now) += amount);
        }
        is_granted
    }

    fn give_back(&mut self, of: &Reserved, back: u64, now: u64) {
        for key in &of.keys {
            let is_same = of.made / KEYS[*key].1 == now / KEYS[*key].1;
            if is_same || self.fault == Some(Fault::GivesBackToALaterWindow) {
                let count = self.count(*key, now);
                *count = count.saturating_sub(back);
            }
        }
    }

    fn commit(&mut self, index: usize, actual: u64, now: u64) -> Outcome {
        let of = self.reserved[index].clone();
        if now >= of.made + 2 * of.ttl {
            return Outcome::Late;
        }
        if of.is_settled && self.fault != Some(Fault::TwiceCounts) {
            return Outcome::Twice;
        }
        self.reserved[index].is_settled = true;
        let is_late = now >= of.made + of.ttl;
        let charged = if self.is_released && of.has_lapsed { 0 } else { of.amount };
        if actual > charged && self.fault != Some(Fault::MoreIsLost) {
            for key in &of.keys {
                // The word of a text of 100 counts up to 126.
                let most = if KEYS[*key].0 == "fixed" && !self.has_store { 126 } else { u64::MAX };
                let count = self.count(*key, now);
                *count = (*count + actual - charged).min(most);
            }
        }
        if actual < charged && (!is_late || self.is_released || self.fault == Some(Fault::LateGivesBack)) {
            self.give_back(&of, charged - actual, now);
        }
        if is_late { Outcome::Late } else { Outcome::Committed }
    }

    fn lapse(&mut self, now: u64) {
        for index in 0..self.reserved.len() {
            let of = &self.reserved[index];
            if !of.is_settled && !of.has_lapsed && now >= of.made + of.ttl {
                let of = of.clone();
                self.reserved[index].has_lapsed = true;
                // Beyond that time the store may know no more of a commit.
                let is_known = !self.has_store || now < of.made + 2 * of.ttl;
                if self.is_released && is_known || self.fault == Some(Fault::LapseFrees) {
                    self.give_back(&of, of.amount, now);
                }
            }
        }
    }
}

type Make = fn(&[(&'static str, &'static str)]) -> World;

/// Returns an error at the first step on which both differ.
fn walk(
    make: Make,
    given: &[(&'static str, &'static str)],
    seed: u64,
    fault: Option<Fault>,
    steps: u32,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let world = make(given);
        let mut random = Random(seed);
        let (is_released, has_store) = (!given.is_empty(), world.store.is_some());
        let mut model = Model { fault, is_released, has_store, ..Model::default() };
        for step in 0..steps {
            if random.below(3) == 0 {
                world.mock.advance(Duration::from_secs(random.pick(&[0, 1, 1, 2, 5, 9, 30])));
            }
            let now = world.services[0].counts.now().0;
            let service = random.below(world.services.len() as u64) as usize;
            let told = match random.below(20) {
                0..8 => reserve(&world, &mut model, &mut random, (service, now)).await,
                8..14 if !model.reserved.is_empty() => {
                    let recent = model.reserved.len().min(12) as u64;
                    let index = model.reserved.len() - 1 - random.below(recent) as usize;
                    let Reserved { id, keys, amount, .. } = model.reserved[index].clone();
                    let actual = random.pick(&[0, amount / 2, amount, amount + 3]);
                    let names: Vec<_> = keys.iter().map(|key| KEYS[*key].0).collect();
                    let outcome = world.commit_on(service, &names, &id, actual).await;
                    (format!("{outcome:?}"), format!("{:?}", model.commit(index, actual, now)))
                }
                14..18 => {
                    let (key, hits) = (random.below(2) as usize, random.below(6));
                    let mut request = asked(&[KEYS[key].0]);
                    request.descriptors[0].hits_addend = Some(hits);
                    let code = world.services[service].ask(&request).await.unwrap().overall_code();
                    let count = model.count(key, now);
                    *count += hits;
                    let is_over = *count > KEYS[key].2;
                    let expected = if is_over { Code::OverLimit } else { Code::Ok };
                    (format!("{code:?}"), format!("{expected:?}"))
                }
                _ => {
                    world.lapse().await;
                    model.lapse(now);
                    Default::default()
                }
            };
            tokio::time::advance(Duration::from_millis(1)).await;
            let mut left = Vec::new();
            for (key, (name, _, limit)) in KEYS.into_iter().enumerate() {
                let expected = limit.saturating_sub(*model.count(key, now));
                left.push((u64::from(world.left(name).await), expected));
            }
            if told.0 != told.1 || left.iter().any(|(left, expected)| left != expected) {
                return Err(format!("step {step}, service {service}: {told:?}, left {left:?}"));
            }
        }
        let made = model.reserved.len() as u32;
        assert!(made > steps / 10, "{made} reservations in {steps} steps");
        Ok(())
    })
}

async fn reserve(
    world: &World,
    model: &mut Model,
    random: &mut Random,
    (service, now): (usize, u64),
) -> (String, String) {
    let keys: Vec<usize> = (0..=random.below(2)).map(|_| random.below(3) as usize).collect();
    let names: Vec<_> = keys.iter().map(|key| KEYS[*key].0).collect();
    let (amount, ttl) = (random.below(40), random.pick(&[1, 5, 20, 60]));
    let answer = world.reserve_on(service, &names, amount, ttl).await;
    let is_granted = model.reserve(&keys, amount, now);
    if answer.code() == Code::Ok {
        let id = super::text_of(answer.reservation_id.clone());
        let (is_settled, has_lapsed) = (false, false);
        model.reserved.push(Reserved { id, keys, amount, made: now, ttl, is_settled, has_lapsed });
    }
    (format!("{:?}", answer.code() == Code::Ok), format!("{is_granted:?}"))
}
