// promise: one-bucket
//! A move of the map's entries, which an insertion begins and calls end. A counter of steps stands
//! in for the map: the move that is under way, and the steps that it has left.

use std::sync::Arc;

use super::{explore, run};
use crate::keyed::moves::Moves;
use crate::sync::{AtomicU32, Ordering::Relaxed};

struct World {
    moves: Moves,
    /// The moves so far times 16, and the steps that are left of the last.
    steps: AtomicU32,
}

impl World {
    /// Begins a move of two steps, or makes a step of the one that is on. An entry that is moved is
    /// in two tables until that move ends.
    fn insert(&self) {
        let next = |steps| Some(if steps % 16 == 0 { steps + 17 } else { steps - 1 });
        let steps = self.steps.fetch_update(Relaxed, Relaxed, next).expect("it returns a number");
        self.moves.begin(if steps % 16 == 0 { steps / 16 + 1 } else { steps / 16 });
    }

    /// Makes a step if the move of an entry is on. The load comes first, as papaya's of its table:
    /// the mark must order it after the insertion.
    fn step(&self, moved: u32) -> bool {
        let next = |steps| (steps / 16 == moved && steps % 16 > 0).then(|| steps - 1);
        next(self.steps.load(Relaxed)).is_some() && self.steps.fetch_update(Relaxed, Relaxed, next).is_ok()
    }

    fn end(&self) {
        let next = |steps| (steps % 16 > 0).then_some(steps / 16 * 16);
        if next(self.steps.load(Relaxed)).is_some() {
            let _ = self.steps.fetch_update(Relaxed, Relaxed, next);
        }
    }

    fn look_up(&self) {
        if self.moves.are_on() {
            self.moves.help(|moved| self.step(moved), || self.end());
        }
    }
}

/// Calls in turn end what is left after any interleaving, also where a thread says a move that has
/// ended, and so hides the mark of the next.
#[test]
fn a_move_is_ended_by_somebody() {
    explore("a move is ended by somebody", || {
        let world = Arc::new(World { moves: Moves::new(), steps: AtomicU32::new(0) });
        world.insert();
        let two: fn(&World) = |world| (0..2).for_each(|_| world.insert());
        run(&world, &[two, World::look_up, World::insert]);
        for _ in 0..5 {
            world.look_up();
        }
        assert_eq!((world.steps.load(Relaxed) % 16, world.moves.are_on()), (0, false));
    });
}
