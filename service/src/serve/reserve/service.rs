//! The four calls of the service about reservations, and their lapse.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use tonic::Status;

use super::id::{ReservationId, hash_of};
use super::in_store::marks_of;
use super::messages::{CommitRequest, CommitResponse, Outcome, ReserveRequest, ReserveResponse, Time};
use super::open::{Lapsing, OpenState, bytes_of};
use super::settlement::Settlement;
use crate::serve::counts::Verb;
use crate::serve::decide::{Decision, Problem};
use crate::serve::messages::{Code, RateLimitRequest, RateLimitResponse};
use crate::serve::shared::SharedCounts;
use crate::serve::state::{Configured, Service, Undecided};

/// From one look for reservations that have lapsed to the next.
const TURN: Duration = Duration::from_secs(1);
/// The most reservations that lapse by one call of the store.
const AT_ONCE: usize = 64;
/// The longest time for all of them at a stop.
const PATIENCE: Duration = Duration::from_secs(5);

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
    ///
    /// Over a store it is done as a whole, also if its client hangs up.
    pub(in crate::serve) async fn reserve(
        self: &Arc<Self>,
        request: ReserveRequest,
    ) -> Result<ReserveResponse, Undecided> {
        match &self.shared {
            None => self.reserve_whole(request).await,
            Some(_) => {
                let service = self.clone();
                whole(async move { service.reserve_whole(request).await }).await
            }
        }
    }

    async fn reserve_whole(&self, request: ReserveRequest) -> Result<ReserveResponse, Undecided> {
        let ReserveRequest { domain, descriptors, amount, ttl } = request;
        let request = RateLimitRequest { domain, descriptors, hits_addend: 0 };
        self.check(&request)?;
        let settings = self.deciding().settings.reservations;
        let bytes = if settings.are_released { bytes_of(&request) } else { 0 };
        let Some(place) = self.reservations.place(settings.most, bytes) else {
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
        let Some(parts) = parts else {
            if code == Code::OverLimit {
                self.reservations.refuse(true);
            }
            return Ok(ReserveResponse { code: code.into(), ..ReserveResponse::default() });
        };
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
        let reservation_id = id.text();
        self.reservations.open(place, id, request);
        Ok(ReserveResponse { code: code.into(), reservation_id })
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
    ///
    /// Over a store it is done as a whole, also if its client hangs up.
    pub(in crate::serve) async fn commit(
        self: &Arc<Self>,
        request: CommitRequest,
    ) -> Result<CommitResponse, Status> {
        match &self.shared {
            None => self.commit_whole(request).await,
            Some(_) => {
                let service = self.clone();
                whole(async move { service.commit_whole(request).await }).await
            }
        }
    }

    async fn commit_whole(&self, request: CommitRequest) -> Result<CommitResponse, Status> {
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
        let now = Duration::from_micros(now_us);
        if !shared.is_marked_until(Duration::from_micros(id.made_us), now) {
            return Ok(Err(Outcome::Late));
        }
        let marks = marks_of(id);
        let marks = if id.is_released { &marks[..] } else { &marks[..1] };
        let answers = shared.mark(marks, now).await;
        let Some(is_new) = answers.iter().copied().collect::<Option<Vec<_>>>() else {
            // One of them may be set.
            let set = marks.iter().zip(&answers).filter(|(_, answer)| **answer == Some(true));
            set.for_each(|(mark, _)| shared.note_unsure(mark, now));
            return Err(Status::unavailable(
                "the store does not answer, so nothing is counted: the commit may be repeated",
            ));
        };
        let (is_first, is_charged) = (is_new[0], is_new.get(1).is_none_or(|is_new| *is_new));
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

    /// Lapses all reservations at a stop.
    pub(in crate::serve) async fn lapse_all(&self) {
        if timeout(PATIENCE, self.lapse(u64::MAX)).await.is_err() {
            tracing::warn!("not all reservations go back within {PATIENCE:?}: the others stay charged");
        }
    }

    /// Lapses the reservations whose time is over at `now_ms`. At a stop that is all of them.
    pub(in crate::serve) async fn lapse(&self, now_ms: u64) {
        let mut lapsing = self.reservations.lapse(now_ms).into_iter();
        while lapsing.len() > 0 {
            let some = lapsing.by_ref().take(AT_ONCE).collect();
            let right = match &self.shared {
                None => some,
                Some(shared) => self.right_to_lapse(shared, some).await,
            };
            let settlement = Settlement { actual: 0, gives_back: true, is_charged: true };
            join_all(right.iter().map(|lapsing| self.settle(&lapsing.request, &lapsing.id, settlement)))
                .await;
            right.iter().for_each(|_| self.reservations.count_lapse());
        }
    }

    /// Takes the right to release reservations by marks in the store. Returns those that have it.
    async fn right_to_lapse(&self, shared: &SharedCounts, mut lapsing: Vec<Lapsing>) -> Vec<Lapsing> {
        let now = Duration::from_nanos(self.counts.nanos());
        lapsing.retain(|Lapsing { id, .. }| {
            // Beyond that the marks of a commit may be over, so the amount stays charged.
            let is_known = now < Duration::from_micros(id.ends_us())
                && shared.is_marked_until(Duration::from_micros(id.made_us), now);
            if !is_known {
                self.reservations.count_lapse();
            }
            is_known
        });
        let marks: Vec<_> = lapsing.iter().map(|Lapsing { id, .. }| marks_of(id)[1].clone()).collect();
        let answers = shared.mark(&marks, now).await;
        let right = |(lapsing, answer): (Lapsing, Option<bool>)| match answer {
            // A commit was faster.
            Some(false) => None,
            Some(true) => Some(lapsing),
            None => {
                self.reservations.lapse_again(lapsing);
                None
            }
        };
        lapsing.into_iter().zip(answers).filter_map(right).collect()
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

/// Does work to its end, also if its caller is dropped.
async fn whole<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends.
            Err(_) => std::future::pending().await,
        },
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
