//! A clock of the day that is not the system's, for a program and those that it starts.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::program::{find_program, is_installed};

/// A library that a program loads first, compiled by `cc`. The monotonic clock stays.
#[derive(Debug)]
pub struct WrongClock {
    library: PathBuf,
    _folder: TempDir,
}

impl WrongClock {
    /// Compiles the library; `None` without a compiler, and on another system than Linux. Prints a
    /// line then.
    ///
    /// # Errors
    ///
    /// The compiler fails.
    pub fn new() -> io::Result<Option<WrongClock>> {
        if !cfg!(target_os = "linux") || !is_installed("cc", "gcc", &[]) {
            return Ok(None);
        }
        let folder = TempDir::with_prefix("tollgate-clock-")?;
        let (source, library) = (folder.path().join("clock.c"), folder.path().join("clock.so"));
        fs::write(&source, include_str!("clock.c"))?;
        let mut cc = Command::new(find_program("cc", &[]).ok_or(io::ErrorKind::NotFound)?);
        let compiled =
            cc.args(["-shared", "-fPIC", "-O", "-o"]).arg(&library).arg(&source).arg("-ldl").status()?;
        if !compiled.success() {
            return Err(io::Error::other("cc compiles no library"));
        }
        Ok(Some(WrongClock { library, _folder: folder }))
    }

    /// Sets the clock of a program ahead by some seconds, or back by as many below 0.
    pub fn set<'a>(&self, command: &'a mut Command, seconds: i64) -> &'a mut Command {
        command.env("LD_PRELOAD", &self.library).env("CLOCK_AHEAD", seconds.to_string())
    }
}
