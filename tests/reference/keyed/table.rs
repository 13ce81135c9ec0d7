//! The state of a table as seen from outside. A table calls no code of keys, so the counts tell: an
//! entry that is made is a key more, or an eviction more.
//!
//! No count tells which key was evicted. Keys that may have gone are asked for at once, by a take
//! of one token. While they are full for the margin that makes no difference. Once the clock has
//! gone back, it would.

use super::model::{Model, Place};

/// Places of a set.
const SET: usize = 8;
/// Keys for which a table has a set.
const KEYS_A_SET: usize = 6;

impl Model {
    /// Returns the most keys that are held.
    pub(super) fn places(&self) -> usize {
        match self.inline {
            true => self.max_keys.div_ceil(KEYS_A_SET).max(1) * SET,
            false => self.max_keys,
        }
    }

    /// Returns the bucket of a step that is done; `vain` if it could take nothing.
    pub(super) fn place_in_table(&mut self, key: u64, vain: bool) -> Place {
        let stats = self.limiter.stats();
        let known = (self.held.len() - self.gone) as u64 + self.evicted;
        let made = (stats.keys as u64 + stats.evicted).checked_sub(known).expect("nothing was taken away");
        assert!(made <= 1, "{made} entries by one step");
        let without = [stats.shared, stats.refused_full, stats.allowed_full] != self.counts;
        assert!(made == 0 || !without);
        let mut found = self.find(key);
        if let Some(index) = found.filter(|index| self.held[*index].doubtful) {
            self.held[index].doubtful = false;
            if made == 1 || without {
                self.gone = self.gone.checked_sub(1).expect("as many have gone as were counted");
                self.held.swap_remove(index);
                found = None;
            }
        }
        if let Some(index) = found {
            assert!(made == 0 && !without, "{key} was held");
            return Place::Own(index);
        }
        if vain {
            assert!(made == 0 && !without, "nothing makes no entry");
            return Place::Vain;
        }
        if made == 1 {
            self.makes_room(stats.evicted);
            let (place, now) = (self.hold_anew(key), self.time.now());
            if let Place::Own(index) = place {
                // A slot has a stamp at once, even if the step is refused.
                self.held[index].worlds.each(|world| world.ideal.begin(now));
            }
            return place;
        }
        assert!(without, "{key} was decided on by nobody's bucket");
        self.finds_both_sets_taken();
        self.without_place(key)
    }

    /// Notes an eviction for a new key. The evicted key was full for the margin.
    fn makes_room(&mut self, evicted: u64) {
        match evicted - self.evicted {
            0 => assert!(self.held.len() - self.gone < self.places(), "there is no room"),
            1 => {
                self.evicted += 1;
                self.gone += 1;
                self.doubt_the_idle();
            }
            more => panic!("{more} were evicted for one"),
        }
    }

    fn doubt_the_idle(&mut self) {
        let mut doubtful = 0;
        for index in 0..self.held.len() {
            let (may, _) = self.idle(&self.held[index].worlds);
            self.held[index].doubtful |= may;
            doubtful += usize::from(self.held[index].doubtful);
        }
        assert!(doubtful >= self.gone, "{} have gone, and {doubtful} were idle", self.gone);
    }

    /// Checks that the key's places are all taken: by keys that stay, or by places left within 2 s.
    fn finds_both_sets_taken(&self) {
        let taken = self.held.iter().filter(|held| !self.idle(&held.worlds).1).count();
        assert!(
            taken + self.left >= SET,
            "{taken} are limited, {} places were left, and there is no room",
            self.left
        );
    }

    /// Notes the evictions of a sweep.
    pub(super) fn were_swept(&mut self, evicted: usize) {
        self.evicted += evicted as u64;
        self.gone += evicted;
        self.doubt_the_idle();
        for index in (0..self.held.len()).rev() {
            if self.idle(&self.held[index].worlds).1 {
                self.gone = self.gone.checked_sub(1).expect("all of them were to be evicted");
                self.held.swap_remove(index);
            }
        }
    }

    /// Asks for the keys that may have gone.
    pub(super) fn resolve(&mut self) {
        while let Some(index) = self.held.iter().position(|held| held.doubtful) {
            self.take(self.held[index].key, 1, false);
        }
        assert_eq!(self.gone, 0, "all have been found");
    }
}
