//! The outcome of a request that may wait, and its place in a line.

use crate::bucket::line::word_bank::Waits;
use crate::keyed::lines::LineId;
use crate::word::decision::Granted;

/// A place in a line: the line, and the caller's number there.
#[derive(Clone, Copy)]
pub(crate) struct LineTicket {
    pub(crate) line: LineId,
    pub(crate) waits: Waits,
    pub(crate) n: u64,
}

/// The outcome of a request that may wait.
#[derive(Clone, Copy)]
pub(crate) enum Promise {
    /// The tokens are taken.
    Granted(Granted),
    /// The caller is in line, with this ticket.
    Waits(LineTicket),
    /// The tokens and the kept part are due after these nanoseconds, and the caller tries again.
    Later(u64),
}
