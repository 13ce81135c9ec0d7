// promise: law, never-late, one-bucket
//! Windows, one or one a key, at steps from bytes. See [`crate::reference::windows`].

use arbitrary::{Arbitrary, Unstructured};

use crate::bytes::Bytes;
use crate::reference::windows::{KINDS, Walk};

const MOST_STEPS: usize = 64;

#[derive(Debug)]
pub struct Case(Vec<u8>);

impl Case {
    pub fn read(bytes: &[u8]) -> Case {
        Case(bytes.to_vec())
    }

    pub fn run(&self) {
        let mut bytes = Bytes::new(&self.0);
        let kind = bytes.byte();
        let (kind, changes) = (KINDS[usize::from(kind % 4)], kind & 4 != 0);
        let mut choose = |bound: u64| match bound {
            0..=256 => u64::from(bytes.byte()) % bound,
            _ => bytes.spread(64) % bound,
        };
        let Some(mut walk) = Walk::new(&mut choose, kind, changes) else { return };
        // Each step reads some bytes. At their end all numbers are 0, and nothing new happens.
        for _ in 0..MOST_STEPS.min(self.0.len() / 4) {
            walk.step(&mut choose);
        }
    }
}

impl<'a> Arbitrary<'a> for Case {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Case> {
        Ok(Case::read(bytes.bytes(bytes.len())?))
    }
}
