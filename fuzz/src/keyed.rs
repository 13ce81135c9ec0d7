// promise: law, one-bucket
//! Many keys, of any quota and room, at steps from bytes. See [`crate::reference::keyed`].

use arbitrary::{Arbitrary, Unstructured};
use tollgate::WhenFull;

use crate::bytes::Bytes;
use crate::reference::keyed::probe::Alike;
use crate::reference::keyed::{Case as Steps, End, Pace, Verb};
use crate::steps::{amount, asked, moved};

const MOST_STEPS: usize = 64;

#[derive(Debug)]
pub struct Case(Steps);

impl Pace {
    fn read(bytes: &mut Bytes<'_>) -> Pace {
        match bytes.byte() {
            which @ 0..224 if which % 4 == 0 => Pace::Own,
            which @ 0..224 => Pace::Plan(which % 4),
            _ => Pace::NewPlan(bytes.byte(), bytes.byte()),
        }
    }
}

impl End {
    fn read(plans: bool, bytes: &mut Bytes<'_>) -> End {
        if !plans || bytes.byte() < 128 {
            return End::Dropped;
        }
        let tokens = bytes.byte() % 8;
        End::DroppedLater(tokens, Pace::read(bytes), amount(bytes))
    }
}

impl Verb {
    fn read(kind: u8, plans: bool, bytes: &mut Bytes<'_>) -> Verb {
        match kind % 16 {
            0..=3 => Verb::Take(amount(bytes)),
            4 if kind >= 128 => Verb::Above(amount(bytes), bytes.byte()),
            4 => Verb::TakePinned(amount(bytes)),
            5 => Verb::UpTo(amount(bytes)),
            6 => Verb::Reserve(amount(bytes), End::Used),
            7 => Verb::Reserve(amount(bytes), End::read(plans, bytes)),
            8 => Verb::Hold(amount(bytes), amount(bytes)),
            9 => Verb::Refund(amount(bytes)),
            10 => Verb::Peek,
            11 => Verb::Remove,
            12 if bytes.byte() < 64 => Verb::Clear,
            12 | 13 => Verb::EvictIdle,
            14 => Verb::Flood(bytes.byte() % 16),
            _ => Verb::SetQuota(bytes.byte(), bytes.byte()),
        }
    }
}

impl Case {
    pub fn read(bytes: &[u8]) -> Case {
        let mut bytes = Bytes::new(bytes);
        let (quota, room) = (asked(&mut bytes), bytes.byte());
        let (inline, plans) =
            [(false, false), (false, true), (true, true), (true, false)][usize::from(room / 64)];
        let mut case = Steps {
            quota,
            // Mostly room for more than the own quota.
            plans: plans.then(|| (bytes.byte() % 144, bytes.byte() % 144)),
            policy: [WhenFull::Share, WhenFull::Deny, WhenFull::Allow, WhenFull::Share]
                [usize::from(room % 4)],
            hasher: Alike::ALL[usize::from(room / 4 % 4).saturating_sub(1)],
            initial: (room / 16 % 4 == 3).then(|| amount(&mut bytes)),
            inline,
            max_keys: usize::from(bytes.byte() % 65),
            start: bytes.spread(62),
            steps: Vec::with_capacity(MOST_STEPS),
        };
        while !bytes.is_empty() && case.steps.len() < MOST_STEPS {
            let (kind, key) = (bytes.byte(), bytes.byte());
            // Mostly one of a few keys.
            let key = u64::from(if key >= 64 { key % 8 } else { key });
            let by = moved(kind >> 4, &mut bytes);
            let pace = if plans { Pace::read(&mut bytes) } else { Pace::Own };
            case.steps.push((by, key, pace, Verb::read(kind, plans, &mut bytes)));
        }
        Case(case)
    }

    pub fn run(&self) {
        self.0.run();
    }
}

impl<'a> Arbitrary<'a> for Case {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Case> {
        Ok(Case::read(bytes.bytes(bytes.len())?))
    }
}
