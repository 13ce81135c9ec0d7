//! The windows in which a store granted tokens.

use std::collections::BTreeSet;
use std::sync::Mutex;

use tollgate_distributed::Op;

/// The keys, and the ends of the windows in which a store granted their tokens, in microseconds
/// since 1970.
pub(crate) type Granted = BTreeSet<(u64, u64)>;

/// Returns the number of a key, if it is that of a limiter of numbers.
pub(crate) fn number(key: &[u8]) -> Option<u64> {
    std::str::from_utf8(key).ok()?.rsplit_once(':')?.1.parse().ok()
}

/// Notes the windows of the answers to a call.
pub(crate) fn note(windows: &Mutex<Granted>, ops: &[Op<'_>]) {
    let granted = ops.iter().filter(|op| op.answer.granted > 0 && op.answer.edge_us > 0);
    windows.lock().unwrap().extend(granted.filter_map(|op| Some((number(op.key)?, op.answer.edge_us))));
}
