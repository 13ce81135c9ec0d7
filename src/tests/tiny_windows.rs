// promise: law, never-late
//! Every step on every word of tiny windows, compared with the same step spelled out in plain
//! integers.

mod spelled;

use self::spelled::{PARTS, Spelled, Tiny};
use crate::rule::counts::Counting;
use crate::word::state::{Left, Reading, Refill, State, TakeOutcome};
use crate::word::verb::{Give, Take};
use crate::word::window::{ANY, WindowTerms};
use tollgate_testing::size;

/// The eviction grace in nanoseconds.
const GRACE: u64 = 2_000_000_000;

/// Asserts that `found` is the least number at which a thing holds that holds from then on.
fn least(found: u64, holds: impl Fn(i64) -> bool, context: impl Fn() -> String) {
    let found = found as i64;
    let earlier = (found - 40).max(0)..found;
    assert!(holds(found), "{found} is too early: {}", context());
    assert!(!earlier.into_iter().any(holds), "{found} is too late: {}", context());
}

fn came((outcome, next): (TakeOutcome, Option<State>)) -> (bool, u64, u64, u64, Option<u64>) {
    (outcome.granted, outcome.taken, outcome.level, outcome.lag, next.map(State::word))
}

/// Tries all verbs and waits on a word at a reading, and returns their number.
fn try_word(tiny: &Tiny, word: u64, now: i64, part: i64) -> u64 {
    let (state, reading) = (State::from_word(word), tiny.reading(now, part));
    let plain = reading;
    let reading: Reading<WindowTerms<ANY>> = WindowTerms::at(plain, tiny.widths);
    let spelled = Spelled::at(tiny, word, now, part);
    let context = || format!("{word:#x} at {now}, {part}: {spelled:?}");
    let limit = tiny.limit as i64;
    let free = (0..=limit).rev().find(|n| spelled.fits(*n)).unwrap_or(0);
    let weighted = tiny.is(Counting::Weighted);
    let credit = if weighted { spelled.counts[0] } else { spelled.counts.iter().sum() };
    let credit = (tiny.most() - credit).max(0);
    let committed = if spelled.adopted { spelled.word() } else { word };
    let mut steps = 0;
    for n in 1..=limit + 1 {
        let taken = if spelled.fits(n) { n } else { 0 };
        let ours = Take::Exactly(n as u64).apply(state, &reading);
        assert_eq!(came(ours), spelled.takes(taken), "{n}: {}", context());
        if taken == 0 && n <= limit {
            let TakeOutcome { level, lag, .. } = ours.0;
            let (wait, _) = reading.refill.wait(now as u64, n as u64, level, lag);
            assert!(wait > 0, "{n}: {}", context());
            least(wait, |by| spelled.later(committed, by).fits(n), || format!("{n}: {}", context()));
        }
        let ours = Take::UpTo(n as u64).apply(state, &reading);
        assert_eq!(came(ours), spelled.takes(n.min(free)), "up to {n}: {}", context());
        let ours = Take::OnCredit(n as u64).apply(state, &reading);
        assert_eq!(came(ours), spelled.takes(n.min(credit)), "{n} on credit: {}", context());
        let ours = Give::Refund(n as u64).apply(&reading.refill, state, now as u64);
        assert_eq!(ours.map(State::word), spelled.refunded(n), "{n} back: {}", context());
        let newest = now + spelled.lag();
        let ages = 0..=tiny.ages().min(4) as i64;
        for since in ages.chain([-1, tiny.ages() as i64 - 1]).map(|ago| newest - ago) {
            let left = Left { empty_at: 0, stamp: None };
            for began in [true, false] {
                let before = u64::from(!began);
                let (units, since_tick) = (n as u64, since as u64);
                let undo = Give::Undo { units, left, before, since: since_tick };
                let excess = Give::Excess { units, before, since: since_tick };
                // The start moves if the take began the window, and was no use.
                for (give, moves) in [(undo, began), (excess, false)] {
                    let ours = give.apply(&reading.refill, state, now as u64);
                    let theirs = spelled.undone(n, since, moves);
                    assert_eq!(
                        ours.map(State::word),
                        theirs,
                        "{n}, {since}, {began}, {moves}: {}",
                        context()
                    );
                }
            }
        }
        steps += 10;
    }
    let view = reading.view(state);
    assert_eq!(reading.refill.available(view.level, view.lag), free as u64, "{}", context());
    let (reset, _) = reading.refill.reset(view.level, view.lag);
    least(reset, |by| spelled.later(committed, by).used() == 0, context);
    if !spelled.reserved && !tiny.is(Counting::Months) {
        // A token of the stamp's tick counts for `live` ticks, whatever the other counts are.
        let live = if tiny.is(Counting::FirstUse) { PARTS + 1 } else { tiny.ages() as i64 };
        let (jitter, jump) = tiny.behind();
        let stamped = match (spelled.stamp - now, now.wrapping_sub_unsigned(word).rem_euclid(tiny.range())) {
            (ahead @ 1.., _) => now + ahead,
            (_, passed) if passed < tiny.range() - jitter - jump => now - passed,
            _ => now,
        };
        let from = reading.refill.idle_from(state, &plain) - reading.at;
        let tick = |nanos: u64| (nanos / tiny.tick_nanos()) as i64;
        let over = |by: i64| tick(reading.at + by as u64 - GRACE) >= stamped + live;
        // A tick of the crate may begin a nanosecond early, as its multiplier is rounded up.
        assert!(over(from as i64 + 1) && (from == 0 || !over(from as i64 - 1)), "{from}: {}", context());
    }
    steps + 3
}

/// Tries every word of a tiny window at every tick of the stamp's fourth turn, and at some parts of
/// it.
fn try_all(tiny: Tiny, stamps: impl Iterator<Item = i64> + Clone, nows: &[i64]) {
    let parts = if tiny.is(Counting::Weighted) { &[0, 1, 21_845, 32_768, PARTS - 1][..] } else { &[0] };
    let stamped = |level: u64| stamps.clone().map(move |stamp| level | stamp as u64);
    let words: Vec<u64> =
        tiny.words().into_iter().flat_map(stamped).chain([u64::MAX, u64::MAX - 1]).collect();
    let every = size(11, 1);
    let mut steps = 0;
    for (number, word) in words.into_iter().enumerate().step_by(every) {
        // A quick run takes another of the readings for each word.
        for now in nows.iter().skip(number / every % every).step_by(every) {
            for part in parts {
                steps += try_word(&tiny, word, 3 * tiny.range() + now, *part);
            }
        }
    }
    println!("{tiny:?}: {steps} steps");
    assert!(steps * every as u64 > 1_000, "{steps} steps");
}

/// Returns each of the stamp's ticks.
fn all(tiny: &Tiny) -> Vec<i64> {
    (0..tiny.range()).collect()
}

#[test]
fn every_step_of_fixed_windows_is_the_one_spelled_out() {
    for tiny in [Tiny::new(Counting::SubWindows, 58, 0, 3), Tiny::new(Counting::Months, 60, 0, 2)] {
        try_all(tiny, all(&tiny).into_iter(), &all(&tiny));
    }
}

#[test]
fn every_step_of_wide_sub_windows_is_the_one_spelled_out() {
    for (count, before) in [(30, 1), (20, 2), (15, 3), (12, 4), (10, 5)] {
        let tiny = Tiny::new(Counting::SubWindows, count, before, 2);
        try_all(tiny, all(&tiny).into_iter(), &all(&tiny));
    }
}

#[test]
fn every_step_of_narrow_sub_windows_is_the_one_spelled_out() {
    for (count, before, limit) in [(2, 28, 2), (3, 18, 2), (5, 10, 3)] {
        let tiny = Tiny::new(Counting::SubWindows, count, before, limit);
        try_all(tiny, std::iter::once(tiny.range() - 1), &all(&tiny));
    }
}

#[test]
fn every_step_of_weighted_windows_is_the_one_spelled_out() {
    for (count, limit) in [(30, 3), (29, 5)] {
        let tiny = Tiny::new(Counting::Weighted, count, 1, limit);
        let stamps = if count == 30 { all(&tiny) } else { vec![5, tiny.range() - 1] };
        try_all(tiny, stamps.into_iter(), &all(&tiny));
    }
}

#[test]
fn every_step_of_windows_from_the_first_use_is_the_one_spelled_out() {
    let tiny = Tiny::new(Counting::FirstUse, 46, 0, 2);
    // All readings near an edge, and some of the others.
    let (jitter, jump) = tiny.behind();
    let edges = [0, PARTS + 1, -jitter, -jitter - jump];
    let near = edges.into_iter().flat_map(|edge| edge - 3..edge + 4);
    let nows: Vec<i64> = near.chain((0..tiny.range()).step_by(1_009)).collect();
    for stamp in [0, 5, tiny.range() / 2, tiny.range() - 1] {
        let nows: Vec<i64> = nows.iter().map(|now| (now + stamp).rem_euclid(tiny.range())).collect();
        try_all(tiny, std::iter::once(stamp), &nows);
    }
}
