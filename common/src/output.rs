//! The lines that the program prints.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Prints one line at once. It ignores a reader that is gone, where `println!` would panic.
pub fn say(line: Arguments<'_>) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
