//! The verbs `peek`, `refund`, `hold`, `reserve` and the waits, once for all buckets.

use std::task::Waker;

use crate::bucket::engine::Done;
use crate::bucket::line::bank::Bank;
use crate::bucket::line::caller_line::{Entered, InLine, LineTurn, Wish};
use crate::bucket::receipt::{Receipt, Settle};
use crate::keyed::in_line::Touch;
use crate::keyed::lines::LineId;
use crate::keyed::protocol::MAX_ROUNDS;
use crate::limiter::ask::Ask;
use crate::limiter::asked::{Frame, Site, Target};
use crate::limiter::verbs::decision;
use crate::time::clock::{Moment, nanos_of};
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::state::Origin;
use crate::word::verb::{Call, Reserve, Take};

/// The outcome of a request that may wait.
#[derive(Clone, Copy)]
pub(crate) enum Joined {
    /// The tokens are taken.
    Granted(Granted),
    /// The caller is in this line.
    Waits(LineId, InLine),
    /// The tokens and the kept part are due after these nanoseconds, and the caller tries again.
    Later(u64),
}

#[expect(private_bounds, reason = "sealed")]
impl<B: Target> Ask<'_, B> {
    /// Returns the tokens of the bucket, and the wait until the take would be granted.
    ///
    /// It takes nothing, makes no entry and shows nothing to the hook. Under a foreign plan there
    /// are 0 tokens, and the wait is `None`.
    pub(super) fn content(&self) -> Snapshot {
        match self.seen(&self.bucket.site(), Take::Exactly(0)) {
            Ok((call, (_, Done { outcome, reading, .. }))) => call.snapshot(outcome, reading),
            Err(_) => Snapshot::new(Granted::anyway(0, 0), None),
        }
    }

    /// Returns the refusal that the take would get, without the take.
    ///
    /// The hook sees only a refusal. In shadow mode there is none, and neither is there for a
    /// bucket that was never used and starts with too few tokens. The take that follows then
    /// decides.
    pub(super) fn refusal(&self) -> Result<(), Denied> {
        let Frame { engine, hook, .. } = self.bucket.frame();
        let (site, take) = (self.bucket.site(), self.take());
        let (charged, decision) = match self.seen(&site, take) {
            Ok((call, (charged, done))) => (charged, decision(call, Ok(done))),
            Err(denied) => (true, Err(denied)),
        };
        if engine.may_begin(&decision) && !charged {
            return Ok(());
        }
        hook.preview(take.n(), decision)
    }

    /// Returns the call, and the outcome that the `tried` take would have.
    fn seen<'p>(&'p self, site: &'p B::Site, tried: Take) -> Result<(Call<'p>, (bool, Done)), Denied> {
        let options = self.options();
        let plan = site.plan(options.plan)?;
        Ok((Call { take: self.take(), plan }, site.look(Call { take: tried, plan }, options.now)))
    }

    /// Gives the tokens back, as many as fit. Under a foreign plan none come back.
    pub(super) fn give_back(&self) {
        let site = self.bucket.site();
        if let Ok(plan) = site.plan(self.options().plan) {
            site.refund(plan, self.n);
        }
    }

    /// Takes tokens, shows the decision to the hook, and returns a receipt that finds the bucket
    /// without the key.
    pub(super) fn taken(&self) -> Result<(Granted, Receipt), Denied> {
        self.received_at(&self.bucket.site(), self.take())
    }

    /// Takes as [`taken`](Self::taken), on a bucket that has a level after it: a settlement needs
    /// that. Only a take of 0 tokens leaves a bucket without one.
    pub(super) fn held(&self) -> Result<(Granted, Receipt), Denied> {
        let (site, take) = (self.bucket.site(), if self.n == 0 { Take::Touch } else { self.take() });
        if self.n > 0
            && self.options().is_plain()
            && let Some(held) = site.attempt(take)
        {
            return Ok(held);
        }
        self.received_at(&site, take)
    }

    #[inline(always)]
    fn received_at(&self, site: &B::Site, take: Take) -> Result<(Granted, Receipt), Denied> {
        let removals = site.removals();
        let (call, done) = site.run(take, self.options());
        self.received(site, call, &done, removals)
    }

    /// Undoes the take of a receipt: gives back the tokens that the bucket would still have without
    /// it.
    ///
    /// Nothing comes back if a later reservation waits. The same holds if plans exist and the
    /// bucket was used since.
    pub(super) fn undo(&self, receipt: &Receipt) {
        self.bucket.settles().settle(receipt, Settle::Undo(receipt));
    }

    /// Shows the decision on a take to the hook, and returns a receipt for the take.
    ///
    /// A panic of the hook undoes the take. If shadow mode overrules a refusal, the receipt is
    /// void: it gives nothing back.
    fn received(
        &self,
        site: &B::Site,
        call: Call<'_>,
        done: &Result<Done, Denied>,
        removals: u64,
    ) -> Result<(Granted, Receipt), Denied> {
        let Frame { engine, hook, .. } = self.bucket.frame();
        match done {
            Ok(Done { outcome, reading, leased }) if outcome.granted => {
                let mut receipt = Receipt::of(call, *outcome, reading);
                receipt.before += reading.refill.units(*leased);
                receipt.removals = match outcome.origin {
                    origin @ Origin::Overflow(_) => site.entered(origin),
                    _ => removals,
                };
                let granted = call.granted(*outcome, reading);
                hook.observe_or(&granted, || self.undo(&receipt));
                Ok((granted, receipt))
            }
            done => {
                let granted = hook.observe(call.take.n(), decision(call, *done))?;
                let made = done.map_or_else(|_| engine.clock.now(), |done| Moment(done.reading.nanos()));
                Ok((granted, Receipt::void(made)))
            }
        }
    }

    /// Takes tokens that are there, or returns the line in which to wait for them as well. The
    /// number is that of the removals before the take.
    ///
    /// The key gets an entry before its line is locked: no code of a key runs under the mutex.
    fn tried<'p>(
        &'p self,
        site: &'p B::Site,
        is_patient: bool,
    ) -> (Call<'p>, Result<Done, Denied>, u64, Option<LineId>) {
        let removals = site.removals();
        let (call, done) = site.run(self.take(), self.options());
        let waits = is_patient
            && decision(call, done).is_err_and(|denied| denied.reason() == Reason::Empty)
            && !self.bucket.frame().hook.is_shadow();
        (call, done, removals, waits.then(|| LineId::of(done, removals, call.plan)))
    }

    /// Takes tokens that are there or will be earned within [`within`](Ask::within), and returns a
    /// receipt. The hook sees the decision.
    ///
    /// The reservation stands behind the callers in line. With a longest delay of 0, and in shadow
    /// mode, it is a plain take.
    pub(super) fn reserved(&self) -> Result<(Granted, Receipt), Denied> {
        let (site, wanted) =
            (self.bucket.site(), Reserve { n: self.n, keep: self.keep, max_wait: self.within });
        for _ in 0..MAX_ROUNDS {
            let (call, done, removals, line) = self.tried(&site, wanted.max_wait > 0);
            let Some(line) = line else { return self.received(&site, call, &done, removals) };
            let done = self.bucket.with_line(&line, Touch::Reserves, |line, bank, wakes| {
                let tail = line.map_or(0, |line| line.serve(bank, wakes));
                bank.reserve(tail, wanted, self.at)
            });
            if let Some(done) = done {
                return self.received(&site, Call { take: wanted.into(), ..call }, &done, removals);
            }
        }
        self.received(&site, Take::from(wanted).into(), &Err(self.no_entry()), 0)
    }

    /// Takes the tokens now, or joins the line of the bucket if they come within `max_wait`
    /// nanoseconds. `u64::MAX` is a wait without bound.
    ///
    /// The hook sees a grant or a refusal, but not a caller that joins. A caller that would wait
    /// longer is refused with [`Reason::Deadline`](crate::Reason::Deadline), and one that finds the
    /// line full with [`Reason::Line`](crate::Reason::Line). With a longest wait of 0, and in
    /// shadow mode, the take alone decides.
    ///
    /// A request that keeps a part joins no line: it is told the time after which it tries again.
    pub(super) fn join(&self, max_wait: u64, waker: &Waker) -> Result<Joined, Denied> {
        let (site, n) = (self.bucket.site(), self.n);
        let Frame { hook, max_waiting, .. } = self.bucket.frame();
        let wish = Wish { n, max_wait, max_waiting, waker };
        for _ in 0..MAX_ROUNDS {
            let (call, done, _, line) = self.tried(&site, max_wait > 0);
            let joined = match (decision(call, done), line) {
                (decision, None) => decision.map(Joined::Granted),
                (Err(denied), Some(_)) if self.keep > 0 => {
                    match denied.retry_after().map_or(u64::MAX, nanos_of) {
                        wait if wait <= max_wait => Ok(Joined::Later(wait)),
                        wait => Err(Denied::late(n, wait - max_wait)),
                    }
                }
                (_, Some(line)) => {
                    match self.bucket.with_line(&line, Touch::Joins, |line, bank, wakes| match line {
                        Some(line) => line.join(bank, &wish, wakes),
                        None => Ok(Entered::Lost),
                    }) {
                        Ok(Entered::Waits(caller)) => Ok(Joined::Waits(line, caller)),
                        Ok(Entered::Granted(granted)) => Ok(Joined::Granted(granted)),
                        // The key was removed, or the rule was changed since the take.
                        Ok(Entered::Lost) => continue,
                        Err(denied) => Err(denied),
                    }
                }
            };
            return match joined {
                Ok(Joined::Granted(granted)) => hook.observe(n, Ok(granted)).map(Joined::Granted),
                Err(denied) => hook.observe(n, Err(denied)).map(Joined::Granted),
                waits => waits,
            };
        }
        hook.observe(n, Err(self.no_entry())).map(Joined::Granted)
    }

    /// Returns the refusal of a key whose entry comes and goes again and again.
    #[cold]
    fn no_entry(&self) -> Denied {
        let now = self.bucket.frame().engine.clock.nanos();
        Denied::full(self.n, now, Some(now))
    }

    /// Serves the callers in line that are due, and returns the turn of one of them.
    ///
    /// `fired`: the timer of this caller is over. `waker` is woken when the caller is served or
    /// turned away, or when its turn gets earlier than its timer. The number is the version of the
    /// terms, which each change of the rule raises.
    pub(super) fn turn(&self, line: &LineId, caller: &InLine, fired: bool, waker: &Waker) -> (LineTurn, u64) {
        self.bucket.with_line(line, Touch::Looks, |line, bank, wakes| match line {
            Some(line) => line.look(bank, caller, fired, waker, wakes),
            None => (LineTurn::Served, 0),
        })
    }

    /// Takes a caller out of the line; all behind it move up. A caller that was served meanwhile
    /// has spent its tokens.
    pub(super) fn leave(&self, line: &LineId, caller: &InLine) {
        self.bucket.with_line(line, Touch::Looks, |line, bank, wakes| {
            if let Some(line) = line {
                line.leave(bank, caller.id, wakes);
            }
        });
    }

    /// Returns the grant of a caller that was served, with the tokens that remain at this moment.
    /// It takes nothing.
    pub(super) fn served(&self, line: &LineId) -> Granted {
        self.bucket.with_line(line, Touch::Looks, |_, bank, _| bank.granted(self.n))
    }
}
