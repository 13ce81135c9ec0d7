//! The law of a call: that of a bucket or that of a count.

use std::time::Duration;

use super::amount::{Amount, StoreAnswer};
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
    /// Returns the tokens left by an answer, and the time until the bucket is full or the window
    /// ends; zero if no token is used.
    pub(crate) fn level(&self, answer: StoreAnswer) -> (u64, Duration) {
        match self {
            Law::Bucket(spec) => {
                let full = spec.wait(answer.credits, spec.capacity() as i64);
                (spec.tokens(answer.credits), full)
            }
            Law::Count(spec) => {
                let left = u64::try_from(answer.credits).unwrap_or(0);
                let rest = Duration::from_micros(answer.edge_us.saturating_sub(answer.now_us));
                (left, if left < spec.limit() { rest } else { Duration::ZERO })
            }
        }
    }

    /// Returns an answer with its numbers clamped to those that a call can have.
    pub(crate) fn bound(&self, amount: Amount, answer: StoreAnswer) -> StoreAnswer {
        let (least, most) = match self {
            Law::Bucket(spec) => (-(spec.floor() as i64), spec.capacity() as i64),
            Law::Count(spec) => (-(MAX_CREDITS as i64), spec.limit() as i64),
        };
        StoreAnswer {
            granted: answer.granted.clamp(amount.max.min(0), amount.max.max(0)),
            credits: answer.credits.clamp(least, most),
            ..answer
        }
    }
}
