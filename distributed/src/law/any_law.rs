//! The law of a call: that of a bucket or that of a count.

use super::amount::{Amount, Answer};
use super::count_spec::CountSpec;
use super::spec::{MAX_CREDITS, Spec};

/// The law by which a store decides a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Law {
    /// A token bucket: [`Bucket::step`](crate::Bucket::step).
    Bucket(Spec),
    /// A count of a window: [`Count::step`](crate::Count::step).
    Count(CountSpec),
}

impl From<Spec> for Law {
    fn from(spec: Spec) -> Law {
        Law::Bucket(spec)
    }
}

impl From<CountSpec> for Law {
    fn from(spec: CountSpec) -> Law {
        Law::Count(spec)
    }
}

impl Law {
    /// Returns an answer with its numbers clamped to those that a call can have.
    pub(crate) fn bound(&self, amount: Amount, answer: Answer) -> Answer {
        let (least, most) = match self {
            Law::Bucket(spec) => (-(spec.floor() as i64), spec.capacity() as i64),
            Law::Count(spec) => (-(MAX_CREDITS as i64), spec.limit() as i64),
        };
        Answer {
            granted: answer.granted.clamp(amount.max.min(0), amount.max.max(0)),
            credits: answer.credits.clamp(least, most),
            ..answer
        }
    }
}
