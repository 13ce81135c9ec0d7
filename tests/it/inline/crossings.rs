// promise: one-bucket, state
//! What can be done to a table, on slots that were never taken, on swept ones, and beside a key
//! whose word is that of a slot that was never taken. A map of as much room answers the same.

use std::time::Duration;

use tollgate::{Clock, MockClock, Quota, RateLimiter, WhenFull};

use super::{Fixed, PLACES, POLICIES};

const BURST: u64 = 5;

/// The slots before a crossing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Slots {
    New,
    Swept,
    /// New, but for that of key 0. It has the deepest debt since time 0, so that its word is 0.
    Zero,
}

/// A limiter with room for `PLACES` keys, and its answers.
struct Scene {
    limiter: RateLimiter<u64, Quota, Fixed>,
    mock: MockClock,
    answers: Vec<String>,
}

fn quota() -> Quota {
    Quota::per_hour(BURST)
}

impl Scene {
    fn new((clock, mock): (Clock, MockClock), in_table: bool, keys: u64, policy: WhenFull) -> Scene {
        let builder = RateLimiter::builder(quota()).clock(clock).hasher(Fixed::default()).when_full(policy);
        // A table has a set of eight slots for each six keys.
        let limiter = match in_table {
            true => builder.max_keys(keys as usize * 6 / 8).inline().unwrap(),
            false => builder.max_keys(keys as usize),
        };
        Scene { limiter: limiter.build(), mock, answers: Vec::new() }
    }

    fn prepare(&mut self, slots: Slots) {
        match slots {
            Slots::New => {}
            Slots::Swept => {
                (900..900 + PLACES).for_each(|key| self.take(key, 1));
                self.pass(100_000);
                self.sweep();
            }
            Slots::Zero => {
                while let Ok(owed) = self.limiter.key(&0).reserve() {
                    let _ = owed.commit();
                }
            }
        }
    }

    fn note(&mut self, answer: impl std::fmt::Debug) {
        self.answers.push(format!("{answer:?}"));
    }

    fn take(&mut self, key: u64, n: u64) {
        let decision = self.limiter.try_acquire_n(&key, n);
        self.note(decision.map(|granted| granted.remaining()).map_err(|denied| denied.reason()));
    }

    fn sweep(&mut self) {
        self.note((self.limiter.evict_idle(), self.limiter.len()));
    }

    fn pass(&mut self, seconds: u64) {
        self.mock.advance(Duration::from_secs(seconds));
    }

    /// Notes the keys that are held, and the tokens and the waits of all.
    fn look(&mut self) {
        let looks: Vec<_> = (0..PLACES).chain([100]).map(|key| self.limiter.peek(&key)).collect();
        self.note((self.limiter.len(), looks));
    }

    /// Limits keys until there is no room.
    fn fill(&mut self) {
        (0..PLACES).for_each(|key| self.take(key, 3));
        self.look();
    }
}

/// A call on slots, and its name.
type Crossing = (&'static str, fn(&mut Scene));

const CROSSINGS: [Crossing; 9] = [
    ("a removal of a key that is not held", |scene| {
        let removed = [1, 0, 0].map(|key| scene.limiter.remove(&key));
        scene.note(removed);
        scene.look();
        scene.pass(3);
        scene.fill();
    }),
    ("a removal", |scene| {
        scene.take(1, 4);
        scene.note([1, 1].map(|key| scene.limiter.remove(&key)));
        scene.look();
        scene.take(1, 2);
        scene.pass(3);
        scene.fill();
    }),
    ("all are removed", |scene| {
        scene.limiter.clear();
        scene.look();
        scene.take(1, 4);
        scene.limiter.clear();
        scene.look();
        scene.pass(3);
        scene.fill();
    }),
    ("sweeps", |scene| {
        scene.sweep();
        scene.take(1, 1);
        for seconds in [0, 719, 4, 3_600, 4_000] {
            scene.pass(seconds);
            scene.sweep();
            scene.look();
        }
        scene.fill();
    }),
    ("a change of the rule before the first call", |scene| {
        scene.limiter.set_rule(quota().burst(3)).unwrap();
        scene.look();
        scene.take(1, 4);
        scene.fill();
        scene.pass(3_600);
        scene.look();
    }),
    ("a change of the rule after it", |scene| {
        scene.take(1, 2);
        scene.limiter.set_rule(quota().burst(2)).unwrap();
        scene.look();
        scene.pass(3_600);
        scene.fill();
    }),
    ("a plan", |scene| {
        let plan = scene.limiter.plan(Quota::per_hour(2).burst(3)).unwrap();
        for (key, n) in [(1, 3), (1, 1), (0, 1), (2, 4)] {
            let decision = scene.limiter.key(&key).n(n).under(&plan).try_acquire();
            scene.note(decision.map(|granted| granted.remaining()).map_err(|denied| denied.reason()));
        }
        scene.look();
        scene.pass(5_410);
        scene.sweep();
        scene.look();
    }),
    ("a batch", |scene| {
        let batch = [(&1, 2), (&0, 1), (&1, 4), (&2, 5)];
        let granted: Vec<_> = scene.limiter.try_acquire_batch(&batch).map(|answer| answer.is_ok()).collect();
        scene.note(granted);
        scene.look();
    }),
    ("no room", |scene| {
        scene.fill();
        (0..7).for_each(|_| scene.take(100, 1));
        scene.take(0, 1);
        scene.look();
        scene.pass(2 * 3_600);
        scene.take(100, 1);
        scene.pass(3 * 3_600);
        scene.sweep();
        scene.fill();
    }),
];

#[test]
fn a_table_answers_as_a_map_whatever_its_slots_were() {
    for policy in POLICIES {
        for slots in [Slots::New, Slots::Swept, Slots::Zero] {
            for (name, crossing) in CROSSINGS {
                let [table, map] = [true, false].map(|in_table| {
                    let mut scene = Scene::new(Clock::mock(), in_table, PLACES, policy);
                    scene.prepare(slots);
                    crossing(&mut scene);
                    scene.answers
                });
                for (step, (table, map)) in table.iter().zip(&map).enumerate() {
                    assert_eq!(table, map, "{name}, {slots:?}, {policy:?}: answer {step}");
                }
                assert_eq!(table.len(), map.len());
            }
        }
    }
}

/// The keys of a state find other slots in a table of another size. It is restored also without
/// room for all of them.
#[test]
fn a_state_is_restored_in_a_table_of_another_size() {
    for before in [Slots::New, Slots::Swept] {
        for (slots, keys) in [Slots::New, Slots::Zero]
            .into_iter()
            .flat_map(|slots| [PLACES, 2 * PLACES, 1_000 * PLACES].map(|keys| (slots, keys)))
        {
            let clock = Clock::mock();
            let mut restored = Scene::new(clock.clone(), true, keys, WhenFull::Share);
            restored.prepare(before);
            let mut saved = Scene::new(clock, true, 2 * PLACES, WhenFull::Share);
            saved.prepare(slots);
            saved.fill();
            restored.limiter.restore(&saved.limiter.save()).expect("there is room");
            [&mut restored, &mut saved].into_iter().for_each(|scene| scene.answers.clear());
            for scene in [&mut restored, &mut saved] {
                scene.look();
                (0..PLACES).for_each(|key| scene.take(key, 2));
                scene.look();
            }
            assert_eq!(restored.answers, saved.answers, "{slots:?} into {before:?}, {keys} keys");

            (0..PLACES).for_each(|key| saved.take(50 + key, 1));
            assert_eq!(restored.limiter.restore(&saved.limiter.save()), Ok(()), "{keys} keys");
        }
    }
}
