//! The verbs that an attempt decides: how each takes, and its answer.
//!
//! A verb is a `Copy` type of one integer or two. So it costs no memory on the way to a function
//! out of line, and the compiler makes one function for the plain call and a request value.

use crate::bucket::atomic::ReadClock;
use crate::bucket::engine::Done;
use crate::bucket::lease::Spread;
use crate::limiter::hook::DecisionHook;
use crate::word::decision::{Denied, Granted};
use crate::word::state::{Reading, Refill, TakeOutcome};
use crate::word::verb::{Call, Take};

pub(crate) trait Verb: Copy {
    type Answer;

    fn take(self) -> Take;

    /// Returns the answer to a take that was decided.
    fn answer<P: Refill>(self, done: (TakeOutcome, Reading<P>)) -> Self::Answer;

    /// Whether the verb takes from the lease of a spread bucket.
    const TAKES_LEASED: bool = false;

    /// Returns the answer of a spread bucket, for a verb that takes from a lease.
    #[inline(always)]
    fn take_leased(self, _: Spread<'_>, _: impl ReadClock) -> Self::Answer {
        unreachable!("the verb takes from the word alone")
    }

    /// Returns the answer after the hook has seen the decision.
    fn observed<P: Refill>(self, hook: &DecisionHook, done: (TakeOutcome, Reading<P>)) -> Self::Answer;

    /// Returns the answer to a call that may have met no bucket, after the hook has seen it.
    ///
    /// A pair, as `run` returns it: taken apart it would be copied.
    fn decided(self, hook: &DecisionHook, run: (Call<'_>, Result<Done, Denied>)) -> Self::Answer;
}

/// Returns the decision of a call that may have met no bucket.
pub(super) fn decision(call: Call<'_>, done: Result<Done, Denied>) -> Result<Granted, Denied> {
    let Done { outcome, reading, .. } = done?;
    call.decision(outcome, reading)
}

/// All of the tokens, or none.
#[derive(Clone, Copy)]
pub(crate) struct InFull(pub(crate) u64);

/// All of `n` tokens, or none, if `keep` hundredths of the burst stay.
///
/// A type apart, so that no other take passes the part on.
#[derive(Clone, Copy)]
pub(crate) struct Keep {
    pub(crate) n: u64,
    pub(crate) keep: u8,
}

macro_rules! all_or_none {
    ($verb:pat, $take:expr => $type:ty $(, $leased:item)*) => {
        impl Verb for $type {
            type Answer = Result<Granted, Denied>;

            #[inline(always)]
            fn take(self) -> Take {
                let $verb = self;
                $take
            }

            #[cfg_attr(not(debug_assertions), inline(always))]
            fn answer<P: Refill>(self, done: (TakeOutcome, Reading<P>)) -> Self::Answer {
                self.take().decision(done)
            }

            $($leased)*

            #[cfg_attr(not(debug_assertions), inline(always))]
            fn observed<P: Refill>(
                self,
                hook: &DecisionHook,
                done: (TakeOutcome, Reading<P>),
            ) -> Self::Answer {
                let mut decision = self.answer(done);
                hook.see(self.take().n(), &mut decision);
                decision
            }

            fn decided(self, hook: &DecisionHook, (call, done): (Call<'_>, Result<Done, Denied>)) -> Self::Answer {
                hook.observe(self.take().n(), decision(call, done))
            }
        }
    };
}
all_or_none!(
    InFull(n),
    Take::Exactly(n) => InFull,
    const TAKES_LEASED: bool = true;,
    #[inline(always)]
    fn take_leased(self, spread: Spread<'_>, read: impl ReadClock) -> Self::Answer {
        spread.take_leased(read, self.0)
    }
);
all_or_none!(Keep { n, keep }, Take::Above { n, keep } => Keep);

/// The tokens that are there, up to a number of them.
#[derive(Clone, Copy)]
pub(crate) struct UpTo(pub(crate) u64);

/// The tokens that are there above `keep` hundredths of the burst, up to `n` of them.
#[derive(Clone, Copy)]
pub(crate) struct UpToAbove {
    pub(crate) n: u64,
    pub(crate) keep: u8,
}

macro_rules! up_to {
    ($verb:pat, $take:expr => $type:ty) => {
        impl Verb for $type {
            type Answer = Granted;

            #[inline(always)]
            fn take(self) -> Take {
                let $verb = self;
                $take
            }

            #[cfg_attr(not(debug_assertions), inline(always))]
            fn answer<P: Refill>(self, (outcome, reading): (TakeOutcome, Reading<P>)) -> Granted {
                self.take().granted(outcome, &reading)
            }

            #[cfg_attr(not(debug_assertions), inline(always))]
            fn observed<P: Refill>(self, hook: &DecisionHook, done: (TakeOutcome, Reading<P>)) -> Granted {
                hook.observe_up_to(self.take().n(), self.answer(done), self.take().decision(done))
            }

            fn decided(self, hook: &DecisionHook, (call, done): (Call<'_>, Result<Done, Denied>)) -> Granted {
                let granted = match done {
                    Ok(Done { outcome, reading, .. }) => call.granted(outcome, &reading),
                    Err(denied) => Granted::anyway(0, denied.remaining()),
                };
                hook.observe_up_to(self.take().n(), granted, decision(call, done))
            }
        }
    };
}
up_to!(UpTo(n), Take::UpTo(n) => UpTo);
up_to!(UpToAbove { n, keep }, Take::UpToAbove { n, keep } => UpToAbove);
