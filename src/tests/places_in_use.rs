// promise: inflight
//! The places in use of each key: on clocks that stand, leap and go back, and the steps on every
//! kind of word.

use std::sync::Arc;
use std::time::Duration;

use crate::bucket::reservation::Hold;
use crate::keyed::overflow::WhenFull;
use crate::limiter::hook::DecisionHook;
use crate::limiter::inner::Inner;
use crate::limiter::rule::engine_of;
use crate::limiter::settings::KeySettings;
use crate::rule::layout::Layout;
use crate::rule::window_layout::{MAX_PLACES, WindowLayout};
use crate::time::clock::{Clock, MockClock};
use crate::word::places::PlaceTerms;
use crate::word::state::{Reading, State};
use crate::word::terms::Terms;
use crate::word::verb::{Give, Take};
use crate::{Denied, Places, RateLimiter, Reason};
use tollgate_testing::{Random, size};

const HOUR: Duration = Duration::from_secs(3_600);
const YEARS: Duration = Duration::from_secs(150 * 365 * 86_400);

/// Returns a limiter whose words are read beside a clock that moves.
fn on(clock: &Clock, limit: u32, keys: KeySettings<std::hash::RandomState>) -> RateLimiter<u64, Places> {
    let engine = engine_of(WindowLayout::places(limit), clock.clone(), None);
    let (keyspace, hasher) = KeySettings { when_full: WhenFull::Deny, ..keys }.keyspace(engine);
    RateLimiter { inner: Arc::new(Inner::new(keyspace, hasher, DecisionHook::NONE, None)), built: () }
}

fn in_use(limiter: &RateLimiter<u64, Places>, key: u64) -> u64 {
    u64::from(limiter.rule().limit()) - limiter.peek(&key).remaining()
}

fn enter(limiter: &RateLimiter<u64, Places>, key: u64) -> Result<Hold<'_>, Denied> {
    limiter.key(&key).hold()
}

/// Ways in which a clock moves from one call to the next.
const MOVES: [fn(&MockClock); 6] = [
    |_| {},
    |mock| mock.advance(Duration::from_nanos(1)),
    |mock| mock.advance(24 * HOUR),
    |mock| mock.advance(YEARS),
    |mock| mock.rewind(2 * HOUR),
    |mock| mock.rewind(YEARS),
];

/// A key that has its limit in flight is full after any move of the clock, and is not forgotten.
#[test]
fn no_move_of_a_clock_frees_a_place_or_forgets_a_key() {
    for (which, moves) in MOVES.iter().enumerate() {
        let (clock, mock) = Clock::mock();
        let keys = KeySettings::default;
        let limiters = [on(&clock, 8, keys()), on(&clock, 8, keys().max_keys(64).inline().unwrap())];
        mock.advance(10 * HOUR);
        for limiter in &limiters {
            let mut held: Vec<_> = (0..8).map(|_| enter(limiter, 1).unwrap()).collect();
            let one = enter(limiter, 2).unwrap();
            for _ in 0..3 {
                moves(&mock);
                assert_eq!([1, 2].map(|key| in_use(limiter, key)), [8, 1], "move {which}");
                assert_eq!(enter(limiter, 1).unwrap_err().reason(), Reason::Empty, "move {which}");
                assert!(!limiter.remove(&1) && !limiter.remove(&2), "move {which}");
                limiter.clear();
                assert_eq!((limiter.evict_idle(), limiter.len()), (0, 2), "move {which}");
                held.pop().unwrap().settle(0);
                held.push(enter(limiter, 1).expect("a place is free"));
            }
            held.into_iter().chain([one]).for_each(|hold| assert_eq!(hold.settle(0), 0));
            assert!(limiter.remove(&2) && !limiter.remove(&2), "move {which}");
            assert_eq!((limiter.evict_idle(), limiter.len()), (1, 0), "move {which}");
        }
    }
}

/// Beside exact counts, on a clock that moves at random, where 20 keys come and go in a limiter
/// that has room for 4.
#[test]
fn the_count_is_exact_on_any_clock() {
    const LIMIT: u32 = 3;
    let steps = size(15_000, 60_000);
    let (clock, mock) = Clock::mock();
    let few = || KeySettings::default();
    for (limiter, keys) in [
        (on(&clock, LIMIT, few().max_keys(4)), 20),
        (on(&clock, LIMIT, few().max_keys(16).inline().unwrap()), 400),
    ] {
        let mut random = Random(3);
        let mut flights: Vec<(u64, Hold<'_>)> = Vec::new();
        let [mut admitted, mut refused, mut full] = [0; 3];
        for step in 0..steps {
            MOVES[random.below(6) as usize](&mock);
            let key = random.below(keys);
            let count = flights.iter().filter(|(of, _)| *of == key).count() as u64;
            assert_eq!(in_use(&limiter, key), count, "{step}");
            if random.below(2) == 0 {
                match enter(&limiter, key) {
                    Ok(flight) => {
                        assert!(count < LIMIT.into(), "{step}");
                        flights.push((key, flight));
                        admitted += 1;
                    }
                    Err(by) if by.reason() == Reason::Full => {
                        assert_eq!(count, 0, "{step}");
                        full += 1;
                    }
                    Err(by) => {
                        assert_eq!((by.remaining(), count), (0, LIMIT.into()), "{step}");
                        refused += 1;
                    }
                }
            } else if !flights.is_empty() {
                let which = random.below(flights.len() as u64) as usize;
                flights.swap_remove(which).1.settle(0);
            }
            match random.below(200) {
                0 => _ = limiter.evict_idle(),
                1 => limiter.clear(),
                2..6 => assert!(!limiter.remove(&key) || in_use(&limiter, key) == 0),
                _ => {}
            }
            if random.below(300) == 0 {
                flights.drain(..).for_each(|(_, hold)| assert_eq!(hold.settle(0), 0));
            }
        }
        assert!(
            admitted > steps / 6 && full > steps / 1_200 && (refused > steps / 6_000 || keys > 20),
            "{admitted} {full} {refused}"
        );
    }
}

/// Each commit raises the number of commits, also over its end, and over a slot that changes hands.
/// So no word comes twice.
#[test]
fn each_step_counts_and_raises_the_number_of_commits() {
    let limit = 5;
    let WindowLayout { widths, numbers } = WindowLayout::places(limit);
    let terms = Terms::in_layout(numbers, Layout { widths, debt: 0 });
    let number = |state: State| state.word() & terms.mask;
    for tick in [0, 1, terms.mask, u64::MAX] {
        let reading = Reading { refill: terms, at: 0, tick };
        let by = PlaceTerms::of(reading, None);
        let counts = [0, 1, 4, 5, 6, u64::from(MAX_PLACES)];
        let stamps = (0..4).chain(terms.mask - 4..=terms.mask);
        for (count, stamp) in counts.into_iter().flat_map(|count| stamps.clone().map(move |at| (count, at))) {
            let state = State::pack(&terms, count, stamp);
            let raised = |next: State, to: u64| {
                assert_eq!((next.stored(&terms), number(next)), (to, (stamp + 1) & terms.mask));
            };
            let (outcome, next) = Take::Exactly(1).apply(state, &by);
            assert_eq!((outcome.granted, next.is_some()), (count < 5, count < 5));
            next.into_iter().for_each(|next| raised(next, count + 1));
            let left = Give::Refund(1).apply(&by.refill, state, tick);
            assert_eq!(left.is_some(), count > 0);
            left.into_iter().for_each(|next| raised(next, count - 1));
            assert_eq!(by.refill.is_idle(state), count == 0);
            // The next key of the slot goes on from the number, or behind the reserved words.
            let vacant = by.refill.vacated(state);
            assert!(vacant.is_level() && by.refill.is_idle(vacant) && by.refill.vacated(vacant) == vacant);
            let (_, first) = Take::Exactly(1).apply(vacant, &by);
            let later = number(first.expect("a place is free")).wrapping_sub(stamp) & terms.mask;
            assert!((1..=4).contains(&later), "{later}");
        }
        for unused in [State::FULL, State::SEALED, State::INSERTING] {
            assert!(by.refill.is_idle(unused));
            assert_eq!(Give::Refund(1).apply(&by.refill, unused, tick), None);
        }
        let (_, first) = Take::Exactly(1).apply(State::FULL, &by);
        assert_eq!(first.map(|first| (first.stored(&terms), number(first))), Some((1, 0)));
        assert_eq!(by.refill.vacated(State::FULL), State::FULL);
    }
}
