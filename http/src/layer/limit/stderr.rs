//! Reports of faults on stderr.

use std::io::{self, Write};

use crate::request::check::Check;

/// Writes one line.
pub(crate) fn report(policy: &str, check: Check) {
    // A closed stderr is no reason to fail a request, and `eprintln!` would panic.
    let _ = writeln!(
        io::stderr(),
        "tollgate: limit \"{policy}\": {check}. Said once; `.silence(Check::{check:?})` silences it, docs/checks.md \
         of tollgate-http explains it."
    );
}
