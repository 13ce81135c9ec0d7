//! The file of a server's state: named parts, for the next process.
//!
//! *Invariant:* the file is a whole one at any time, because a save is written beside it and then
//! renamed. Each process writes under a name of its own. So two processes with one file never mix:
//! the last rename wins.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use siphasher::sip::SipHasher13;

/// The begin of each file, before its version.
const MAGIC: &[u8] = b"tollgate state ";
const VERSION: u8 = b'1';
/// The name of the part that has the secret of the keys' hasher. That of a limiter has more words.
const SECRET: &str = "secret";

/// The saved state of a limiter, or of something else that is named.
pub(crate) struct SavedPart {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// Takes the secret of the keys' hasher out of the parts of a file.
pub(crate) fn take_secret(parts: &mut Vec<SavedPart>) -> Option<[u8; 16]> {
    let place = parts.iter().position(|part| part.name == SECRET)?;
    parts.remove(place).bytes.try_into().ok()
}

/// The place of the file.
pub(crate) struct StateFile {
    path: PathBuf,
    /// The file of a save that is not yet whole.
    new: PathBuf,
}

impl StateFile {
    pub(crate) fn new(path: &Path) -> StateFile {
        let own = RandomState::new().hash_one(0);
        StateFile { path: path.to_owned(), new: beside(path, &format!(".new-{own:016x}")) }
    }

    /// Returns the parts of the file. One that cannot be used is a warning, is kept aside, and has
    /// no parts.
    pub(crate) fn read(&self) -> Vec<SavedPart> {
        let why = match fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
            Ok(found) if !found.is_file() => return self.warn("no state is restored: it is no file"),
            _ => match fs::read(&self.path).map_err(|error| error.to_string()).and_then(|it| parse(&it)) {
                Ok(parts) => return parts,
                Err(why) => why,
            },
        };
        let aside = beside(&self.path, ".bad");
        let fate = match fs::rename(&self.path, &aside) {
            Ok(()) => format!("it is kept as {}", aside.display()),
            Err(error) => format!("it cannot be renamed: {error}"),
        };
        self.warn(&format!("no state is restored: {why}; {fate}"))
    }

    /// Gives each part to its limiter, the last one first. One that is refused is a warning.
    ///
    /// A limiter is written after the ones that it has replaced. If it takes the parts of both, it
    /// has room for its own.
    pub(crate) fn restore(&self, parts: Vec<SavedPart>, to: impl Fn(&SavedPart) -> Result<(), String>) {
        for part in parts.into_iter().rev() {
            if let Err(why) = to(&part) {
                self.warn(&format!("the state of `{}` is not restored: {why}", part.name));
            }
        }
    }

    fn warn(&self, what: &str) -> Vec<SavedPart> {
        tracing::warn!("{}: {what}", self.path.display());
        Vec::new()
    }

    /// Saves after each interval, and at the end of the saver, on a thread of its own. A save that
    /// fails is a warning, and leaves the former file as it is.
    pub(crate) fn save_each(
        self,
        interval: Duration,
        parts: impl Fn(&mut Writer) -> io::Result<()> + Send + 'static,
    ) -> Result<Saver, String> {
        let (end, ended) = mpsc::channel();
        let save = move || loop {
            let is_end = ended.recv_timeout(interval) != Err(RecvTimeoutError::Timeout);
            if let Err(error) = self.save(&parts) {
                self.warn(&format!("the state is not saved: {error}"));
            }
            if is_end {
                return;
            }
        };
        let thread = thread::Builder::new().name("state".to_owned()).spawn(save);
        let thread = thread.map_err(|error| format!("cannot start threads: {error}"))?;
        Ok(Saver { end, thread })
    }

    fn save(&self, parts: impl Fn(&mut Writer) -> io::Result<()>) -> io::Result<()> {
        // Neither a folder nor a device is replaced.
        if fs::metadata(&self.path).is_ok_and(|found| !found.is_file()) {
            return Err(io::Error::other("it is no file"));
        }
        let renamed = self.write(parts).and_then(|()| fs::rename(&self.new, &self.path));
        if let Err(error) = renamed {
            // A part of a state takes room until the next try.
            let _ = fs::remove_file(&self.new);
            return Err(error);
        }
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Writes the new file, which only its owner can read: it may have a secret.
    fn write(&self, parts: impl Fn(&mut Writer) -> io::Result<()>) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.new)?;
        let mut to = Writer { file, sum: SipHasher13::new() };
        to.write(MAGIC)?;
        to.write(&[VERSION])?;
        parts(&mut to)?;
        to.write(&to.sum.finish().to_le_bytes())?;
        to.file.sync_all()
    }
}

/// A new file, and the check sum of its bytes.
pub(crate) struct Writer {
    file: File,
    sum: SipHasher13,
}

impl Writer {
    /// Writes the secret of the keys' hasher.
    pub(crate) fn put_secret(&mut self, secret: &[u8; 16]) -> io::Result<()> {
        self.put(SECRET, secret)
    }

    pub(crate) fn put(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        for bytes in [name.as_bytes(), bytes] {
            self.write(&(bytes.len() as u64).to_le_bytes())?;
            self.write(bytes)?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.write(bytes);
        self.file.write_all(bytes)
    }
}

/// The thread that saves.
pub(crate) struct Saver {
    end: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Saver {
    /// Saves a last time.
    pub(crate) fn end(self) {
        drop(self.end);
        // Its panic has been printed.
        let _ = self.thread.join();
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Reads the parts of a whole file. The error says why it is none.
fn parse(bytes: &[u8]) -> Result<Vec<SavedPart>, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it is no state of this program")?;
    let version = *rest.first().ok_or("it is cut")?;
    if version != VERSION {
        let [version, own] = [version, VERSION].map(|byte| byte.escape_ascii());
        return Err(format!("it has version {version}, and this program reads version {own}"));
    }
    let mut sum = SipHasher13::new();
    let damaged = || "it is cut or damaged: its check sum is another one".to_owned();
    let (whole, told) = bytes.split_last_chunk().ok_or_else(damaged)?;
    sum.write(whole);
    if sum.finish() != u64::from_le_bytes(*told) {
        return Err(damaged());
    }
    let mut rest = whole.get(MAGIC.len() + 1..).ok_or_else(damaged)?;
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let [name, bytes] = [text(&mut rest), text(&mut rest)];
        let name = String::from_utf8(name.ok_or_else(damaged)?.to_vec()).map_err(|_| damaged())?;
        parts.push(SavedPart { name, bytes: bytes.ok_or_else(damaged)?.to_vec() });
    }
    Ok(parts)
}

/// Cuts a text off, which has its length before it.
fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk()?;
    let (text, after) = after.split_at_checked(u64::from_le_bytes(*length).try_into().ok()?)?;
    *rest = after;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(parts: &[SavedPart]) -> Vec<(&str, &[u8])> {
        parts.iter().map(|part| (&*part.name, &*part.bytes)).collect()
    }

    fn folder() -> (tempfile::TempDir, StateFile) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = StateFile::new(&folder.path().join("state"));
        (folder, file)
    }

    const PARTS: [(&str, &[u8]); 3] = [("a | 5/s", b"12345678"), ("", b""), ("b", &[0; 40])];

    fn put_all(to: &mut Writer) -> io::Result<()> {
        PARTS.iter().try_for_each(|(name, bytes)| to.put(name, bytes))
    }

    #[test]
    fn a_file_that_is_cut_or_damaged_has_no_part_and_is_kept_aside() {
        let (folder, file) = folder();
        assert!(file.read().is_empty(), "there is no file");
        file.save(put_all).expect("it is saved");
        assert_eq!(names(&file.read()), PARTS);
        let whole = fs::read(&file.path).expect("it is there");
        for length in 0..whole.len() {
            assert!(parse(&whole[..length]).is_err(), "{length} bytes of it");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(parse(&damaged).is_err(), "byte {at}");
        }
        assert_eq!(
            parse(b"tollgate state 2").err().as_deref(),
            Some("it has version 2, and this program reads version 1")
        );
        fs::write(&file.path, &whole[1..]).expect("it is written");
        assert!(file.read().is_empty());
        assert_eq!(fs::read(folder.path().join("state.bad")).expect("it is kept"), &whole[1..]);
        assert!(!file.path.exists());
    }

    /// A check sum that is right says nothing about the lengths.
    #[test]
    fn lengths_beyond_the_end_are_no_parts() {
        for text in [&[0; 7][..], &[255; 16], &[1, 0, 0, 0, 0, 0, 0, 0, b'a']] {
            let mut bytes = [MAGIC, &[VERSION], text].concat();
            let mut sum = SipHasher13::new();
            sum.write(&bytes);
            bytes.extend(sum.finish().to_le_bytes());
            assert!(parse(&bytes).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_save_that_fails_leaves_the_former_file_and_nothing_else() {
        let (folder, file) = folder();
        file.save(put_all).expect("it is saved");
        let is_full = |to: &mut Writer| to.put("c", b"3").and(Err(ErrorKind::StorageFull.into()));
        assert_eq!(file.save(is_full).map_err(|error| error.kind()), Err(ErrorKind::StorageFull));
        assert_eq!(names(&file.read()), PARTS);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        // A folder of this name is neither read nor moved.
        let other = StateFile::new(folder.path());
        assert!(other.read().is_empty() && other.save(put_all).is_err() && file.path.exists());
    }

    /// The first save is under way while the second one is made.
    #[test]
    fn two_savers_of_one_file_do_not_mix() {
        let (_folder, file) = folder();
        let other = StateFile::new(&file.path);
        let between = |to: &mut Writer| {
            to.put("first", b"1")?;
            other.save(put_all)?;
            assert_eq!(names(&file.read()), PARTS);
            to.put("last", b"2")
        };
        file.save(between).expect("it is saved");
        assert_eq!(names(&other.read()), [("first", &b"1"[..]), ("last", b"2")]);
    }
}
