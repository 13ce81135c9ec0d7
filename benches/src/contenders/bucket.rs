//! The parts that contenders share: the form of those with one bucket, and a quota in the numbers
//! of peers.

use tollgate::Quota;

/// Makes a type the limiter of one bucket: how it is made of a setup, and how it takes a token.
macro_rules! bucket {
    ($(#[$doc:meta])* $name:ident($type:ty), |$setup:ident| $make:expr, |$bucket:ident| $take:expr) => {
        $(#[$doc])*
        pub(crate) struct $name($type);

        impl crate::Limiter<()> for $name {
            fn new($setup: crate::Setup) -> Self {
                $name($make)
            }

            #[inline(always)]
            fn try_acquire(&self, (): &()) -> bool {
                let $bucket = &self.0;
                $take
            }
        }
    };
}
pub(super) use bucket;

/// Returns the same limit for a peer whose periods are whole seconds: for a second at least.
pub(super) fn in_seconds(quota: Quota) -> (u64, u64) {
    match quota.period().as_secs() {
        0 => ((quota.capacity() as f64 / quota.period().as_secs_f64()) as u64, 1),
        seconds => (quota.capacity(), seconds),
    }
}

/// Returns the quota of `n` times as many tokens: takes of `n` tokens under it are as many as takes
/// of one token under `quota`.
pub(super) fn times(quota: Quota, n: u64) -> Quota {
    Quota::per(n * quota.tokens(), quota.period()).burst(n * quota.capacity())
}

/// Returns the tokens of a second for a peer whose rates are whole numbers: one at least.
pub(super) fn a_second(quota: Quota) -> u64 {
    ((quota.tokens() as f64 / quota.period().as_secs_f64()) as u64).max(1)
}

/// Returns the tokens for a peer that counts them in 32 bits. No timed quota has more.
pub(super) fn narrow(tokens: u64) -> u32 {
    u32::try_from(tokens).expect("a quota of less than 2^32 tokens")
}
