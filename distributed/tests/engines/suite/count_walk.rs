//! A random walk of windows: each answer and each stored row equals `Count::step`, number by
//! number.

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tollgate::Window;
use tollgate_distributed::{Amount, Count, CountSpec, Edges, Op, Store};

use crate::engine::{Counts, Engine, now_us};

const KEYS: usize = 64;
/// The most tokens of a count.
const MOST: u64 = (1 << 53) - 1;

/// A gap between two calls on a key, and the values that are written in it.
#[derive(Clone, Debug)]
enum Gap {
    /// Real time only.
    None,
    /// The row begins this much before now.
    Began(i64),
    /// The row began this part of its length before now, in hundredths.
    Part(u64),
    Forgotten,
    /// The row has any numbers, of any number of sub-windows.
    Forged(Vec<u64>, u64),
}

/// The tokens of a call, in terms of its window.
#[derive(Clone, Copy, Debug)]
struct Wish {
    min: i64,
    max: i64,
    spent: u64,
    of: Of,
    /// Hundredths of the limit that are added to `max`, or taken off for tokens that go back.
    part: i64,
}

/// The window that a call names.
#[derive(Clone, Copy, Debug)]
enum Of {
    Present,
    Last,
    Other(u64),
}

type Step = (Option<CountSpec>, Gap, Wish);

fn specs() -> impl Strategy<Value = CountSpec> {
    let nanos = prop_oneof![
        1_000_000..20_000_000_u64,
        Just(1_000_000_000),
        Just(60_000_000_000),
        Just(7 * 86_400_000_000_000),
        1_000_000..1_u64 << 61,
    ];
    let limits = prop_oneof![1..10_u64, 1..1_000_u64, 1..1_u64 << 40];
    let kinds = 0..6_u8;
    (limits, nanos, kinds, any::<bool>(), -48..=56_i16).prop_filter_map(
        "no window",
        |(limit, nanos, kind, lease, quarter)| {
            let fixed = Window::try_per(limit, Duration::from_nanos(nanos)).ok()?;
            let window = match kind {
                0 => fixed,
                1 => fixed.try_utc_offset(0).ok()?,
                2 => fixed.try_utc_offset(15 * quarter).ok()?,
                3 => Window::per_month(1).with_limit(limit).ok()?.try_utc_offset(15 * quarter).ok()?,
                4 => fixed.try_sliding().ok()?,
                _ => fixed.granularity(Duration::from_nanos(nanos)).ok()?,
            };
            let spec = CountSpec::new(window, Duration::from_micros(now_us())).unwrap();
            Some(if lease { spec.leased() } else { spec })
        },
    )
}

fn wishes() -> impl Strategy<Value = Wish> {
    let of = prop_oneof![2 => Just(Of::Present), 4 => Just(Of::Last), 1 => any::<u64>().prop_map(Of::Other)];
    let small = (
        0..6_i64,
        0..6_i64,
        prop_oneof![4 => Just(0), 1 => 0..9_u64],
        prop_oneof![2 => Just(0), 1 => -100..150_i64],
    );
    let small = small.prop_map(|(one, other, spent, part)| (one.min(other), one.max(other), spent, part));
    let back = (-9..0_i64).prop_map(|max| (0, max, 0, 0));
    let odd = any::<(i64, i64, u64)>().prop_map(|(min, max, spent)| (min, max, spent, 0));
    (prop_oneof![8 => small, 2 => back, 1 => odd], of).prop_map(|((min, max, spent, part), of)| Wish {
        min,
        max,
        spent,
        of,
        part,
    })
}

fn gaps() -> impl Strategy<Value = Gap> {
    let forged = (prop::collection::vec((0..46_u32, 0..1_u64 << 46), 1..=65), 0..1_u64 << 40);
    let forged = forged.prop_map(|(used, length)| {
        Gap::Forged(used.into_iter().map(|(small, used)| used >> small).collect(), length)
    });
    prop_oneof![
        4 => Just(Gap::None),
        6 => (0..130_u64).prop_map(Gap::Part),
        1 => (0..1_i64 << 48).prop_map(Gap::Began),
        1 => (-1_100_000..0_i64).prop_map(Gap::Began),
        1 => (-3_600_000_000..-900_000_i64).prop_map(Gap::Began),
        1 => Just(Gap::Forgotten),
        1 => forged,
    ]
}

struct Walk {
    keys: Vec<Vec<u8>>,
    specs: Vec<CountSpec>,
    /// The edges of the last answers.
    edges: Vec<u64>,
    counts: Counts,
    /// Calls that changed a count, and calls that did not.
    seen: [u64; 2],
}

/// Walks `steps` steps of a store, up to 64 in a batch.
pub(crate) async fn walk<E: Engine>(engine: &mut E, store: &E::Store, steps: u64) {
    let mut runner = TestRunner::deterministic();
    let step = (prop::option::weighted(0.2, specs()), gaps(), wishes());
    let batch = (prop::collection::vec(step, KEYS), prop_oneof![1 => 1..=KEYS, 6 => Just(KEYS)]);
    let first = prop::collection::vec(specs(), KEYS);
    let specs = first.new_tree(&mut runner).unwrap().current();
    let keys = (0..KEYS).map(|key| format!("w'\"\\\0:{key}").into_bytes()).collect();
    let mut walk = Walk { keys, specs, edges: vec![0; KEYS], counts: Counts::new(), seen: [0; 2] };
    let mut walked = 0;
    while walked < steps {
        let (batch, length) = batch.new_tree(&mut runner).unwrap().current();
        walk.batch(engine, store, &batch[..length], walked as usize).await;
        walked += length as u64;
    }
    let [changed, kept] = walk.seen;
    assert!(changed > steps / 5 && kept > steps / 20, "{changed} calls changed a count, and {kept} did not");
}

impl Walk {
    /// Walks one batch, which begins at another key each time.
    async fn batch<E: Engine>(&mut self, engine: &mut E, store: &E::Store, steps: &[Step], offset: usize) {
        let places: Vec<usize> = (0..steps.len()).map(|index| (index * 5 + offset) % KEYS).collect();
        for (&place, (spec, ..)) in places.iter().zip(steps) {
            self.specs[place] = spec.unwrap_or(self.specs[place]);
        }
        self.forge(engine, &places, steps).await;
        let amounts: Vec<_> =
            places.iter().zip(steps).map(|(&place, (.., wish))| self.amount(place, *wish)).collect();
        let keys = self.keys.clone();
        let mut ops: Vec<Op<'_>> = places
            .iter()
            .zip(&amounts)
            .map(|(&place, &amount)| Op::new(&keys[place], self.specs[place], amount))
            .collect();
        store.acquire(&mut ops).await.unwrap();
        let counts = engine.counts().await;
        for (op, &place) in ops.iter().zip(&places) {
            let stored = self.counts.get(op.key);
            let stepped = Count::step(stored, &self.specs[place], op.answer.now_us, op.amount);
            let (count, answer) = stepped.unwrap();
            assert_eq!(op.answer, answer, "the answer of {op:?} on {stored:?}");
            self.edges[place] = answer.edge_us;
            self.seen[usize::from(count.is_none())] += 1;
            if let Some(count) = count {
                assert_eq!(counts.get(op.key), Some(&count), "the row of {op:?} on {stored:?}");
                self.counts.insert(op.key.to_vec(), count);
            }
        }
        assert_eq!(counts, self.counts);
    }

    fn amount(&self, place: usize, wish: Wish) -> Amount {
        let part = (i128::from(self.specs[place].limit()) * i128::from(wish.part) / 100) as i64;
        let of_us = match wish.of {
            Of::Present => 0,
            Of::Last => self.edges[place],
            Of::Other(of_us) => of_us,
        };
        Amount { min: wish.min, max: wish.max.saturating_add(part), spent: wish.spent, of_us }
    }

    /// Moves the times of rows, as if time had passed, deletes rows, and writes rows of any count.
    async fn forge(&mut self, engine: &mut impl Engine, places: &[usize], steps: &[Step]) {
        let (mut moved, mut forgotten) = (Counts::new(), Vec::new());
        for (&place, (_, gap, _)) in places.iter().zip(steps) {
            let key = &self.keys[place];
            if let Gap::Forged(used, length) = gap {
                let length = length * used.len() as u64;
                let start_us = now_us() - length / 2;
                let count =
                    Count { start_us, used: used.clone().into(), end_us: (start_us + length).min(MOST) };
                self.counts.insert(key.clone(), count.clone());
                moved.insert(key.clone(), count);
                continue;
            }
            let Some(count) = self.counts.get_mut(key) else { continue };
            let length = count.end_us - count.start_us;
            let before = match gap {
                Gap::None | Gap::Forged(..) => continue,
                Gap::Forgotten => {
                    forgotten.push(key.clone());
                    continue;
                }
                Gap::Began(before) => *before,
                Gap::Part(hundredths) => (u128::from(length) * u128::from(*hundredths) / 100) as i64,
            };
            count.start_us = (now_us() as i64 - before).max(0) as u64;
            count.end_us = (count.start_us + length).min(MOST);
            moved.insert(key.clone(), count.clone());
        }
        self.counts.retain(|key, _| !forgotten.contains(key));
        engine.put_counts(&moved).await;
        engine.delete_counts(&forgotten).await;
    }
}

/// A call whose months are far from the clock of the store is a permanent error of that call.
pub(crate) async fn months_of_another_time_are_an_error_of_their_call(engine: impl Engine) {
    let month = CountSpec::new(Window::per_month(5), Duration::from_secs(1_000_000_000)).unwrap();
    assert!(matches!(month.edges(), Edges::Given(_)));
    let day = CountSpec::new(Window::per_day(5).utc(), Duration::ZERO).unwrap();
    let one = Amount { min: 1, max: 1, spent: 0, of_us: 0 };
    let mut ops = [Op::new(b"day", day, one), Op::new(b"month", month, one)];
    let error = engine.store().acquire(&mut ops).await.unwrap_err();
    assert_eq!(error.kind(), tollgate_distributed::StoreErrorKind::Permanent, "{error}");
    assert!(error.to_string().contains("weeks apart"), "{error}");
    let mut alone = [Op::new(b"day", day, one)];
    engine.store().acquire(&mut alone).await.unwrap();
    // A store may decide the other call, or none of the batch.
    let decided = i64::from(ops[0].answer.now_us != 0);
    assert_eq!(alone[0].answer.credits, 5 - 1 - decided, "{ops:?}");
}
