// promise: law, never-late
//! One bucket, alone or a key's: any quota with any room, a clock that is moved both ways, and all
//! verbs but those that sleep.
//!
//! Each answer is compared with the ideal bucket, and so is a look afterwards. Each `retry_after`
//! is tried a nanosecond early and when due. A key is removed, and asked for under plans, which are
//! made before and after changes of quota.

use arbitrary::{Arbitrary, Unstructured};
use tollgate::{RateLimiter, TokenBucket};
use tollgate_testing::reference::steps::{Ahead, Amount, Move, Verb, Which, near};
use tollgate_testing::reference::{Asked, Ideal, Unit};

use crate::bytes::Bytes;
use crate::reference::drive::Driver;
use crate::reference::face::Face;
use crate::reference::quotas::{counted, quota};
use crate::reference::time::Time;
use crate::steps::{amount, asked, moved};

const MOST_STEPS: usize = 64;
/// The most steps of a spread bucket: too few for a lease.
const MOST_AT_LEISURE: usize = 31;

#[derive(Debug)]
pub struct Case {
    quota: Asked,
    /// The multiples of the rate and the burst that there is room for, if any.
    headroom: Option<(u8, u8)>,
    max_debt: Option<Amount>,
    initial: Option<Amount>,
    /// Whether the bucket is spread over cores.
    spread: bool,
    /// The store of a key's bucket, `None` for a bucket alone.
    keyed: Option<Store>,
    start: u64,
    steps: Vec<(Move, Ahead, Verb)>,
}

#[derive(Clone, Copy, Debug)]
enum Store {
    Map,
    Table,
}

fn ahead(bytes: &mut Bytes<'_>) -> Ahead {
    match bytes.byte() {
        which @ 0..216 => Ahead::Under(which % 4),
        216..240 => Ahead::Plan(bytes.byte(), bytes.byte()),
        _ => Ahead::Remove,
    }
}

fn verb(kind: u8, bytes: &mut Bytes<'_>) -> Verb {
    match kind % 16 {
        0..=3 => Verb::Take(amount(bytes)),
        4 => Verb::UpTo(amount(bytes)),
        5 => Verb::TakeAt(bytes.byte(), amount(bytes)),
        6 | 7 => Verb::Reserve(amount(bytes)),
        8 => Verb::ReserveWithin(amount(bytes), bytes.short()),
        9 if kind >= 128 => Verb::Above(amount(bytes), bytes.byte()),
        9 => Verb::Refund(amount(bytes)),
        10 | 11 => Verb::Drop(Which::First(bytes.byte() % 64)),
        12 | 13 => Verb::Use(bytes.byte(), amount(bytes)),
        14 => Verb::Hold(amount(bytes)),
        _ => Verb::SetQuota(bytes.byte(), bytes.byte()),
    }
}

impl Case {
    pub fn read(bytes: &[u8]) -> Case {
        let mut bytes = Bytes::new(bytes);
        let (quota, room) = (asked(&mut bytes), bytes.byte());
        let mut case = Case {
            quota,
            headroom: (room & 1 > 0).then(|| (bytes.byte(), bytes.byte())),
            max_debt: (room & 2 > 0).then(|| amount(&mut bytes)),
            initial: (room & 4 > 0).then(|| amount(&mut bytes)),
            spread: room & 8 > 0,
            keyed: [None, Some(Store::Map), None, Some(Store::Table)][usize::from(room >> 6)],
            start: bytes.spread(62),
            steps: Vec::with_capacity(MOST_STEPS),
        };
        if case.keyed.is_some() {
            // The target `keyed` covers the initial tokens of a key.
            (case.spread, case.initial) = (false, None);
        }
        let most = if case.spread { MOST_AT_LEISURE } else { MOST_STEPS };
        while !bytes.is_empty() && case.steps.len() < most {
            let kind = bytes.byte();
            let ahead = case.keyed.map_or(Ahead::Under(0), |_| ahead(&mut bytes));
            case.steps.push((moved(kind >> 4, &mut bytes), ahead, verb(kind, &mut bytes)));
        }
        case
    }

    /// Returns the bucket and its unit. The bucket must be refused exactly when it has no unit.
    fn build(&self, initial: Option<u64>) -> Option<(Face, Unit, Time)> {
        let own = counted(self.quota)?;
        let (clock, time) = Time::at(self.start);
        let head = self.headroom.map(|(rate, size)| near(self.quota, rate, size));
        let debt = self.max_debt.map(|debt| debt.of(self.quota.2));
        let unit = |head| Unit::with_room(self.quota, head, debt);
        macro_rules! with_room {
            ($builder:expr) => {{
                let mut builder = $builder.clock(clock);
                if let Some(debt) = debt {
                    let built = builder.max_debt(debt);
                    assert_eq!(built.is_ok(), unit(None).is_some(), "{own} with a debt of {debt}");
                    builder = built.ok()?;
                }
                if let Some(head) = head {
                    let built = builder.headroom(quota(head)?);
                    assert_eq!(built.is_ok(), unit(Some(head)).is_some(), "{own} with room for {head:?}");
                    builder = built.ok()?;
                }
                builder.build()
            }};
        }
        let face = match (self.keyed, initial) {
            (Some(Store::Map), _) => Face::key(with_room!(RateLimiter::builder(own))),
            (Some(Store::Table), _) => {
                Face::key(with_room!(RateLimiter::builder(own).max_keys(64).inline().unwrap()))
            }
            (None, initial) => {
                let mut builder = TokenBucket::builder(own);
                if let Some(n) = initial {
                    builder = builder.initial_tokens(n);
                }
                if self.spread {
                    builder = builder.spread();
                }
                Face::alone(with_room!(builder))
            }
        };
        Some((face, unit(head).expect("it was built"), time))
    }

    pub fn run(&self) {
        let initial = self.initial.map(|n| n.of(self.quota.2));
        let Some((face, unit, time)) = self.build(initial) else { return };
        let (tokens, period, burst) = self.quota;
        let mut ideal = Ideal::in_unit(tokens, period, burst, unit);
        if let Some(n) = initial {
            // The bound is more than any bucket has.
            ideal = ideal.starting_with(n.min(1 << 41), Some(time.now()));
        }
        // Plans do not cover a clock that is years off, or a stamp that wraps: only a bucket alone
        // meets those.
        let moved = |by: Move| if self.keyed.is_some() { by.of_hours() } else { by };
        let steps = self.steps.iter().map(|&(by, ahead, verb)| (moved(by), ahead, verb));
        Driver::new(&face, ideal, unit, time).run(steps);
    }
}

impl<'a> Arbitrary<'a> for Case {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Case> {
        Ok(Case::read(bytes.bytes(bytes.len())?))
    }
}
