// promise: law, never-late
//! An attempt under a plan, compared with the loop's step on the same word at the same reading.
//!
//! The attempt counts its ticks from the beginning of a turn of the stamp, on the scale of the raw
//! counter. The loop counts them from the beginning of the clock.

use std::time::Duration;

use crate::bucket::atomic::{Bucket, BucketRef, Order};
use crate::bucket::engine::{Engine, Now};
use crate::bucket::live_terms::LiveTerms;
use crate::rule::layout::{Layout, LayoutOptions};
use crate::rule::rate::Quota;
use crate::time::clock::{Clock, MockClock};
use crate::word::by_refill::{ByRefill, OwnRefill};
use crate::word::plan::{PlanStart, PlanTerms};
use crate::word::state::{Reading, State};
use crate::word::terms::Terms;
use crate::word::verb::{Call, Take};
use tollgate_testing::{Random, size};

const SECOND: u64 = 1_000_000_000;
/// Clock readings stay below this.
const LATEST: u64 = 1 << 61;

/// Returns a number below `2^bits`, each length in bits as likely as another.
fn any_length(random: &mut Random, bits: u64) -> u64 {
    let bits = random.below(bits + 1);
    random.below(1 << bits)
}

fn quota(random: &mut Random) -> Option<Quota> {
    let nanos = [1_000_000, SECOND, 3_600 * SECOND][random.below(3) as usize];
    let (tokens, burst) = (any_length(random, 30) + 1, any_length(random, 20) + 1);
    Quota::checked(tokens, Duration::from_nanos(nanos), burst).ok()
}

/// Returns a quota near another: up to 64 times its rate or a 64th, and at most its burst.
fn near(random: &mut Random, quota: Quota) -> Option<Quota> {
    let numbers = quota.numbers();
    let (up, down) = (1 + random.below(64), 1 + random.below(64));
    let burst = 1 + random.below(numbers.burst);
    Quota::checked(numbers.tokens.checked_mul(up)?, Duration::from_nanos(numbers.nanos * down), burst).ok()
}

/// A limiter's engine, on a clock that has passed several turns of the stamp, and a plan.
struct Case {
    engine: Engine,
    mock: MockClock,
    plan: PlanTerms,
    quota: Quota,
    /// Whether the plan was made after a change.
    begins: bool,
}

impl Case {
    fn new(random: &mut Random) -> Option<Case> {
        let own = quota(random)?;
        let room = LayoutOptions { headroom: near(random, own).map(|quota| quota.numbers()), max_debt: None };
        let layout = Layout::of(own.numbers(), room).ok()?;
        let (clock, mock) = Clock::mock();
        let engine = Engine::new(LiveTerms::new(own, layout), clock, None);
        // Some limiters are left alone for turns of the stamp.
        let turn = engine.read().refill.ticks.nanos_until(0, engine.read().refill.mask).min(LATEST / 8);
        let pass = |random: &mut Random| {
            let most = if random.below(2) == 0 { 2 * turn } else { 1 + any_length(random, 50) };
            mock.advance(Duration::from_nanos(random.below(most.min(LATEST / 8))));
            engine.read();
        };
        let change = |random: &mut Random| {
            if let Some(quota) = near(random, own) {
                let _ = engine.source.set(quota, &engine.clock);
            }
        };
        pass(random);
        for _ in 0..random.below(3) {
            change(random);
            pass(random);
        }
        let begins = engine.source.changed().is_some();
        let quota = near(random, engine.source.counted_by())?;
        let plan = engine.source.plan(7, quota, &engine.clock).ok()?;
        for _ in 0..random.below(2) {
            pass(random);
            change(random);
        }
        pass(random);
        Some(Case { engine, mock, plan, quota, begins })
    }

    /// Returns a word of the present turn of the stamp.
    fn state(&self, random: &mut Random, reading: &Reading) -> State {
        let terms = &reading.refill;
        let passed = any_length(random, terms.widths.stamp.into()).min(reading.tick & terms.mask);
        let level = match random.below(4) {
            0 => terms.empty_level,
            1 => random.below(terms.empty_level + 1),
            _ => terms.empty_level + random.below(terms.capacity - terms.empty_level + 1),
        };
        State::pack(terms, level, reading.tick - passed)
    }
}

fn take(random: &mut Random, burst: u64) -> Take {
    let n = any_length(random, 20).min(burst + 1);
    let keep = random.below(101) as u8;
    [Take::Exactly(n), Take::UpTo(n), Take::Above { n, keep }, Take::UpToAbove { n, keep }]
        [random.below(4) as usize]
}

/// Numbers of cases by kind.
#[derive(Debug, Default)]
struct Seen {
    attempts: u64,
    granted: u64,
    refused: u64,
    /// With ticks that count from a later turn.
    later_turn: u64,
    /// With a plan that was made after a change, and of these the ones in a later turn.
    begun: u64,
    begun_in_a_later_turn: u64,
    missed: u64,
}

#[test]
fn an_attempt_under_a_plan_is_the_step_of_the_loop() {
    let (mut random, mut seen) = (Random(42), Seen::default());
    for number in 0..size(4_000, 40_000) {
        let Some(case) = Case::new(&mut random) else { continue };
        let Case { engine, mock, plan, quota, begins } = &case;
        for _ in 0..4 {
            mock.advance(Duration::from_nanos(any_length(&mut random, 40)));
            let reading = engine.read();
            let state = case.state(&mut random, &reading);
            let take = take(&mut random, quota.capacity());
            let bucket = Bucket::from_state(state);
            let first = if random.below(2) == 0 { Order::WordFirst } else { Order::ClockFirst };
            let Ok(done) = bucket.attempt_by(first, Now(engine), take, OwnRefill.under(plan)) else {
                assert_eq!(bucket.state(), state, "an attempt that missed has charged");
                seen.missed += 1;
                continue;
            };
            let call = Call { take, plan: Some(*plan) };
            let (outcome, next) = call.apply(state, &reading);
            let at = || format!("case {number}: {take:?} of {state:?} at {reading:?} under {quota}");
            assert_eq!(done.0, outcome, "{}", at());
            assert_eq!(bucket.state(), next.unwrap_or(state), "{}", at());
            let planned = done.1;
            let (ours, loops) = (take.decision((outcome, planned)), call.decision(outcome, reading));
            assert_eq!(format!("{ours:?}"), format!("{loops:?}"), "{}", at());
            seen.attempts += 1;
            seen.granted += u64::from(outcome.granted);
            seen.refused += u64::from(!outcome.granted);
            let (later, begun) = (reading.tick > planned.tick, *begins);
            seen.later_turn += u64::from(later);
            seen.begun += u64::from(begun);
            seen.begun_in_a_later_turn += u64::from(later && begun);
        }
    }
    println!("{seen:?}");
    let Seen { attempts, granted, refused, later_turn, begun, begun_in_a_later_turn, missed } = seen;
    let each = [attempts / 8, granted, refused, later_turn, begun, begun_in_a_later_turn];
    assert!(
        each.into_iter().all(|cases| cases > 1_000) && missed < attempts / 4,
        "{each:?}, {missed} missed"
    );
}

/// A plan begins at a reading in nanoseconds, and an attempt reads the raw counter. Behind the
/// start no attempt decides. From the start on it takes the step of the loop at the same tick, so
/// the plan earns none of the ticks before.
#[test]
fn an_attempt_on_the_raw_counter_beside_the_start_of_a_plan() {
    let (mut random, mut behind, mut after) = (Random(43), 0, 0);
    while behind < 10_000 || after < 10_000 {
        let Some(own) = quota(&mut random) else { continue };
        let Ok(layout) = Layout::of(own.numbers(), LayoutOptions::DEFAULT) else { continue };
        let terms = Terms::in_layout(own.numbers(), layout);
        // From a fifth of a nanosecond to three for each unit of the counter.
        let (whole, part) = (random.below(3), u64::MAX / 5 + random.below(u64::MAX / 5 * 4));
        let counted = Terms { ticks: terms.ticks.counted(whole, part), ..terms };
        let nanos = any_length(&mut random, 56);
        let since = PlanStart { nanos, tick: terms.tick(nanos) };
        let Some(quota) = near(&mut random, own) else { continue };
        let Ok(plan) = PlanTerms::compile(7, quota, own, &terms, Some(since)) else { continue };
        let ratio = u128::from(whole) << 64 | u128::from(part);
        // Nanoseconds are below 2^57, so the shift does not overflow.
        let at_start = u64::try_from((u128::from(nanos) << 64) / ratio).expect("it is below 2^60");
        for _ in 0..8 {
            let away = any_length(&mut random, 40);
            let raw = if random.below(2) == 0 { at_start.saturating_sub(away) } else { at_start + away };
            let reading = Reading::new(counted, raw);
            let turn = reading.tick & !terms.mask;
            let in_turn = Reading { tick: reading.tick - turn, ..reading };
            let passed = any_length(&mut random, terms.widths.stamp.into()).min(in_turn.tick);
            let level = terms.empty_level + random.below(terms.capacity - terms.empty_level + 1);
            let state = State::pack(&terms, level, in_turn.tick - passed);
            let take = take(&mut random, quota.capacity());
            let Some(planned) = OwnRefill.under(&plan).at(in_turn, turn) else {
                assert!(reading.tick < since.tick, "{reading:?} is not behind {since:?}");
                behind += 1;
                continue;
            };
            assert!(reading.tick >= since.tick, "{reading:?} is behind {since:?}");
            after += 1;
            let at = Reading { refill: terms, at: nanos, tick: reading.tick };
            let loops = Call { take, plan: Some(plan) }.apply(state, &at);
            assert_eq!(state.take_ahead(&planned, take), loops, "{take:?} of {state:?} at {reading:?}");
        }
    }
}
