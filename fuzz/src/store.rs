//! The step of a shared bucket, the form in which specs go to Redis, and answers of any bytes.

use arbitrary::{Arbitrary, Unstructured};
use tollgate_distributed::{Amount, Bucket, Op, Spec, redis_fuzzing};
use tollgate_testing::quota_text;

/// A quota, a bucket and a call of any numbers, and the bytes that a server sends.
#[derive(Debug)]
pub struct Case {
    quota: (u64, u64, u64, u16),
    stored: (i64, u64, u64),
    call: (i64, i64, u64),
    now_us: u64,
    reply: Vec<u8>,
}

impl<'a> Arbitrary<'a> for Case {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Case> {
        let (quota, stored) = bytes.arbitrary()?;
        let (call, now_us) = bytes.arbitrary()?;
        Ok(Case { quota, stored, call, now_us, reply: bytes.bytes(bytes.len())?.to_vec() })
    }
}

impl Case {
    pub fn read(bytes: &[u8]) -> Option<Case> {
        Case::arbitrary(&mut Unstructured::new(bytes)).ok()
    }

    /// Holds the answer to the bounds of its call, and reads the bytes as the answer of a server.
    pub fn run(&self) {
        let (tokens, nanos, burst, debt) = self.quota;
        let Ok(quota) = quota_text((tokens, nanos, burst)).parse() else { return };
        let Ok(spec) = Spec::new(quota, debt.into()) else { return };
        let (min, max, spent) = self.call;
        let amount = Amount { min, max, spent, of_us: 0 };
        let (credits, last_us, per_token) = self.stored;
        let stored = Bucket { credits, last_us, per_token };
        let (bucket, answer) = Bucket::step(Some(stored), &spec, self.now_us, amount);
        let (floor, capacity) = (spec.floor() as i64, spec.capacity() as i64);
        assert!((-floor..=capacity).contains(&answer.credits), "{answer:?}");
        assert!(max < 0 || (0..=max).contains(&answer.granted), "{answer:?}");
        assert!(bucket.is_none_or(|bucket| bucket.credits == answer.credits));
        let mut ops = [Op::new(b"one", spec, amount), Op::new(b"two", spec, Amount::default())];
        let (specs, calls) = redis_fuzzing::pack(&ops);
        assert!(specs.len() <= 2 * 64 && calls.len() <= 2 * 64);
        let _ = redis_fuzzing::read_reply(&self.reply, &mut ops);
    }
}
