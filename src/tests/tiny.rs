// promise: law, never-late
//! Every step on every word of tiny layouts, compared with the same step spelled out in plain
//! integers.
//!
//! The spelled-out bucket shares no code with the crate. It has only the widths and the empty level
//! from the compiled terms.

mod either;
mod spelled;

use std::time::Duration;

use tollgate_testing::size;

pub(super) use self::either::Either;
use self::spelled::{Came, Difference, Spelled, Tiny};
use crate::rule::counts::CountWidths;
use crate::rule::layout::{Layout, RawQuota, Widths};
use crate::rule::rate::Quota;
use crate::word::plan::{PlanStart, PlanTerms};
use crate::word::state::{Balance, Left, Origin, Reading, Refill, State, TakeOutcome};
use crate::word::terms::Terms;
use crate::word::verb::{Give, Take};

fn came((outcome, next): (TakeOutcome, Option<State>)) -> Came {
    let TakeOutcome { granted, taken, level, lag, origin } = outcome;
    assert_eq!(origin, Origin::Own);
    (granted, taken, level, lag, next.map(State::word))
}

/// Returns a quota of one token every ten seconds.
fn quota(burst: u64) -> RawQuota {
    RawQuota { tokens: 1, nanos: 10_000_000_000, burst }
}

/// Returns a bucket in a tiny layout, with room for `debt` tokens of debt.
fn tiny(stamp: u8, fraction: u8, scale: u8, burst: u64, debt: u64, fixed_debt: bool) -> Tiny {
    let widths = Widths { fraction, scale, stamp, fixed_debt, counts: CountWidths::BUCKET };
    let terms = Terms::in_layout(quota(burst), Layout { widths, debt });
    // The layouts of a fixed debt have the wider backward window of a changed quota.
    let terms = if fixed_debt { terms.after_others() } else { terms };
    let (capacity, turn) = (i128::from(burst + debt) << fraction, 1 << (stamp + scale));
    Tiny { refill: Either::Own(terms), terms, up: 1 << scale, down: 1, capacity, since: 0, turn }
}

/// Returns the same bucket under a plan of `tokens` every `times` periods of its own quota. The
/// plan starts at the tick `since`, if that is not 0.
fn planned(own: Tiny, tokens: u64, times: u64, burst: u64, since: u64) -> Tiny {
    let Tiny { terms, turn, .. } = own;
    let public = |RawQuota { tokens, nanos, burst }| {
        Quota::checked(tokens, Duration::from_nanos(nanos), burst).expect("an ordinary quota")
    };
    let limiters = quota(own.burst());
    let plans = RawQuota { tokens, nanos: limiters.nanos * times, burst };
    let from = (since > 0).then(|| PlanStart { nanos: terms.ticks.nanos_until(0, since), tick: since });
    let plan = PlanTerms::however_coarse(0, public(plans), public(limiters), &terms, from).expect("it fits");
    let refill = Either::Plan(Reading::new(terms, 0).under(plan).refill);
    let capacity = i128::from(terms.empty_level) + own.units(burst.into());
    let (up, down) = (i128::from(tokens) << terms.widths.scale, times.into());
    Tiny { refill, terms, up, down, capacity, since: since.into(), turn }
}

fn all() -> Vec<Tiny> {
    vec![
        tiny(6, 3, 0, 7, 0, false),
        tiny(5, 0, 0, 28, 0, false),
        tiny(6, 6, 0, 1, 0, false),
        tiny(5, 0, 2, 40, 0, false),
        tiny(6, 0, 3, 33, 0, false),
        tiny(7, 2, 0, 3, 0, false),
        tiny(4, 1, 0, 3, 0, false),
        tiny(6, 3, 0, 4, 4, false),
        tiny(5, 0, 0, 20, 20, false),
        tiny(6, 4, 0, 1, 1, false),
        tiny(5, 0, 2, 17, 17, false),
        // The burst was lowered or raised after the layout was chosen.
        tiny(5, 1, 0, 3, 8, false),
        tiny(5, 1, 0, 8, 3, false),
        tiny(5, 1, 0, 3, 8, true),
        tiny(5, 0, 1, 9, 3, true),
        tiny(4, 2, 0, 2, 1, true),
        planned(tiny(6, 3, 0, 7, 0, false), 3, 2, 5, 0),
        planned(tiny(5, 0, 0, 20, 20, false), 2, 7, 9, 0),
        planned(tiny(5, 0, 2, 17, 17, false), 7, 3, 17, 0),
        planned(tiny(6, 1, 0, 4, 4, false), 1, 3, 9, 0),
        // Plans that start within the turn of the readings, and after all of them.
        planned(tiny(5, 1, 0, 3, 8, true), 5, 3, 6, (3 << 5) + 9),
        planned(tiny(4, 2, 0, 2, 1, true), 1, 1, 2, 1 << 40),
    ]
}

/// The pairs of a word and a reading of which a quick run takes one.
const QUICK_STEP: usize = 61;

/// Runs `f` on every word of a layout, and on the reserved words, at every tick of the stamp's
/// fourth turn.
///
/// The tokens field has more bits than a tiny layout uses. Levels above the capacity, as after a
/// smaller burst, are tried too.
fn every(tiny: &Tiny, mut f: impl FnMut(State, u64, Spelled<'_>)) {
    let Widths { stamp, .. } = tiny.terms.widths;
    // That is odd, so a quick run meets each pair of a stamp and a reading at some level.
    let words = (tiny.capacity as u64 + 3) << stamp;
    let pairs = (0..words << stamp).step_by(size(QUICK_STEP, 1));
    let pairs = pairs.map(|pair| (pair >> stamp, pair % (1 << stamp)));
    let reserved = [u64::MAX, u64::MAX - 1].into_iter();
    let reserved = reserved.flat_map(|word| (0..1 << stamp).map(move |tick| (word, tick)));
    for (word, tick) in pairs.chain(reserved) {
        let now = tick + (3 << stamp);
        f(State::from_word(word), now, Spelled::at(tiny, word, now));
    }
}

/// Tries a verb on every word of every layout. `verb` returns the number of its steps.
fn try_all(name: &str, verb: impl Fn(&Tiny, State, u64, Spelled<'_>) -> u64) {
    let mut steps = 0;
    for tiny in all() {
        every(&tiny, |state, now, spelled| steps += verb(&tiny, state, now, spelled));
    }
    println!("{name}: {steps} steps");
    let least = size(1_000, 100_000);
    assert!(steps > least, "{name}: {steps} steps tried");
}

#[test]
fn every_take_of_tiny_layouts_is_the_one_spelled_out() {
    try_all("take", |tiny, state, now, spelled| {
        // A take of one token more than the burst is refused. After a clock was set back, it
        // commits the stamp like any other take.
        let most = tiny.burst() + 1;
        for need in (1..=most).map(|n| tiny.terms.units(n)) {
            let ours = came(state.take(&tiny.refill, now, need));
            assert_eq!(ours, spelled.take(need.into()), "{state:?} {now} {need} {spelled:?}");
        }
        most
    });
}

#[test]
fn every_take_of_what_is_there_is_the_one_spelled_out() {
    try_all("take up to", |tiny, state, now, spelled| {
        let most = tiny.burst() + 1;
        for need in (1..=most).map(|n| tiny.terms.units(n)) {
            for kept in [0, 1, most / 2, most - 1, most] {
                let ours = came(state.at(&tiny.refill, now).take_up_to(&tiny.refill, need, kept));
                let floor = spelled.empty_level + i128::from(tiny.terms.units(kept));
                let theirs = spelled.takes(spelled.tokens_above(floor, need.into()));
                assert_eq!(ours, theirs, "{state:?} {now} {need} {kept} {spelled:?}");
            }
        }
        most * 5
    });
}

#[test]
fn every_take_that_keeps_a_part_is_the_one_spelled_out() {
    try_all("take above", |tiny, state, now, spelled| {
        let most = tiny.burst() + 1;
        let mut steps = 0;
        for n in 1..=most {
            for percent in [0, 1, 49, 50, 51, 99, 100, 255] {
                let ours = came(state.at(&tiny.refill, now).take_above(&tiny.refill, n, percent));
                let kept = (tiny.burst() * u64::from(percent)).div_ceil(100);
                let [need, keep] = [n, kept].map(|n| tiny.terms.units(n).into());
                let theirs = spelled.take_above(need, keep);
                assert_eq!(ours, theirs, "{state:?} {now} {n} {percent} {spelled:?}");
                steps += 1;
            }
        }
        steps
    });
}

#[test]
fn every_charge_of_tiny_layouts_is_the_one_spelled_out() {
    try_all("charge up to", |tiny, state, now, spelled| {
        let most = tiny.terms.tokens(tiny.refill.capacity()) + 1;
        for need in (1..=most).map(|n| tiny.terms.units(n)) {
            let ours = came(state.charge_up_to(&tiny.refill, now, need));
            let taken = spelled.tokens_above(spelled.lowest, need.into());
            assert_eq!(ours, spelled.takes(taken), "{state:?} {now} {need} {spelled:?}");
        }
        most
    });
}

#[test]
fn every_reservation_of_tiny_layouts_is_the_one_spelled_out() {
    try_all("reserve", |tiny, state, now, spelled| {
        let mut steps = 0;
        let burst = tiny.burst();
        for (n, kept) in (1..=burst).flat_map(|n| [(n, 0), (n, (burst - n).div_ceil(2)), (n, burst - n)]) {
            let (need, keep) = (tiny.terms.units(n), tiny.terms.units(kept));
            let delay = spelled.delay((need + keep).into());
            for max_wait in [0, 1, (delay - 1).max(0), delay, i128::MAX] {
                let goal = need + keep + tiny.terms.empty_level;
                let ticks = |view: &Balance| tiny.refill.ticks_until(now, goal, view.level, view.lag);
                let patient = |view: &Balance| i128::from(ticks(view)) <= max_wait;
                let ours = came(state.reserve(&tiny.refill, now, (need, keep), patient));
                let theirs = spelled.reserve(need.into(), keep.into(), max_wait);
                assert_eq!(ours, theirs, "{state:?} {now} {need} {keep} {max_wait} {spelled:?}");
                steps += 1;
            }
        }
        steps
    });
}

/// Returns the units to give: those of each number of tokens, and numbers that are no whole tokens,
/// which come from an undo.
fn given(tiny: &Tiny) -> impl Iterator<Item = u64> {
    let (terms, capacity) = (tiny.terms, tiny.refill.capacity());
    let tokens = (0..=terms.tokens(capacity)).map(move |n| terms.units(n));
    tokens.chain([1, capacity / 2 + 1, 3 * capacity])
}

#[test]
fn everything_given_to_tiny_layouts_is_as_spelled_out() {
    try_all("give", |tiny, state, now, spelled| {
        let mut steps = 0;
        for units in given(tiny) {
            let ours = state.give(&tiny.refill, now, units).map(State::word);
            assert_eq!(ours, spelled.give(units.into()), "{state:?} {now} {units} {spelled:?}");
            steps += 1;
        }
        steps
    });
}

#[test]
fn everything_given_back_to_tiny_layouts_is_as_spelled_out() {
    try_all("empty_at and give back", |tiny, state, now, spelled| {
        if !spelled.reserved {
            assert_eq!(
                i128::from(state.empty_at(&tiny.terms, now)),
                spelled.empty_at,
                "{state:?} {now} {spelled:?}"
            );
        }
        let mut steps = 0;
        for units in given(tiny).step_by(3) {
            for off in [0, 1, 2, -1, i128::from(units)] {
                let empty_at = (spelled.empty_at + off).rem_euclid(tiny.turn);
                let stamp = state.word() % (1 << tiny.terms.widths.stamp);
                for (stamp, same) in
                    [(None, true), (Some(stamp + tiny.range() as u64), true), (Some(stamp + 1), false)]
                {
                    let left = Left { empty_at: empty_at as u64, stamp };
                    let ours = state.give_back(&tiny.refill, now, units, left).map(State::word);
                    let theirs = spelled.give(units.into()).filter(|_| empty_at == spelled.empty_at && same);
                    assert_eq!(ours, theirs, "{state:?} {now} {units} {left:?} {spelled:?}");
                    steps += 1;
                }
            }
        }
        steps
    });
}

#[test]
fn everything_undone_in_tiny_layouts_is_as_spelled_out() {
    try_all("undo", |tiny, state, now, spelled| {
        let (empty_level, capacity, mask) = (tiny.terms.empty_level, tiny.refill.capacity(), tiny.terms.mask);
        let mut steps = 0;
        for units in [1, tiny.burst()].map(|n| tiny.terms.units(n)) {
            for before in [empty_level, (empty_level + capacity).div_ceil(2), capacity - 1, capacity] {
                for since in [0, 2, mask / 2, mask - 1, mask].map(|ago| now - ago) {
                    let at = || format!("{state:?} {now} {units} {before} {since} {spelled:?}");
                    let ours = state.undo(&tiny.refill, now, units, before, since).map(State::word);
                    let theirs = spelled.undo(units.into(), before.into(), since.into());
                    assert_eq!(ours, theirs, "{}", at());
                    // If the bucket is in debt and has changed since the take, a later caller
                    // waits: nothing comes back.
                    let other = ((spelled.empty_at + 1).rem_euclid(tiny.turn)) as u64;
                    let left = Left { empty_at: other, stamp: None };
                    let owed = !spelled.reserved && spelled.level < spelled.empty_level;
                    let ours = Give::Undo { units, left, before, since }.apply(&tiny.refill, state, now);
                    assert_eq!(ours.map(State::word), theirs.filter(|_| !owed), "{}", at());
                    // In a limiter with plans nothing comes back either, once the stamp has
                    // changed.
                    let stands = Left { empty_at: spelled.empty_at as u64, stamp: Some(state.word()) };
                    let moved = Left { stamp: Some(state.word() ^ 1), ..stands };
                    let ours =
                        |left| Give::Undo { units, left, before, since }.apply(&tiny.refill, state, now);
                    assert_eq!(ours(stands).map(State::word), theirs, "{}", at());
                    assert_eq!(ours(moved), None, "{}", at());
                    steps += 4;
                }
            }
        }
        steps
    });
}

/// A touch gives a reserved word a level, and changes no other word.
#[test]
fn every_beginning_is_the_one_spelled_out() {
    try_all("begin", |tiny, state, now, spelled| {
        let nanos = tiny.terms.ticks.nanos_until(0, now);
        let reading = Reading::new(tiny.refill, nanos);
        assert_eq!(reading.tick, now);
        let (outcome, next) = Take::Touch.apply(state, &reading);
        assert_eq!((outcome.granted, outcome.taken), (true, 0));
        assert_eq!((i128::from(outcome.level), i128::from(outcome.lag)), (spelled.level, spelled.lag));
        let begun = spelled.reserved.then(|| spelled.word(spelled.level));
        assert_eq!(next.map(State::word), begun, "{state:?} {now} {spelled:?}");
        1
    });
}

/// The time until a bucket may be sealed is the one spelled out, whatever the slowest plan. So are
/// the earlier readings that may decide.
#[test]
fn every_eviction_and_early_reading_is_the_one_spelled_out() {
    // The eviction grace of two seconds in ticks, rounded up, and one more for the reading's own
    // tick.
    let margin = |tiny: &Tiny| {
        let (tick, units) = (10 << tiny.terms.widths.scale, tiny.units(2));
        (units + tick - 1) / tick + 1
    };
    try_all("evict and admit", |tiny, state, now, spelled| {
        let difference =
            tiny.difference(i128::from(state.word()) % tiny.range(), i128::from(now) % tiny.range());
        let early = match difference {
            Difference::Passed(passed) => passed < tiny.range() / 2,
            Difference::Jitter(_) => true,
            Difference::Jump => false,
        };
        let admits = state.accepts_stale(&tiny.terms, now);
        assert_eq!(admits, early && !spelled.reserved, "{state:?} {now} {spelled:?}");

        // The evictor and a first attempt use the limiter's own quota.
        let Either::Own(terms) = tiny.refill else { return 1 };
        assert_eq!(terms.max_skew(), 2);
        let reading = Reading { refill: terms, at: 0, tick: now };
        // An attempt counts from the beginning of a turn, and decides on a stamp of that turn.
        let into = Reading { tick: now & terms.mask, ..reading };
        let stamp = state.word() & terms.mask;
        let fits = (stamp..terms.mask - 2).contains(&into.tick);
        assert_eq!(state.accepts_fresh::<Terms>(&into, terms.mask - 2, 0), fits, "{state:?} {now}");
        assert!(!fits || !spelled.reserved, "{state:?} {now}");
        let near = fits && state.within_skew(&into, terms.max_skew());
        assert_eq!(near, fits && into.tick - stamp <= terms.max_skew(), "{state:?} {now}");
        for n in (0..4).filter(|_| fits && matches!(difference, Difference::Passed(_))) {
            assert_eq!(
                state.take_ahead(&into, Take::Exactly(n)),
                crate::word::verb::Take::Exactly(n).apply(state, &reading),
                "{state:?} {now} {n}"
            );
        }
        let stored = i128::from(state.word() >> terms.widths.stamp).min(tiny.capacity);
        let missing = tiny.capacity - stored;
        for slowest_fill in [0, 1, terms.mask / 3, terms.mask] {
            let fills = if missing > 0 { tiny.ticks(0, missing) } else { 0 };
            let due = fills.max(slowest_fill.into()) + margin(tiny);
            let due = match difference {
                _ if spelled.reserved => 0,
                Difference::Passed(passed) => (due - passed).max(0),
                Difference::Jitter(_) | Difference::Jump => due + spelled.lag,
            };
            let ours = state.evictable_in(&terms, now, slowest_fill);
            assert_eq!(i128::from(ours), due, "{state:?} {now} {slowest_fill} {spelled:?}");
            assert_eq!(state.is_evictable(&terms, now, slowest_fill), due == 0, "{state:?} {now}");
        }
        5
    });
}

/// An undone take leaves the bucket as if it had never happened, if no other caller took. If
/// another caller did, the bucket never has more than without the take.
#[test]
fn an_undone_take_mints_nothing() {
    let (mut steps, mut whole) = (0_u64, 0_u64);
    for Tiny { refill, terms, .. } in all() {
        let Either::Own(_) = refill else { continue };
        let range = terms.mask + 1;
        for level in 0..=terms.capacity {
            let word = State::pack(&terms, level, 5);
            for since in [5, 6, 7, 5 + range / 4, 5 + range / 2] {
                for need in (1..=3).map(|n| terms.units(n)) {
                    let (outcome, Some(taken)) = word.take(&terms, since, need) else { continue };
                    assert!(outcome.granted);
                    for wait in [0, 1, 2, 5, range / 4] {
                        let now = since + wait;
                        // Without the take, the stamp of the bucket must not wrap meanwhile.
                        if now - 5 >= terms.backward_from {
                            continue;
                        }
                        for other in [0, 1, 2].map(|n| terms.units(n)) {
                            // Another caller takes in between, with the undone take and without it.
                            let between = since + wait / 2;
                            let takes = |state: State| match other {
                                0 => Some(state),
                                other => state
                                    .take(&terms, between, other)
                                    .1
                                    .filter(|_| state.take(&terms, between, other).0.granted),
                            };
                            let (Some(with), Some(without)) = (takes(taken), takes(word)) else { continue };
                            let before = outcome.level + need;
                            let undone = with.undo(&terms, now, need, before, since).unwrap_or(with);
                            let (ours, theirs) =
                                (undone.at(&terms, now).level, without.at(&terms, now).level);
                            let at = || format!("{terms:?} {level} {since} {need} {now} {other}");
                            assert!(ours <= theirs, "{} units were minted: {}", ours - theirs, at());
                            if other == 0 {
                                assert_eq!(ours, theirs, "{}", at());
                                whole += 1;
                            }
                            // An undo loses at most the units earned in between.
                            assert!(theirs - ours <= wait << terms.widths.scale, "{}", at());
                            steps += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(steps > 20_000 && whole > 5_000, "{steps} steps tried, {whole} alone");
}
