//! Why a comparison is lost: texts, by case and contender.

use super::compare::{Comparison, INLINE, Measure, OURS, SPREAD};
use super::numbers::grouped;
use crate::results::Law;

/// What it fits; empty is anything.
struct Reason {
    measure: Measure,
    /// How the case's kind begins.
    what: &'static str,
    /// The least and the most.
    keys: (usize, usize),
    /// The most.
    threads: usize,
    /// Which of ours; none is any.
    ours: &'static [&'static str],
    /// Who is faster there, whatever its hasher and clock.
    theirs: &'static [&'static str],
    why: &'static str,
}

const ANY: Reason = Reason {
    measure: Measure::Time,
    what: "",
    keys: (0, usize::MAX),
    threads: usize::MAX,
    ours: &[],
    theirs: &[],
    why: "",
};

/// As it is by default; with keys, in a map.
const DEFAULT: Reason = Reason { ours: &[OURS], ..ANY };

/// In the table.
const TABLE: Reason = Reason { ours: &[INLINE], ..ANY };

/// Of the keyed limiter, where the keys are in the caches.
pub(super) const GUARD: &str = "a guard of the map costs two thread-local look-ups and an exchange, 9 to 13 ns (a pinned handle \
    pays it once for many calls), DashMap's shard lock less";

/// Of p99.9.
pub(super) const HELD: &str = "a lock that is held puts the others to sleep, so the one that runs meets nobody: the price of it \
    is not at p99.9 but beyond (see p99.99)";

const RACE: &str =
    "after a lost race the clock is read anew, as a reading from before it could set a key's time back";

/// Of the keyed limiter, where the keys are not in the caches.
pub(super) const BOXES: &str = "papaya keeps each entry in a heap box: three dependent cache misses a decision where a DashMap has two, \
    and twice the memory touched";

const ENTRY: &str = "a heap box for each entry (32 bytes with the allocator's), a pointer, a byte, and 8 bytes of the ring that evicts";

const SPARE: &str =
    "the table has slots for a third more keys, and 1,024 buckets beside it for those that find no room";

const NONE_IDLE: &str = "it looks at up to 64 others for one that is idle, and there is none";

const ROOM: &str = "it makes room for the new key, looking at up to 64 others; who does not, grows";

const NEWCOMER: &str = "a newcomer looks at the 16 words of its two sets, and at the clock twice, and shares a bucket if all are in use; who has no bound grows";

const FILL: &str = "one take in some hundreds fills its core's cell from the word, and waits for that then";

const EVICTS: &str = "each new key evicts another in the call itself; a peer is told to sweep them all, once, in its first decision";

/// Of one bucket.
pub(super) const TIME: &str = "a peer's word is one time, compared with and added to; ours is a level and a stamp: a shift to and fro, a clamp, and a look whether the quota is being changed";

/// Of one bucket and several threads.
pub(super) const LINE: &str =
    "all pass one cache line around, and the word is held over more arithmetic: see 1 thread";

const CELL: &str = "it looks at the tokens of its core first, and decides on the word by a longer way, which counts with what is leased";

const TURN: &str =
    "nothing hands the turn on: who has the line in its cache goes on; a lock puts the others into a queue";

/// One bucket that is one word.
const WORDS: &[&str] = &[OURS, "tollgate, coarse clock", "tollgate, reading at hand"];

const MAPS: &[&str] = &["governor", "dashmap + mutex", "rwlock map", "one mutex"];

/// The first that fits is printed.
const REASONS: &[Reason] = &[
    Reason {
        measure: Measure::Start,
        why: "the first reading of the clock calibrates the processor's counter (10 to 200 ms); `Clock::new().warm()` does that ahead",
        ..ANY
    },
    Reason {
        measure: Measure::Resident,
        theirs: &["pingora-limits"],
        why: "it counts in a sketch of a fixed size: no key is held, and keys share counters",
        ..ANY
    },
    Reason { measure: Measure::Resident, what: "u64", theirs: MAPS, why: ENTRY, ..DEFAULT },
    Reason { measure: Measure::Resident, why: SPARE, ..TABLE },
    Reason {
        what: "keyed",
        keys: (0, 16_000),
        threads: 1,
        theirs: &["governor", "dashmap + mutex"],
        why: GUARD,
        ..DEFAULT
    },
    Reason { what: "keyed", keys: (0, 16_000), threads: 1, theirs: &["governor"], why: TIME, ..TABLE },
    Reason {
        what: "keyed",
        keys: (100_000, usize::MAX),
        theirs: &["governor", "dashmap + mutex", "one mutex"],
        why: BOXES,
        ..DEFAULT
    },
    Reason {
        what: "keyed",
        keys: (100_000, usize::MAX),
        why: "papaya keeps each entry in a heap box: three dependent cache misses a decision",
        ..DEFAULT
    },
    Reason {
        measure: Measure::P999,
        what: "one bucket",
        theirs: &["std mutex", "parking_lot + quanta"],
        why: HELD,
        ..ANY
    },
    Reason {
        measure: Measure::P999,
        what: "one bucket",
        theirs: &["governor", "ratelimit", "better-bucket", "rate-net"],
        why: RACE,
        // Who has the time from elsewhere reads no clock after a race.
        ..DEFAULT
    },
    Reason { measure: Measure::P999, what: "flood", theirs: MAPS, why: ROOM, ..DEFAULT },
    Reason { measure: Measure::P999, what: "flood", theirs: MAPS, why: NEWCOMER, ..TABLE },
    Reason { what: "flood at capacity", why: NONE_IDLE, ..DEFAULT },
    Reason { measure: Measure::P999, what: "keys being evicted", theirs: MAPS, why: EVICTS, ..ANY },
    Reason { measure: Measure::P999, what: "one bucket", ours: &[SPREAD], why: FILL, ..ANY },
    Reason { what: "one bucket", ours: &[SPREAD], why: CELL, ..ANY },
    Reason { what: "one bucket", threads: 1, ours: WORDS, why: TIME, ..ANY },
    Reason { what: "one bucket", ours: WORDS, why: LINE, ..ANY },
    Reason { measure: Measure::Unfairness, why: TURN, ..ANY },
];

impl Reason {
    fn fits(&self, lost: &Comparison) -> bool {
        let (subject, case) = (&lost.subject, &lost.subject.case);
        let (peer, _) = lost.theirs.split_once(", ").unwrap_or((&lost.theirs, ""));
        subject.measure == self.measure
            && case.what.starts_with(self.what)
            && (self.keys.0..=self.keys.1).contains(&case.keys)
            && case.threads <= self.threads
            && (self.ours.is_empty() || self.ours.contains(&lost.ours.as_str()))
            && (self.theirs.is_empty() || self.theirs.contains(&peer))
    }
}

/// Why these are lost, all of one case, and what the winners do not do.
pub(super) fn why(lost: &[&Comparison], laws: &[Law]) -> String {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for one in lost {
        let why = REASONS.iter().find(|reason| reason.fits(one)).map_or(UNKNOWN, |reason| reason.why);
        let theirs = format!("`{}`", one.theirs);
        match reasons.iter_mut().find(|reason| reason.0 == why) {
            Some(reason) => reason.1.push(theirs),
            None => reasons.push((why, vec![theirs])),
        }
    }
    let is_one = reasons.len() == 1;
    let texts = reasons
        .into_iter()
        .map(|(why, whom)| if is_one { why.to_owned() } else { format!("{}: {why}", whom.join(", ")) });
    let mut texts: Vec<String> = texts.collect();
    for one in lost {
        if let Some(law) = laws.iter().find(|law| law.contender == one.theirs && !law.is_kept()) {
            texts.push(format!(
                "`{}` does not keep the law: {} granted where {} are allowed",
                one.theirs,
                grouped(law.granted),
                grouped(law.most.round() as u64)
            ));
        }
    }
    texts.join("; ")
}

const UNKNOWN: &str = "no reason known";
