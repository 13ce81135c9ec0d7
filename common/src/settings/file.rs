//! A file of settings or rules: its text, and the spots of mistakes in it.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// The most bytes of a file of settings.
pub const MOST: u64 = 1 << 20;

/// Opens a file for reading, and waits for no writer. A pipe, a socket and a device are refused by
/// their kind.
pub fn open(path: &Path) -> io::Result<File> {
    // Before the open, because that of some devices has an effect.
    check_kind(&fs::metadata(path)?)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    // Another thing may have taken the name since.
    check_kind(&file.metadata()?)?;
    Ok(file)
}

/// Refuses what is no file, by its kind.
pub fn check_kind(found: &Metadata) -> io::Result<()> {
    let kind = found.file_type();
    let told = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a named pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(io::Error::other(format!("it is {told}, and no file")))
}

/// Returns whether a path is a descriptor that was handed to this process, as a shell does for `|`
/// and `<(...)`. Its writer is there, so a read comes to an end.
fn is_handed(path: &Path) -> bool {
    ["/dev/stdin", "/dev/fd", "/proc/self/fd"].iter().any(|begin| path.starts_with(begin))
}

/// Reads the bytes of a file that has `most` bytes or fewer.
pub fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = if is_handed(path) { File::open(path)? } else { open(path)? };
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::other(format!("it is over the bound of {most} bytes"))),
        false => Ok(bytes),
    }
}

/// Reads the text of a file that has `most` bytes or fewer.
pub fn read(path: &Path, most: u64) -> Result<String, String> {
    let bytes = bytes(path, most).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    String::from_utf8(bytes).map_err(|error| {
        let (at, before) = (error.utf8_error().valid_up_to(), String::from_utf8_lossy(error.as_bytes()));
        spot(path, &before, at, "a byte that is not UTF-8")
    })
}

/// Refuses a file that names no setting, or that may have been cut.
pub fn check(path: &Path, text: &str) -> Result<(), String> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim().starts_with('#')) {
        return Err(spot(path, text, 0, "the file is empty: no setting is named"));
    }
    // Or `cost = 1` might be the beginning of `cost = 10`.
    if !text.ends_with('\n') {
        let what = "the last line does not end with a newline: the file may have been cut";
        return Err(spot(path, text, text.len(), what));
    }
    Ok(())
}

/// `FILE:LINE:COLUMN: ...` for a byte of the text. Columns are counted in characters.
pub fn spot(path: &Path, text: &str, at: usize, what: &str) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line_begins = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = 1 + before.matches('\n').count();
    let column = 1 + before[line_begins..].chars().count();
    // A name in the file may have commands to a terminal.
    let printable = |char: char| match char.is_control() {
        true => char.escape_default().to_string(),
        false => char.to_string(),
    };
    format!("{}:{line}:{column}: {}", path.display(), what.chars().map(printable).collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_pipe_of_a_shell_is_read_and_a_named_one_is_refused() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"text").unwrap();
        drop(writer);
        let handed = format!("/dev/fd/{}", reader.as_raw_fd());
        assert_eq!(read(Path::new(&handed), 4).as_deref(), Ok("text"));
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&named).status().unwrap().success());
        // Also behind a link.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&named, &link).unwrap();
        for path in [named, link] {
            let told = format!("cannot read {}: it is a named pipe, and no file", path.display());
            assert_eq!(read(&path, 4), Err(told));
        }
    }
}
