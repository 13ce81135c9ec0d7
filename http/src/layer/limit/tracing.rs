//! Reports of faults as events.

use crate::request::check::Check;

/// Emits one event of level `WARN`.
pub(crate) fn report(policy: &str, check: Check) {
    tracing::warn!(target: "tollgate", policy, code = check.code(), "{check}");
}
