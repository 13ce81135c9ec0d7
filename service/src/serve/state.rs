//! The state of the service, which all listeners share, and the bounds of a request.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

use tokio::sync::{Semaphore, watch};

use super::counts::{CountOptions, LimitCounts};
use super::decide::{Problem, decide};
use super::in_store::decide_shared;
use super::loaded::LoadedRules;
use super::messages::{Code, DESCRIPTORS, RateLimitRequest, RateLimitResponse};
use super::reserve::open::Reservations;
use super::settings::ServeSettings;
use super::shared::SharedCounts;
use super::xds::plane::ControlPlane;
use crate::rules::load::MOST_TOLD;
use crate::rules::tree::Rules;
use tollgate_common::net::open::Closed;
use tollgate_common::settings::error::few;
use tollgate_common::state_file::{Origin, SavedPart};

/// The most bytes of a message, of gRPC and of `/json`. A longer one is refused, as its length is
/// the choice of a client: Envoy takes heads of 60 KiB, and repeats one in each descriptor.
pub(super) const MESSAGE: usize = 4 << 20;
/// The bytes of all messages at a time, beyond the first of each.
const ROOM: usize = 64 << 20;
/// The most entries of a descriptor. The file of Envoy decides about them: more are an error.
const ENTRIES: usize = 64;

/// The service, for the life of the process.
pub(crate) struct Service {
    pub(super) counts: LimitCounts,
    /// The counts in a store, in place of those of this process.
    pub(super) shared: Option<Arc<SharedCounts>>,
    /// The source of the rules, in place of files.
    pub(super) control_plane: Option<Arc<ControlPlane>>,
    /// The begin of the counts.
    pub(super) origin: Origin,
    in_force: RwLock<Arc<Configured>>,
    pub(super) health: watch::Sender<Condition>,
    /// The connections that were closed for a fault, by [`CLOSED`].
    closed: [AtomicU64; CLOSED.len()],
    /// The room for messages that are long, in bytes.
    pub(super) room: Arc<Semaphore>,
    pub(super) reservations: Reservations,
}

/// The faults for which a connection is closed, with their names in the metrics.
const CLOSED: [(Closed, &str); 5] = [
    (Closed::TlsHandshake, "tls_handshake"),
    (Closed::SlowReader, "slow_reader"),
    (Closed::Idle, "idle"),
    (Closed::Refused, "refused"),
    (Closed::Flood, "flood"),
];

/// The settings and the rules at a time: a request sees those of one time.
pub(crate) struct Configured {
    pub(super) settings: ServeSettings,
    pub(super) files: Files,
    /// `None` until a configuration is loaded.
    pub(super) loaded: Option<LoadedRules>,
    /// That of the control plane, or empty.
    pub(super) version: String,
}

/// The files of the rules in force.
#[derive(Default)]
pub(super) struct Files {
    /// The number of those that were read.
    pub(super) read: usize,
    /// The paths beside them that are not read for their names.
    pub(super) unread: Vec<PathBuf>,
}

/// The answer of the health checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Serving,
    NotServing,
    /// A signal has said stop.
    Stopping,
}

/// The reason why a request has no decision.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Undecided {
    /// It has more descriptors or entries than the service takes.
    TooMany(String),
    Problem(Problem),
}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undecided::TooMany(what) => f.write_str(what),
            Undecided::Problem(problem) => problem.fmt(f),
        }
    }
}

impl Service {
    /// Returns a service without rules, by the secret of a saved state. It takes that out of the
    /// parts.
    pub(super) fn new(settings: ServeSettings, saved: &mut Vec<SavedPart>) -> Service {
        let ServeSettings { max_keys, algorithm, .. } = settings;
        let options = CountOptions { max_keys, algorithm, ..CountOptions::default() };
        Service::of(settings, LimitCounts::of_saved(saved, &options))
    }

    pub(super) fn of(settings: ServeSettings, counts: LimitCounts) -> Service {
        let in_force = RwLock::new(Arc::new(Configured {
            settings,
            files: Files::default(),
            loaded: None,
            version: String::new(),
        }));
        let health = watch::Sender::new(Condition::NotServing);
        let (origin, room) = (Origin::now(), Arc::new(Semaphore::new(ROOM)));
        let (shared, control_plane) = (None, None);
        let (closed, reservations) = Default::default();
        let service =
            Service { counts, shared, control_plane, origin, in_force, health, closed, room, reservations };
        service.check_health();
        service
    }

    /// Returns an error if the store cannot count a limit.
    pub(super) fn check_shared(&self, rules: &Rules) -> Result<(), String> {
        let Some(shared) = &self.shared else { return Ok(()) };
        match shared.settings.not_shared(rules, self.counts.options.algorithm) {
            none if none.is_empty() => Ok(()),
            some => Err(few(some.iter(), MOST_TOLD, "\n")),
        }
    }

    pub(super) fn in_force(&self) -> Arc<Configured> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the settings and the rules for a decision. They stay in force while it is held.
    pub(super) fn deciding(&self) -> RwLockReadGuard<'_, Arc<Configured>> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts other settings and rules in force, for requests from now on. It waits for the decisions
    /// under those before: none of them uses a key that has moved.
    pub(super) fn set(&self, in_force: Configured) {
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(in_force);
        self.check_health();
    }

    fn check_health(&self) {
        let Configured { settings, loaded, .. } = &*self.in_force();
        let has_domain = loaded.as_ref().is_some_and(|loaded| !loaded.rules.is_empty());
        let is_healthy = has_domain || !settings.needs_domain;
        let health = if is_healthy { Condition::Serving } else { Condition::NotServing };
        self.health.send_if_modified(|now| {
            let changes = *now != Condition::Stopping && *now != health;
            if changes {
                *now = health;
            }
            changes
        });
    }

    pub(super) fn is_healthy(&self) -> bool {
        *self.health.borrow() == Condition::Serving
    }

    /// Counts a connection that was closed for a fault.
    pub(super) fn closed(&self, fault: Closed) {
        if let Some(index) = CLOSED.iter().position(|(known, _)| *known == fault) {
            self.closed[index].fetch_add(1, Relaxed);
        }
    }

    /// Returns the number of such connections by the name of the fault.
    pub(super) fn closed_by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CLOSED.iter().zip(&self.closed).map(|((_, name), count)| (*name, count.load(Relaxed)))
    }

    /// Decides on a request, and counts its hits, its time, and that it has no decision.
    pub(super) async fn ask(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, Undecided> {
        let (began, statistics) = (Instant::now(), &self.counts.statistics);
        let outcome = match &self.shared {
            None => self.decide(request),
            Some(shared) => self.decide_shared(shared, request).await,
        };
        if let Err(Undecided::TooMany(_) | Undecided::Problem(Problem::NotLoaded)) = outcome {
            statistics.service_error();
        }
        if let Err(Undecided::TooMany(what)) = &outcome {
            tracing::warn!("a request is answered by an error: {what}");
        }
        statistics.call(began.elapsed());
        outcome
    }

    /// Returns the answer to a message that is too long to be read, or to be decided on: a refusal,
    /// if not in shadow mode.
    #[cold]
    pub(super) fn refuse_unread(&self, why: &str) -> RateLimitResponse {
        self.counts.statistics.service_error();
        tracing::warn!("a request is refused unread: {why}");
        let code = if self.in_force().settings.decision.is_shadow { Code::Ok } else { Code::OverLimit };
        RateLimitResponse { overall_code: code.into(), ..RateLimitResponse::default() }
    }

    fn decide(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, Undecided> {
        check(request).map_err(Undecided::TooMany)?;
        let in_force = self.deciding();
        let loaded = in_force.loaded.as_ref().ok_or(Undecided::Problem(Problem::NotLoaded))?;
        let options = &in_force.settings.decision;
        decide(loaded, &self.counts, options, request, self.counts.now()).map_err(Undecided::Problem)
    }

    async fn decide_shared(
        &self,
        shared: &SharedCounts,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, Undecided> {
        check(request).map_err(Undecided::TooMany)?;
        let (in_force, counts) = (self.in_force(), &self.counts);
        let loaded = in_force.loaded.as_ref().ok_or(Undecided::Problem(Problem::NotLoaded))?;
        let options = &in_force.settings.decision;
        let decided = decide_shared(loaded, counts, shared, options, request, counts.now());
        decided.await.map_err(Undecided::Problem)
    }
}

/// Checks the bounds of a request. The error names the number and the bound.
pub(super) fn check(request: &RateLimitRequest) -> Result<(), String> {
    let within = |what: &str, number: usize, most: usize| match number {
        number if number > most => Err(format!("{number} {what}, the most is {most}")),
        _ => Ok(()),
    };
    within("descriptors", request.descriptors.len(), DESCRIPTORS)?;
    let mut lengths = request.descriptors.iter().map(|each| each.entries.len());
    lengths.try_for_each(|length| within("entries of a descriptor", length, ENTRIES))
}
