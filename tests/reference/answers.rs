//! The crate's answers, in the reference's terms.

#![allow(dead_code, reason = "not every user of the reference drives a bucket")]

use std::time::Duration;

use tollgate::{Denied, Granted, Reason, Snapshot};
use tollgate_testing::reference::Answer;
use tollgate_testing::reference::steps::nanos;

pub(crate) fn granted(granted: Granted) -> Answer {
    grant(granted.remaining(), granted.reset_after())
}

/// Returns a look as an answer to a take of nothing.
pub(crate) fn look(snapshot: Snapshot) -> Answer {
    grant(snapshot.remaining(), snapshot.reset_after())
}

fn grant(remaining: u64, reset_after: Duration) -> Answer {
    Answer { granted: true, remaining, retry_after: None, reset_after: Some(nanos(reset_after)) }
}

pub(crate) fn denied(denied: Denied) -> Answer {
    let retry_after = denied.retry_after().map(nanos);
    Answer { granted: false, remaining: denied.remaining(), retry_after, reset_after: None }
}

pub(crate) fn answer(decision: Result<Granted, Denied>) -> Answer {
    decision.map_or_else(denied, granted)
}

/// Returns the answer of a take of `n`, by a bucket whose burst is `burst`.
pub(crate) fn taken(decision: Result<Granted, Denied>, n: u64, burst: u64) -> Answer {
    match decision {
        Ok(given) => assert_eq!(given.tokens(), n),
        Err(refused) => assert_eq!(refused.reason(), if n > burst { Reason::TooMany } else { Reason::Empty }),
    }
    answer(decision)
}
