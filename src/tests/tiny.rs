//! Every step on every word of tiny layouts, against one that is spelled out in plain integers.

use crate::frame::{Frame, Layout, Numbers};
use crate::state::{Outcome, Spot, State};
use crate::terms::Terms;

/// A step as it is read off the design: all that is rounded is spelled out.
#[derive(Clone, Copy, Debug)]
struct Spelled {
    level: i128,
    stamp: i128,
    lag: i128,
    adopted: bool,
    /// Nobody's word, or never charged: nothing is given to it.
    reserved: bool,
    /// What it will have earned, from the beginning, when it has 0 units: modulo the range.
    mark: i128,
    bits: u8,
    scale: u8,
    fraction: u8,
    capacity: i128,
    floor: i128,
    lowest: i128,
}

/// Granted, units taken, level, lag, and the word to commit.
type Came = (bool, u64, u64, u64, Option<u64>);

fn range(terms: &Terms) -> i128 {
    1 << terms.layout.stamp
}

/// How a difference to the stamp is read.
enum Difference {
    Passed(i128),
    Jitter(i128),
    Jump,
}

fn difference(terms: &Terms, from: i128, to: i128) -> Difference {
    let range = range(terms);
    let window = range - i128::from(terms.jitter());
    let jump = i128::from(terms.jitter()) - i128::from(terms.horizon);
    let behind = (from - to).rem_euclid(range);
    if behind == 0 || behind > window + jump {
        Difference::Passed((to - from).rem_euclid(range))
    } else if behind <= window {
        Difference::Jitter(behind)
    } else {
        Difference::Jump
    }
}

impl Spelled {
    fn at(terms: &Terms, word: u64, now: u64) -> Spelled {
        let Layout { scale, stamp: bits, fraction, fixed_debt } = terms.layout;
        let range = range(terms);
        let (stored, stamp) = (i128::from(word >> bits), i128::from(word) % range);
        let now = i128::from(now) % range;
        let reserved = word >= u64::MAX - 1;
        let (capacity, floor) = (i128::from(terms.capacity), i128::from(terms.floor));
        let (level, stamp_then, lag, adopted) = match difference(terms, stamp, now) {
            _ if reserved => (capacity, now, 0, false),
            Difference::Passed(passed) => ((stored + (passed << scale)).min(capacity), now, 0, false),
            Difference::Jitter(behind) => (stored.min(capacity), stamp, behind, false),
            Difference::Jump => (stored.min(capacity), now, 0, true),
        };
        // The most debt: what was asked for, or one burst.
        let debt = if fixed_debt { floor } else { floor.min(capacity - floor) };
        let mark = ((stamp << scale) - stored).rem_euclid(range << scale);
        let lowest = floor - debt;
        let stamp = stamp_then;
        Spelled { level, stamp, lag, adopted, reserved, mark, bits, scale, fraction, capacity, floor, lowest }
    }

    fn word(&self, level: i128) -> u64 {
        (level << self.bits | self.stamp) as u64
    }

    fn takes(&self, taken: i128) -> Came {
        let left = self.level - taken;
        let next = (taken > 0 || self.adopted).then_some(self.word(left));
        (taken > 0, taken as u64, left as u64, self.lag as u64, next)
    }

    fn take(&self, need: i128) -> Came {
        self.takes(if self.level - self.floor >= need { need } else { 0 })
    }

    fn tokens_above(&self, floor: i128, most: i128) -> i128 {
        (((self.level - floor).max(0) >> self.fraction) << self.fraction).min(most)
    }

    /// Ticks until all of `need` is earned.
    fn delay(&self, need: i128) -> i128 {
        let missing = need + self.floor - self.level;
        let tick = 1 << self.scale;
        if missing <= 0 { 0 } else { (missing + tick - 1) / tick + self.lag }
    }

    fn reserve(&self, need: i128, patience: i128) -> Came {
        let promised = self.level - need >= self.lowest && self.delay(need) <= patience;
        self.takes(if promised { need } else { 0 })
    }

    fn give(&self, units: i128) -> Option<u64> {
        let level = (self.level + units).min(self.capacity);
        let changes = level > self.level || self.adopted;
        (!self.reserved && changes).then(|| self.word(level))
    }

    fn undo(&self, terms: &Terms, need: i128, before: i128, since: i128, now: i128) -> Option<u64> {
        // As it was at its stamp, if the reading is behind that.
        let earned = match difference(terms, since, now + self.lag) {
            Difference::Passed(passed) => passed << self.scale,
            _ => 0,
        };
        self.give((need - (before + earned - self.capacity).max(0)).max(0))
    }

    /// Ticks until it was full, by this pace and by one that takes `longest`, for the margin.
    fn evictable_in(&self, terms: &Terms, word: u64, now: u64, longest: u64) -> u64 {
        let stored = (i128::from(word) >> self.bits).min(self.capacity);
        let tick = 1 << self.scale;
        let due =
            ((self.capacity - stored + tick - 1) / tick).max(longest.into()) + i128::from(terms.margin());
        let due = match difference(terms, i128::from(word) % range(terms), now.into()) {
            _ if self.reserved => 0,
            Difference::Passed(passed) => (due - passed).max(0),
            Difference::Jitter(behind) => due + behind,
            Difference::Jump => due,
        };
        due as u64
    }

    /// Whether a reading from before may decide: it is jitter, or later than the stamp by less than half the range.
    fn admits_reading(terms: &Terms, word: u64, now: u64) -> bool {
        let (from, to) = (i128::from(word), i128::from(now));
        let jitter = matches!(difference(terms, from % range(terms), to), Difference::Jitter(_));
        let later = (to - from).rem_euclid(range(terms)) * 2 < range(terms);
        word < u64::MAX - 1 && (jitter || later)
    }
}

fn came((outcome, next): (Outcome, Option<State>)) -> Came {
    let Outcome { granted, taken, level, lag, spot } = outcome;
    assert_eq!(spot, Spot::Own);
    (granted, taken, level, lag, next.map(State::word))
}

/// A tiny layout. What is in debt has fewer tokens, as all of it has to fit.
fn tiny(stamp: u8, fraction: u8, scale: u8, burst: u64, debt: u64, fixed_debt: bool) -> Terms {
    let layout = Layout { fraction, scale, stamp, fixed_debt };
    let quota = Numbers { tokens: 1, nanos: 10_000_000_000, burst };
    let terms = Terms::in_frame(quota, Frame { layout, debt });
    // Some with the wider window of a quota that was changed.
    if fixed_debt { terms.after_others() } else { terms }
}

fn all() -> Vec<Terms> {
    vec![
        tiny(6, 3, 0, 7, 0, false),
        tiny(6, 0, 0, 60, 0, false),
        tiny(6, 6, 0, 1, 0, false),
        tiny(5, 0, 2, 40, 0, false),
        tiny(6, 0, 3, 33, 0, false),
        tiny(7, 2, 0, 15, 0, false),
        tiny(4, 1, 0, 3, 0, false),
        tiny(6, 3, 0, 4, 4, false),
        tiny(5, 0, 0, 20, 20, false),
        tiny(6, 4, 0, 1, 1, false),
        tiny(5, 0, 2, 17, 17, false),
        // The burst was lowered, and raised.
        tiny(5, 1, 0, 3, 8, false),
        tiny(5, 1, 0, 8, 3, false),
        tiny(5, 1, 0, 3, 8, true),
        tiny(5, 0, 1, 9, 3, true),
        tiny(4, 2, 0, 2, 1, true),
    ]
}

/// Every word of a layout and some beside, with every tick, a turn of the stamp on.
///
/// The words of a tiny layout have more token bits than the layout uses: levels above the capacity (as after a
/// smaller burst) are tried too.
fn every(terms: &Terms, mut f: impl FnMut(u64, u64, Spelled)) {
    let stamp = terms.layout.stamp;
    let levels = (0..terms.capacity + 3).map(|level| level << stamp);
    let words = levels.flat_map(|level| (0..1 << stamp).map(move |stamp| level | stamp));
    for word in words.chain([u64::MAX, u64::MAX - 1]) {
        for now in (0..1 << stamp).map(|tick| tick + (3 << stamp)) {
            f(word, now, Spelled::at(terms, word, now));
        }
    }
}

#[test]
fn every_take_of_tiny_layouts_is_the_one_spelled_out() {
    let mut steps = 0_u64;
    for terms in all() {
        let burst = terms.tokens(terms.capacity - terms.floor);
        every(&terms, |word, now, spelled| {
            // One too many is refused, and heals as well.
            for need in (1..=burst + 1).map(|n| terms.units(n)) {
                let ours = came(State::from_word(word).take(&terms, now, need));
                assert_eq!(ours, spelled.take(need.into()), "{terms:?} {word:#x} {now} {need}");
                steps += 1;
            }
        });
    }
    assert!(steps > 1_000_000, "{steps} steps tried");
}

#[test]
fn every_take_of_what_is_there_is_the_one_spelled_out() {
    let mut steps = 0_u64;
    for terms in all() {
        let tokens = terms.tokens(terms.capacity);
        every(&terms, |word, now, spelled| {
            let state = State::from_word(word);
            for most in [1, 2, 3, tokens / 2 + 1, tokens, tokens + 1].map(|n| terms.units(n)) {
                let at = || format!("{terms:?} {word:#x} {now} {most}");
                let ours = came(state.take_up_to(&terms, now, most));
                let taken = spelled.tokens_above(spelled.floor, most.into());
                assert_eq!(ours, spelled.takes(taken), "{}", at());
                let ours = came(state.charge_up_to(&terms, now, most));
                let taken = spelled.tokens_above(spelled.lowest, most.into());
                assert_eq!(ours, spelled.takes(taken), "{}", at());
                steps += 2;
            }
        });
    }
    assert!(steps > 1_000_000, "{steps} steps tried");
}

#[test]
fn every_reservation_of_tiny_layouts_is_the_one_spelled_out() {
    let mut steps = 0_u64;
    for terms in all() {
        let burst = terms.tokens(terms.capacity - terms.floor);
        every(&terms, |word, now, spelled| {
            for need in [1, 2, burst / 2 + 1, burst].map(|n| terms.units(n)) {
                let delay = spelled.delay(need.into());
                for patience in [0, 1, (delay - 1).max(0), delay, i128::MAX] {
                    let patient = |ticks: u64| i128::from(ticks) <= patience;
                    let ours = came(State::from_word(word).reserve(&terms, now, need, patient));
                    let theirs = spelled.reserve(need.into(), patience);
                    assert_eq!(ours, theirs, "{terms:?} {word:#x} {now} {need} {patience}");
                    steps += 1;
                }
            }
        });
    }
    assert!(steps > 1_000_000, "{steps} steps tried");
}

#[test]
fn everything_given_to_tiny_layouts_is_as_spelled_out() {
    let mut steps = 0_u64;
    for terms in all() {
        let span = range(&terms) << terms.layout.scale;
        every(&terms, |word, now, spelled| {
            let state = State::from_word(word);
            // Units that are no whole tokens come from what is undone.
            for units in [0, 1, terms.units(1), terms.capacity / 2 + 1, terms.capacity, 3 * terms.capacity] {
                let at = || format!("{terms:?} {word:#x} {now} {units}");
                let theirs = spelled.give(units.into());
                assert_eq!(state.give(&terms, now, units).map(State::word), theirs, "{}", at());
                for off in [0, 1, 2, span - 1, i128::from(units)] {
                    let mark = (spelled.mark + off).rem_euclid(span);
                    let ours = state.give_back(&terms, now, units, mark as u64).map(State::word);
                    assert_eq!(ours, theirs.filter(|_| mark == spelled.mark), "{} {mark}", at());
                }
                steps += 6;
            }
        });
    }
    assert!(steps > 1_000_000, "{steps} steps tried");
}

#[test]
fn everything_undone_in_tiny_layouts_is_as_spelled_out() {
    let mut steps = 0_u64;
    for terms in all() {
        let levels =
            [terms.floor, terms.floor + terms.capacity.div_ceil(2), terms.capacity - 1, terms.capacity];
        every(&terms, |word, now, spelled| {
            for need in [1, 2].map(|n| terms.units(n)) {
                for before in levels.map(|level| level.min(terms.capacity)) {
                    for ago in [0, 1, 2, 5, terms.mask / 2, terms.mask - 3, terms.mask] {
                        let since = now - ago;
                        let ours = State::from_word(word).undo(&terms, now, need, before, since);
                        let theirs =
                            spelled.undo(&terms, need.into(), before.into(), since.into(), now.into());
                        let at = || format!("{terms:?} {word:#x} {now} {need} {before} {since}");
                        assert_eq!(ours.map(State::word), theirs, "{}", at());
                        steps += 1;
                    }
                }
            }
        });
    }
    assert!(steps > 1_000_000, "{steps} steps tried");
}

/// What was undone is as if it had never been taken, if nobody else took; and never more, whoever did.
#[test]
fn an_undone_take_mints_nothing() {
    let (mut steps, mut whole) = (0_u64, 0_u64);
    for terms in all() {
        let range = terms.mask + 1;
        for level in 0..=terms.capacity {
            let word = State::pack(&terms, level, 5);
            for since in [5, 6, 7, 5 + range / 4, 5 + range / 2] {
                for need in (1..=3).map(|n| terms.units(n)) {
                    let (outcome, Some(taken)) = word.take(&terms, since, need) else { continue };
                    assert!(outcome.granted);
                    for wait in [0, 1, 2, 5, range / 4] {
                        let now = since + wait;
                        // A bucket that nobody touched is not to wrap meanwhile.
                        if now - 5 >= terms.horizon {
                            continue;
                        }
                        for other in [0, 1, 2].map(|n| terms.units(n)) {
                            // Somebody else in between, in both worlds.
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
                            // At most what was earned in between is lost.
                            assert!(theirs - ours <= wait << terms.layout.scale, "{}", at());
                            steps += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(steps > 20_000 && whole > 5_000, "{steps} steps tried, {whole} alone");
}

/// The edges of all windows and levels, under all verbs: what the tests above do on every word, on a few.
#[test]
fn a_few_words_of_tiny_layouts_are_as_spelled_out_under_all_verbs() {
    for terms in all() {
        let bits = terms.layout.stamp;
        let (floor, capacity) = (terms.floor, terms.capacity);
        let levels = [0, floor, floor + (capacity - floor) / 2, capacity - 1, capacity, capacity + 2];
        let words = levels.map(|level| level << bits | terms.mask / 3).into_iter();
        for word in words.chain([u64::MAX, u64::MAX - 1]) {
            for now in (0..=terms.mask).map(|tick| tick + (3 << bits)) {
                let (state, spelled) = (State::from_word(word), Spelled::at(&terms, word, now));
                for longest in [0, 1, terms.mask] {
                    let due = spelled.evictable_in(&terms, word, now, longest);
                    let at = format!("{terms:?} {word:#x} {now} {longest}");
                    assert_eq!(state.evictable_in(&terms, now, longest), due, "{at}");
                }
                let admits = Spelled::admits_reading(&terms, word, now);
                assert_eq!(state.admits_reading(&terms, now), admits, "{terms:?} {word:#x} {now}");
                for n in [1, 2, terms.tokens(capacity - floor)] {
                    let (need, at) = (terms.units(n), format!("{terms:?} {word:#x} {now} {n}"));
                    let units = i128::from(need);
                    assert_eq!(came(state.take(&terms, now, need)), spelled.take(units), "{at}");
                    let theirs = spelled.takes(spelled.tokens_above(spelled.floor, units));
                    assert_eq!(came(state.take_up_to(&terms, now, need)), theirs, "{at}");
                    let theirs = spelled.takes(spelled.tokens_above(spelled.lowest, units));
                    assert_eq!(came(state.charge_up_to(&terms, now, need)), theirs, "{at}");
                    let delay = spelled.delay(units);
                    for patience in [0, (delay - 1).max(0), delay, i128::MAX] {
                        let ours = state.reserve(&terms, now, need, |ticks| i128::from(ticks) <= patience);
                        assert_eq!(came(ours), spelled.reserve(units, patience), "{at} {patience}");
                    }
                    let given = spelled.give(units);
                    assert_eq!(state.give(&terms, now, need).map(State::word), given, "{at}");
                    let span = range(&terms) << terms.layout.scale;
                    for mark in [spelled.mark, (spelled.mark + 1) % span] {
                        let ours = state.give_back(&terms, now, need, mark as u64).map(State::word);
                        assert_eq!(ours, given.filter(|_| mark == spelled.mark), "{at} {mark}");
                    }
                    for (before, ago) in [(capacity, 0), (capacity - 1, 2), (capacity, terms.mask - 3)] {
                        let since = now - ago;
                        let ours = state.undo(&terms, now, need, before, since).map(State::word);
                        let theirs = spelled.undo(&terms, units, before.into(), since.into(), now.into());
                        assert_eq!(ours, theirs, "{at} {before} {ago}");
                    }
                }
            }
        }
    }
}
