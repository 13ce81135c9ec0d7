//! Reports of faults: events of `tracing`, or without a subscriber lines on stderr.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use tracing::subscriber::NoSubscriber;

use crate::outage::policy::OnOutage;

/// A fault, or its end.
#[derive(Clone, Copy)]
pub(crate) enum Report {
    Permanent,
    Outage,
    End,
    NoRuntime,
    Slow,
    /// A plan of a layer that is none of the limiter.
    SharedPlan,
}

/// The kinds of reports that a limiter has made: one bit each.
#[derive(Default)]
pub(crate) struct Reported(AtomicU8);

impl Reported {
    /// Makes a report: an event, or without a subscriber a line on stderr for the first one of its
    /// kind. Each request may meet a permanent error, a wrong plan or a slow answer, so of these
    /// the first alone is an event, too.
    #[cold]
    pub(crate) fn report(&self, kind: Report, limiter: &str, policy: OnOutage, text: Arguments<'_>) {
        let bit = 1 << kind as u8;
        let is_first = self.0.fetch_or(bit, Relaxed) & bit == 0;
        if matches!(kind, Report::Permanent | Report::SharedPlan | Report::Slow) && !is_first {
            return;
        }
        let text = text.to_string().replace('\n', "; ");
        match kind {
            Report::Permanent | Report::NoRuntime | Report::SharedPlan => {
                tracing::error!(limiter, ?policy, "{text}")
            }
            Report::Outage | Report::Slow => tracing::warn!(limiter, ?policy, "{text}"),
            Report::End => tracing::info!(limiter, "{text}"),
        }
        if is_first && tracing::dispatcher::get_default(|current| current.is::<NoSubscriber>()) {
            // A closed stderr is no reason to fail a request, and `eprintln!` would panic.
            let _ = writeln!(
                io::stderr(),
                "tollgate: limiter {limiter:?}, {policy:?}: {text} (said once: `tracing` has no subscriber)"
            );
        }
    }
}
