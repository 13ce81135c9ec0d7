//! The step of a shared bucket or count, the form in which both go to Redis, and answers of any
//! bytes.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use tollgate::Window;
use tollgate_distributed::{Amount, Bucket, Count, CountSpec, Op, Spec, redis_fuzzing};
use tollgate_testing::quota_text;

/// A quota or a window, a bucket or a count, and a call of any numbers, and the bytes that a server
/// sends. The bytes are the numbers of the count, too.
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

    /// Holds the answers to the bounds of the call, and reads the bytes as the answer of a server:
    /// of a bucket, and of a count.
    pub fn run(&self) {
        let (min, max, spent) = self.call;
        self.run_bucket(Amount { min, max, spent, of_us: 0 });
        // The call is of the present window, or of any.
        self.run_count(Amount { min, max, spent, of_us: self.stored.2 * u64::from(self.quota.3 & 1) });
    }

    fn run_bucket(&self, amount: Amount) {
        let (tokens, nanos, burst, debt) = self.quota;
        let Ok(quota) = quota_text((tokens, nanos, burst)).parse() else { return };
        let Ok(spec) = Spec::new(quota, debt.into()) else { return };
        let (credits, last_us, per_token) = self.stored;
        let stored = Bucket { credits, last_us, per_token };
        let (bucket, answer) = Bucket::step(Some(stored), &spec, self.now_us, amount);
        let (floor, capacity) = (spec.floor() as i64, spec.capacity() as i64);
        assert!((-floor..=capacity).contains(&answer.credits), "{answer:?}");
        assert!(amount.max < 0 || (0..=amount.max).contains(&answer.granted), "{answer:?}");
        assert!(bucket.is_none_or(|bucket| bucket.credits == answer.credits));
        let mut ops = [Op::new(b"one", spec, amount), Op::new(b"two", spec, Amount::default())];
        let (specs, calls) = redis_fuzzing::pack(&ops);
        assert!(specs.len() <= 2 * 64 && calls.len() <= 2 * 64);
        let _ = redis_fuzzing::read_reply(&self.reply, &mut ops);
    }

    /// Returns a window of any kind.
    fn window(&self) -> Option<Window> {
        let (limit, nanos, _, kind) = self.quota;
        let window = Window::try_per(limit, Duration::from_nanos(nanos)).ok()?;
        match kind >> 1 & 3 {
            0 => Some(window),
            1 => window.try_utc_offset(i16::from((kind >> 3) as u8 as i8) * 15).ok(),
            2 => window.try_sliding().ok(),
            _ => Window::per_month(1).with_limit(limit).ok(),
        }
    }

    fn run_count(&self, amount: Amount) {
        let unix = Duration::from_micros(self.now_us);
        let Some(Ok(spec)) = self.window().map(|window| CountSpec::new(window, unix)) else { return };
        let spec = if self.quota.2 & 1 == 0 { spec } else { spec.leased() };
        let (_, start_us, end_us) = self.stored;
        let word = |bytes: &[u8]| bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        let stored = Count { start_us, used: self.reply.chunks(7).map(word).collect(), end_us };
        if let Ok((count, answer)) = Count::step(Some(&stored), &spec, self.now_us, amount) {
            let most = (1_u64 << 53) - 1;
            let granted = amount.max.min(0)..=amount.max.max(0);
            assert!(granted.contains(&answer.granted), "{answer:?}");
            assert!((-(most as i64)..=spec.limit() as i64).contains(&answer.credits), "{answer:?}");
            assert!(answer.granted <= 0 || answer.credits >= 0, "above the limit: {answer:?}");
            let total = count.as_ref().map(|count| count.used.iter().sum::<u64>());
            assert!(total.is_none_or(|total| total as i64 == spec.limit() as i64 - answer.credits));
            // A look at the count that a step stores is the same. Numbers from 2^53 on, which are
            // times after the year 2200, are no count.
            let count = count.filter(|_| self.now_us < 1 << 51);
            let again = count.map(|count| Count::step(Some(&count), &spec, self.now_us, Amount::default()));
            let again = again.map(|again| again.expect("the months are those of the call").1.credits);
            assert!(again.is_none_or(|credits| credits == answer.credits), "{again:?} {answer:?}");
        }
        let mut ops = [Op::new(b"one", spec, amount), Op::new(b"two", spec, Amount::default())];
        assert_eq!(redis_fuzzing::pack(&ops).1.len(), 2 * 66);
        if redis_fuzzing::read_reply(&self.reply, &mut ops).is_ok() {
            let possible =
                |op: &Op<'_>| (op.amount.max.min(0)..=op.amount.max.max(0)).contains(&op.answer.granted);
            assert!(ops.iter().all(possible), "{ops:?}");
        }
    }
}
