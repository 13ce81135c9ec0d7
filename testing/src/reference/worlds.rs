//! The ideal bucket where one cannot tell which of two it is.
//!
//! No answer tells whether tokens came back. Within a tick of a full bucket, or of a position in
//! line, only the word tells whether that was committed. Then there are two ideals from there on.
//! Each answer must be right for one of them, and the ideals for which it is wrong are dropped.

use super::verbs::Slot;
use super::{Ideal, Maybe};

/// The most ideals that are followed.
const MOST: usize = 8;

/// One ideal, and its takes that may be given back.
#[derive(Clone, Debug)]
pub struct World {
    /// The bucket.
    pub ideal: Ideal,
    /// The takes, in the order of their making.
    pub slots: Vec<Slot>,
}

/// The ideals that may be true, never none.
#[derive(Clone, Debug)]
pub struct Worlds(Vec<World>);

impl Maybe {
    fn options(self) -> impl Iterator<Item = bool> {
        [true, false].into_iter().filter(move |so| if *so { self.yes } else { self.no })
    }
}

impl Worlds {
    /// Follows one ideal.
    pub fn new(ideal: Ideal) -> Worlds {
        Worlds(vec![World { ideal, slots: Vec::new() }])
    }

    /// Returns whether the ideals are too many to be followed.
    pub fn are_lost(&self) -> bool {
        self.0.len() > MOST
    }

    /// Compares an answer with each ideal, and drops those for which it is wrong. One must be left.
    pub fn check(&mut self, mut answer: impl FnMut(&mut World) -> Result<(), String>) {
        let mut wrong = None;
        self.0.retain_mut(|world| match answer(world) {
            Ok(()) => true,
            Err(what) => {
                wrong = Some(what);
                false
            }
        });
        if let (true, Some(what)) = (self.0.is_empty(), wrong) {
            panic!("{what}");
        }
    }

    /// Returns one of the ideals.
    pub fn any(&self) -> &Ideal {
        &self.0[0].ideal
    }

    /// Changes each ideal.
    pub fn each(&mut self, change: impl FnMut(&mut World)) {
        self.0.iter_mut().for_each(change);
    }

    /// Returns whether something may be true of any ideal.
    pub fn may(&self, ask: impl Fn(&Ideal) -> Maybe) -> Maybe {
        let all = self.0.iter().map(|world| ask(&world.ideal));
        all.fold(Maybe { yes: false, no: false }, |one, other| Maybe {
            yes: one.yes || other.yes,
            no: one.no || other.no,
        })
    }

    /// Keeps the ideals of which it may be `so`.
    pub fn is_so(&mut self, so: bool, ask: impl Fn(&Ideal) -> Maybe) {
        self.0.retain(|world| ask(&world.ideal).options().any(|option| option == so));
    }

    /// Makes a slot for `n` tokens of each ideal, which may be given back.
    pub fn slot(&mut self, now: u64, n: u64) {
        self.each(|World { ideal, slots }| slots.push(ideal.slot(now, n)));
    }

    /// Drops a slot, whose tokens do not come back.
    pub fn forget(&mut self, slot: usize) {
        self.each(|world| {
            world.slots.swap_remove(slot);
        });
    }

    /// Gives `n` back to each ideal. Whether that was `committed` may be visible.
    pub fn refund(&mut self, now: u64, n: u64, committed: Option<bool>) {
        match committed {
            Some(_) => self.check(|world| world.ideal.refund(now, n, committed)),
            None => self.split(
                |world| world.ideal.refunds(now, n),
                |world, committed| world.ideal.refund(now, n, Some(committed)),
            ),
        }
    }

    /// Gives the last `n` tokens of a slot back, as far as the bucket would still have them.
    pub fn give_excess(&mut self, now: u64, slot: usize, n: u64) {
        self.split(
            |World { ideal, slots }| ideal.gives_excess(now, &slots[slot], n),
            |World { ideal, slots }, committed| ideal.give_excess(now, &slots[slot], n, committed),
        );
    }

    /// Compares an answer with each ideal, in either of two ways if it `may` be either.
    pub fn check_either(
        &mut self,
        may: impl Fn(&Ideal) -> Maybe,
        answer: impl Fn(&mut Ideal, bool) -> Result<(), String>,
    ) {
        let both = |World { ideal, .. }: &World| may(ideal).options().count() == 2;
        let others: Vec<World> = self.0.iter().filter(|world| both(world)).cloned().collect();
        let firsts = self.0.len();
        self.0.extend(others);
        let mut index = 0;
        self.check(|world| {
            index += 1;
            // Of a world in two ways, the copy is the other way.
            let may = may(&world.ideal);
            answer(&mut world.ideal, if index <= firsts { may.yes } else { false })
        });
    }

    /// Gives a slot back. `seen` tells, if it is visible, whether the slot was found to be the
    /// last, and whether that was committed.
    pub fn give_back(&mut self, now: u64, slot: usize, n: u64, seen: Option<(bool, bool)>) {
        if seen.is_some() {
            self.check(|World { ideal, slots }| ideal.give_back(now, &slots[slot], seen).map(|_| ()));
            return self.forget(slot);
        }
        for index in 0..self.0.len() {
            let last = self.0[index].ideal.is_last(&self.0[index].slots[slot]);
            let ways = last.options().flat_map(|last| {
                let commits =
                    if last { self.0[index].ideal.refunds(now, n) } else { Maybe { yes: false, no: true } };
                commits.options().map(move |committed| (last, committed))
            });
            let ways: [Option<(bool, bool)>; 3] = first_three(ways);
            for way in ways.iter().skip(1).flatten() {
                let mut other = self.0[index].clone();
                give_back(&mut other, now, slot, *way);
                self.0.push(other);
            }
            give_back(&mut self.0[index], now, slot, ways[0].expect("it is one of them"));
        }
        self.forget(slot);
    }

    /// Continues each ideal in all ways that are possible.
    fn split(&mut self, ask: impl Fn(&World) -> Maybe, go: impl Fn(&mut World, bool) -> Result<(), String>) {
        for index in 0..self.0.len() {
            let may = ask(&self.0[index]);
            if may.yes && may.no {
                let mut other = self.0[index].clone();
                go(&mut other, false).expect("it may be");
                self.0.push(other);
            }
            go(&mut self.0[index], may.yes).expect("it may be");
        }
    }
}

fn first_three<T: Copy>(mut all: impl Iterator<Item = T>) -> [Option<T>; 3] {
    [all.next(), all.next(), all.next()]
}

fn give_back(world: &mut World, now: u64, slot: usize, way: (bool, bool)) {
    let slot = world.slots[slot];
    world.ideal.give_back(now, &slot, Some(way)).expect("it may be");
}
