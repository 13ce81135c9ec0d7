//! The outcome of a request that may wait, and its place in a line.

use crate::bucket::line::word_bank::Waits;
use crate::bucket::receipt::Receipt;
use crate::keyed::lines::LineId;
use crate::word::decision::Granted;
use crate::word::state::Origin;

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
    /// The tokens were there; the receipt may be void.
    Granted(
        Granted,
        #[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "it is of a layer"))] Receipt,
    ),
    Waits(LineTicket),
    /// The tokens and the kept part are due after these nanoseconds, and the caller tries again.
    Later(u64),
}

impl Promise {
    /// Returns a grant that is not given back.
    pub(crate) fn granted(granted: Granted) -> Promise {
        Promise::Granted(granted, Receipt::of_origin(Origin::Nowhere, None))
    }
}
