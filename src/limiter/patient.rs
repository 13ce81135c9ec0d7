//! A request that waits: in the line of its bucket, or out of line if it keeps a part.

use std::task::Waker;

use crate::bucket::engine::Engine;
use crate::bucket::line::caller_line::LineTurn;
use crate::limiter::ask::Ask;
use crate::limiter::asked::{Asked, Patience};
use crate::limiter::hook::DecisionHook;
use crate::limiter::ticket::{LineTicket, Promise};
use crate::limiter::verbs::decision;
use crate::limiter::waiting::WaitsInLine;
use crate::time::clock::nanos_of;
use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted, Reason};

impl<'a, B: Asked<'a>> WaitsInLine for Ask<'_, B> {
    fn join(&self, max_wait: u64, waker: &Waker) -> Result<Promise, Denied> {
        let (n, keep) = self.tokens();
        if keep == 0 {
            let patience = Patience { n, max_wait };
            return self.bucket().join(patience, self.options(), waker);
        }
        let (hook, (call, done)) = (self.bucket().hook(), self.bucket().run(self.take(), self.options()));
        let decision = match decision(call, done) {
            Err(denied) if denied.reason() == Reason::Empty && max_wait > 0 && !hook.is_shadow() => {
                match denied.retry_after().map_or(u64::MAX, nanos_of) {
                    wait if wait <= max_wait => return Ok(Promise::Later(wait)),
                    wait => Err(Denied::late(n, wait - max_wait)),
                }
            }
            decision => decision,
        };
        hook.observe(n, decision).map(Promise::Granted)
    }

    fn look(&self, ticket: &LineTicket, fired: bool, waker: &Waker) -> (LineTurn, u64) {
        self.bucket().look_at_turn(ticket, fired, waker)
    }

    fn leave(&self, ticket: &LineTicket) {
        self.bucket().leave_line(ticket);
    }

    fn granted(&self, ticket: &LineTicket) -> Granted {
        self.bucket().granted_in_line(ticket)
    }

    fn engine(&self) -> &Engine {
        self.bucket().engine()
    }

    fn hook(&self) -> &DecisionHook {
        self.bucket().hook()
    }

    fn jitter(&self) -> Jitter {
        self.bucket().jitter()
    }

    fn patience(&self) -> u64 {
        Ask::patience(self)
    }
}
