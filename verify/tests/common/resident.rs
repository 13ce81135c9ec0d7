//! The resident size of this process.

use std::fs;

/// Returns the resident bytes of the process, or `None` where the system does not tell.
pub(crate) fn resident() -> Option<i64> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: i64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}
