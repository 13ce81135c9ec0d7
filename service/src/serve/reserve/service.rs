//! The four calls of the service about reservations, and their lapse.

use std::sync::Arc;
use std::time::Duration;

use tonic::Status;

use super::id::{ReservationId, hash_of};
use super::in_store::{marked_for, marks_of};
use super::messages::{CommitRequest, CommitResponse, Outcome, ReserveRequest, ReserveResponse, Time};
use super::open::{HeldPlace, Lapsing, OpenState};
use super::settlement::Settlement;
use crate::serve::counts::{UnixTime, Verb};
use crate::serve::decide::{Decision, Problem};
use crate::serve::messages::{Code, RateLimitRequest, RateLimitResponse};
use crate::serve::shared::SharedCounts;
use crate::serve::state::{Configured, Service, Undecided};

/// From one look for reservations that have lapsed to the next.
const TURN: Duration = Duration::from_secs(1);

/// The right to settle a reservation.
enum Right {
    /// Under these terms.
    Settle(Settlement, Outcome),
    /// It is settled already, or is too late.
    None(Outcome),
}

impl Service {
    /// Looks whether one hit more is within all limits, and counts none.
    pub(in crate::serve) async fn check_rate_limit(
        &self,
        mut request: RateLimitRequest,
    ) -> Result<RateLimitResponse, Undecided> {
        for descriptor in &mut request.descriptors {
            (descriptor.hits_addend, descriptor.is_negative_hits) = (Some(1), false);
        }
        self.counted_by(Verb::Look, &request).await
    }

    /// Adds hits that were used, also beyond a limit. Its answer is OK.
    pub(in crate::serve) async fn report(
        &self,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, Undecided> {
        let mut answer = self.counted_by(Verb::Charge, request).await?;
        answer.overall_code = Code::Ok.into();
        Ok(answer)
    }

    /// Decides on a request whose hits are looked at, or are added in any case.
    async fn counted_by(
        &self,
        verb: Verb,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, Undecided> {
        self.check(request)?;
        let answered = match &self.shared {
            None => self.decision(&self.deciding(), request)?.answer_by(verb),
            Some(shared) => {
                let in_force = self.in_force();
                self.decision(&in_force, request)?.answer_shared_by(shared, verb).await
            }
        };
        Ok(answered)
    }

    /// Reserves an amount under all limits of a request, or under none of them.
    pub(in crate::serve) async fn reserve(
        &self,
        request: ReserveRequest,
    ) -> Result<ReserveResponse, Undecided> {
        let ReserveRequest { domain, descriptors, amount, ttl } = request;
        let request = RateLimitRequest { domain, descriptors, hits_addend: 0 };
        self.check(&request)?;
        let settings = self.deciding().settings.reservations;
        let Some(place) = self.reservations.place(settings.most) else {
            return Ok(self.refuse_reservation());
        };
        let made_us = self.counts.nanos() / 1_000;
        let (code, parts) = match &self.shared {
            None => self.decision(&self.deciding(), &request)?.reserve(amount),
            Some(shared) => {
                let in_force = self.in_force();
                self.decision(&in_force, &request)?.reserve_shared(shared, amount).await
            }
        };
        if code == Code::OverLimit {
            self.reservations.refuse(true);
            return Ok(ReserveResponse { code: code.into(), ..ReserveResponse::default() });
        }
        let id = ReservationId {
            process: self.reservations.process,
            number: self.reservations.number(),
            amount,
            made_us,
            ttl_ms: ttl_of(ttl, settings.max_ttl),
            is_released: settings.are_released,
            asked: hash_of(&request),
            parts,
        };
        Ok(self.open(place, id, request))
    }

    fn open(&self, place: HeldPlace<'_>, id: ReservationId, request: RateLimitRequest) -> ReserveResponse {
        let reservation_id = id.text();
        let state = match id.is_released {
            false => OpenState::Stays,
            true => OpenState::GoesBack(Box::new(Lapsing { id: id.clone(), request })),
        };
        self.reservations.open(place, &id, state);
        ReserveResponse { code: Code::Ok.into(), reservation_id }
    }

    /// Returns the answer without room for a reservation: a refusal, which counts nothing.
    ///
    /// In shadow mode it is OK without an id, and the commit without one adds the actual amount.
    #[cold]
    pub(super) fn refuse_reservation(&self) -> ReserveResponse {
        self.reservations.refuse(false);
        let is_shadow = self.in_force().settings.decision.is_shadow;
        let code = if is_shadow { Code::Ok } else { Code::OverLimit };
        ReserveResponse { code: code.into(), ..ReserveResponse::default() }
    }

    /// Settles a reservation by the actual amount, once.
    ///
    /// # Errors
    ///
    /// A status for a request without a domain or a descriptor, for descriptors that are not those
    /// of the reservation, and while the store does not answer. Nothing is counted then.
    pub(in crate::serve) async fn commit(&self, request: CommitRequest) -> Result<CommitResponse, Status> {
        let CommitRequest { domain, descriptors, reservation_id, actual_amount } = request;
        let request = RateLimitRequest { domain, descriptors, hits_addend: 0 };
        let outcome = self.settled(&request, &reservation_id, actual_amount).await?;
        self.reservations.committed(outcome);
        let reservation_released = outcome == Outcome::Committed;
        Ok(CommitResponse { reservation_released, outcome: outcome.into() })
    }

    async fn settled(&self, request: &RateLimitRequest, text: &str, actual: u64) -> Result<Outcome, Status> {
        self.check(request)?;
        let in_force = self.in_force();
        self.decision(&in_force, request)?;
        let (id, right) = match ReservationId::read(text) {
            None if text.is_empty() => {
                (None, Right::Settle(Settlement::of_report(actual), Outcome::Reported))
            }
            None => return Ok(Outcome::Unknown),
            Some(id) if id.asked != hash_of(request) => {
                let what = "the domain and the descriptors are not those of the reservation";
                return Err(Status::invalid_argument(what));
            }
            Some(id) => {
                let right = self.right_to(&id, actual).await?;
                (Some(id), right)
            }
        };
        let (settlement, outcome) = match right {
            Right::Settle(settlement, outcome) => (settlement, outcome),
            Right::None(outcome) => return Ok(outcome),
        };
        self.settle(request, &id.unwrap_or_default(), settlement).await;
        Ok(outcome)
    }

    async fn settle(&self, request: &RateLimitRequest, id: &ReservationId, settlement: Settlement) {
        match &self.shared {
            None => {
                if let Ok(decision) = self.decision(&self.deciding(), request) {
                    decision.settle(id, settlement);
                }
            }
            Some(shared) => {
                let in_force = self.in_force();
                if let Ok(decision) = self.decision(&in_force, request) {
                    decision.settle_shared(shared, id, settlement).await;
                }
            }
        }
    }

    /// Takes the right to settle a reservation, which is there once: the entry in this process, or
    /// a mark in the store.
    async fn right_to(&self, id: &ReservationId, actual: u64) -> Result<Right, Status> {
        let now_us = self.counts.nanos() / 1_000;
        let is_own = id.process == self.reservations.process;
        if is_own && !self.reservations.has_made(id.number) {
            return Ok(Right::None(Outcome::Unknown));
        }
        if !is_own && self.shared.is_none() {
            return Ok(Right::None(Outcome::OtherReplica));
        }
        if now_us >= id.ends_us() {
            return Ok(Right::None(Outcome::Late));
        }
        let is_late = now_us >= id.lapses_us();
        let outcome = if is_late { Outcome::Late } else { Outcome::Committed };
        let is_charged = match &self.shared {
            None => match self.reservations.take(id.number) {
                None => return Ok(Right::None(Outcome::Twice)),
                Some(open) => !matches!(open.state, OpenState::Released),
            },
            Some(shared) => match self.right_by(shared, id, (is_own, now_us)).await? {
                Ok(is_charged) => is_charged,
                Err(outcome) => return Ok(Right::None(outcome)),
            },
        };
        // One that has lapsed stays charged, unless its amount goes back.
        let gives_back = !is_late || id.is_released;
        Ok(Right::Settle(Settlement { actual, gives_back, is_charged }, outcome))
    }

    /// Takes the right to settle a reservation by marks in the store. Returns whether its amount is
    /// still charged.
    async fn right_by(
        &self,
        shared: &SharedCounts,
        id: &ReservationId,
        (is_own, now_us): (bool, u64),
    ) -> Result<Result<bool, Outcome>, Status> {
        if is_own && !self.reservations.holds(id.number) {
            return Ok(Err(Outcome::Twice));
        }
        if !shared.is_marked_until(UnixTime(id.made_us / 1_000_000), UnixTime(now_us / 1_000_000)) {
            return Ok(Err(Outcome::Late));
        }
        let [settled, released] = marks_of(id);
        let unanswered = || {
            Status::unavailable(
                "the store does not answer, so nothing is counted: the commit may be repeated",
            )
        };
        let marks = match id.is_released {
            true => shared.mark([settled, released], marked_for(id)).await,
            false => shared.mark([settled], marked_for(id)).await.map(|[settled]| [settled, true]),
        };
        let [is_first, is_charged] = marks.ok_or_else(unanswered)?;
        if is_own {
            self.reservations.take(id.number);
        }
        Ok(if is_first { Ok(is_charged) } else { Err(Outcome::Twice) })
    }

    /// Lapses the reservations whose time is over, each second, until the process ends.
    pub(in crate::serve) async fn lapse_each(self: Arc<Self>) {
        loop {
            tokio::time::sleep(TURN).await;
            self.lapse(self.counts.nanos() / 1_000_000).await;
        }
    }

    /// Lapses the reservations whose time is over at `now_ms`. At a stop that is all of them.
    pub(in crate::serve) async fn lapse(&self, now_ms: u64) {
        for lapsing in self.reservations.lapse(now_ms) {
            if let Some(shared) = &self.shared {
                if self.counts.nanos() / 1_000 >= lapsing.id.ends_us() {
                    // The marks of a commit may be over.
                    continue;
                }
                let [_, released] = marks_of(&lapsing.id);
                match shared.mark([released], marked_for(&lapsing.id)).await {
                    Some([true]) => {}
                    // A commit was faster.
                    Some([false]) => continue,
                    None => {
                        self.reservations.lapse_again(lapsing);
                        continue;
                    }
                }
            }
            let settlement = Settlement { actual: 0, gives_back: true, is_charged: true };
            self.settle(&lapsing.request, &lapsing.id, settlement).await;
        }
    }

    /// Checks the bounds of a request.
    fn check(&self, request: &RateLimitRequest) -> Result<(), Undecided> {
        crate::serve::state::check(request).map_err(|what| {
            self.counts.statistics.service_error();
            tracing::warn!("a request is answered by an error: {what}");
            Undecided::TooMany(what)
        })
    }

    fn decision<'d>(
        &'d self,
        in_force: &'d Configured,
        request: &'d RateLimitRequest,
    ) -> Result<Decision<'d>, Undecided> {
        let Some(loaded) = &in_force.loaded else {
            self.counts.statistics.service_error();
            return Err(Undecided::Problem(Problem::NotLoaded));
        };
        let options = &in_force.settings.decision;
        let decision = Decision::new(loaded, &self.counts, options, request, self.counts.now());
        decision.map_err(Undecided::Problem)
    }
}

/// Returns the milliseconds of a reservation: the bound without a time, or beyond it.
fn ttl_of(ttl: Option<Time>, most: Duration) -> u64 {
    let given = ttl.and_then(|Time { seconds, nanos }| {
        let seconds = Duration::from_secs(u64::try_from(seconds).ok()?);
        Some(seconds.saturating_add(Duration::from_nanos(u64::try_from(nanos).ok()?)))
    });
    let given = given.filter(|ttl| !ttl.is_zero()).unwrap_or(most).min(most);
    u64::try_from(given.as_millis()).unwrap_or(u64::MAX).max(1)
}
