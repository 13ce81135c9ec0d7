//! A log on its way through one configuration, or two.
//!
//! The lines become requests of a profile of checks, and the log moves the clock. The decisions are
//! those of the service.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate::{Clock, MockClock};

use super::lines::{self, FieldNames};
use super::logs::{LogSource, merge};
use super::tally::{Hit, LimitTally};
use super::timeline::Timeline;
use crate::rules::shared_entry::SharedEntry;
use crate::rules::tree::{RuleLimit, Rules};
use crate::serve::checks::{Check, CheckedRequest};
use crate::serve::counts::{CountOptions, LimitCounts};
use crate::serve::decide::{DecisionOptions, decide};
use crate::serve::lists;
use crate::serve::loaded::LoadedRules;
use crate::serve::messages::{Code, RateLimitRequest};

/// A configuration with its counts, and the account of each limit.
pub(super) struct Side {
    pub(super) loaded: LoadedRules,
    pub(super) counts: LimitCounts,
    pub(super) clock: MockClock,
    /// The time of the clock.
    pub(super) reached: Duration,
    pub(super) tallies: Vec<LimitTally>,
    pub(super) refused: u64,
    /// The requests whose decision the log has: by that, and by the one of the replay; true is a
    /// refusal.
    pub(super) logged: [[u64; 2]; 2],
    has_lists: bool,
    /// The requests that no limit has counted.
    pub(super) unlimited: u64,
}

impl Side {
    pub(super) fn new(rules: Rules, options: CountOptions) -> Result<Side, String> {
        let (clock, mock) = Clock::mock();
        let counts = LimitCounts::new(&CountOptions { clock: clock.clone(), ..options });
        let tally = |limit: &Arc<RuleLimit>| LimitTally::new(limit, counts.text(&limit.amount), &clock);
        let tallies = rules.limits().map(tally).collect();
        let has_lists = rules.limits().any(|limit| !limit.more.is_empty());
        Ok(Side {
            loaded: counts.load(rules)?,
            counts,
            clock: mock,
            reached: Duration::ZERO,
            tallies,
            refused: 0,
            logged: [[0; 2]; 2],
            has_lists,
            unlimited: 0,
        })
    }

    /// Decides on a request, and returns whether it is refused.
    fn decide(&mut self, at: Duration, request: &RateLimitRequest) -> bool {
        self.clock.advance(at.saturating_sub(self.reached));
        let is_next_minute = at.as_secs() / 60 > self.reached.as_secs() / 60;
        self.reached = at;
        if is_next_minute {
            self.counts.sweep_if_tight();
        }
        let options = DecisionOptions::default();
        let over = match self.has_lists {
            true => lists::over(&self.loaded, &self.counts, request, self.counts.now()),
            false => Vec::new(),
        };
        let Ok(response) = decide(&self.loaded, &self.counts, &options, request, self.counts.now()) else {
            self.unlimited += 1;
            return false;
        };
        let mut is_limited = false;
        let domain = self.loaded.rules.domain(&request.domain);
        for (descriptor, status) in request.descriptors.iter().zip(&response.statuses) {
            let entries = descriptor.entries.iter().map(|entry| (&*entry.key, &*entry.value));
            let Some(limit) = domain.and_then(|domain| domain.find(entries)) else { continue };
            // A limit that another one replaces tells none.
            if status.current_limit.is_none() {
                continue;
            }
            is_limited = true;
            let name = || {
                let entries = descriptor.entries.iter().enumerate().map(|(level, entry)| {
                    format!("{}={}", entry.key, SharedEntry::value(limit.shared.get(level), &entry.value))
                });
                entries.collect::<Vec<_>>().join(",")
            };
            let key = self.counts.key(&request.domain, &descriptor.entries, &limit.shared);
            for each in limit.each() {
                // The status of a list is that of one of its limits.
                let is_refused = match limit.more.is_empty() {
                    true => status.code == Code::OverLimit as i32,
                    false => over.contains(&each.id),
                };
                self.tallies[each.id as usize].add(&Hit { key, at, is_refused, name: &name });
            }
        }
        self.unlimited += u64::from(!is_limited);
        let is_refused = response.overall_code == Code::OverLimit as i32;
        self.refused += u64::from(is_refused);
        is_refused
    }
}

/// A request of a log, and whether it was refused, if the log has that.
pub(super) struct Asked {
    request: RateLimitRequest,
    was_refused: Option<bool>,
}

/// The logs on their way through one configuration, or two.
pub(super) struct Replay {
    check: Check,
    fields: FieldNames,
    pub(super) sides: Vec<Side>,
    pub(super) logs: Vec<LogSource<Asked>>,
    pub(super) timeline: Timeline,
    pub(super) requests: u64,
    /// The requests that only the first configuration refuses, and only the second one.
    pub(super) only: [u64; 2],
    /// The headers that the check reads, and whether a line has each.
    pub(super) headers: RefCell<BTreeMap<String, bool>>,
}

impl Replay {
    pub(super) fn new(check: Check, fields: FieldNames, sides: Vec<Side>) -> Replay {
        let (logs, timeline) = (Vec::new(), Timeline::new());
        Replay {
            check,
            fields,
            sides,
            logs,
            timeline,
            requests: 0,
            only: [0; 2],
            headers: RefCell::default(),
        }
    }

    /// Takes all lines of the logs. `seen` is told of the bytes of each line.
    pub(super) fn read(
        &mut self,
        mut logs: Vec<LogSource<Asked>>,
        seen: &mut dyn FnMut(usize),
    ) -> Result<(), String> {
        let Replay { check, fields, sides, timeline, requests, only, headers, .. } = self;
        let request = |line: &str| request(check, fields, headers, line);
        let outcome = merge(&mut logs, &request, seen, &mut |at, Asked { request, was_refused }| {
            *requests += 1;
            let mut refused = [false; 2];
            for (side, refused) in sides.iter_mut().zip(&mut refused) {
                *refused = side.decide(at, &request);
                if let Some(was_refused) = was_refused {
                    side.logged[usize::from(was_refused)][usize::from(*refused)] += 1;
                }
            }
            timeline.add(at, refused[0]);
            if sides.len() == 2 && refused[0] != refused[1] {
                only[usize::from(refused[1])] += 1;
            }
        });
        self.logs = logs;
        outcome
    }
}

/// Returns the request of a line, and its time.
fn request(
    check: &Check,
    fields: &FieldNames,
    known: &RefCell<BTreeMap<String, bool>>,
    line: &str,
) -> Option<(Duration, Asked)> {
    let line = lines::read(line, fields)?;
    let headers = &line.headers;
    let header = |wanted: &hyper::http::HeaderName| {
        let found = headers.iter().find(|(name, _)| *name == wanted.as_str()).map(|(_, value)| value.clone());
        let mut known = known.borrow_mut();
        match known.get_mut(wanted.as_str()) {
            Some(is_there) => *is_there |= found.is_some(),
            None => _ = known.insert(wanted.as_str().to_owned(), found.is_some()),
        }
        found
    };
    let host = headers.iter().find(|(name, _)| name == "host").map_or("", |(_, value)| value);
    let (method, target) = (&*line.method, &*line.target);
    let asked = CheckedRequest { client: line.client.clone(), method, target, host, header: &header };
    Some((line.at, Asked { request: check.message(&asked), was_refused: line.was_refused }))
}

/// Tells a share of a log once a second, if there is a terminal.
pub(super) struct Progress {
    all: Option<u64>,
    read: u64,
    told: Instant,
}

impl Progress {
    /// `all` is the sum of bytes, if it is known.
    pub(super) fn new(all: Option<u64>) -> Progress {
        Progress { all, read: 0, told: Instant::now() }
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.read += bytes as u64;
        // A reading of the clock for each line would take a tenth of the time.
        if self.read % 4_096 < bytes as u64 && self.told.elapsed() >= Duration::from_secs(1) {
            self.told = Instant::now();
            self.tell();
        }
    }

    fn tell(&self) {
        let mut stderr = io::stderr();
        if stderr.is_terminal() {
            let megabytes = self.read / 1_000_000;
            // A closed stderr is no reason to stop.
            let _ = match self.all {
                Some(all) => write!(stderr, "\r{megabytes} MB, {} %", self.read * 100 / all.max(1)),
                None => write!(stderr, "\r{megabytes} MB"),
            };
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if io::stderr().is_terminal() {
            self.tell();
            eprintln!();
        }
    }
}
