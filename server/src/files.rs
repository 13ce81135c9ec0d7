//! The files of a configuration: those that are given, and all of YAML below folders.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::settings::file;

/// The most bytes of a file.
const LARGEST: u64 = 16 << 20;
/// The most paths that are looked at, and the most folders in each other.
const MOST_PATHS: usize = 10_000;
const DEEPEST: usize = 16;
/// The times that files are read which change meanwhile.
const TRIES: usize = 4;

/// The files of the configuration and of the settings, as they are found at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// The paths of the configuration's files, in the order in which they are loaded.
    pub(crate) files: Vec<PathBuf>,
    /// What tells a changed file, of each path that was looked at.
    marks: Vec<(PathBuf, Result<Mark, io::ErrorKind>)>,
    /// There are more paths or folders than are looked at.
    is_cut: bool,
}

/// The length, the number, and the times of a change of the content and of the file.
type Mark = (u64, u64, (i64, i64), (i64, i64));

impl Listing {
    /// Lists the files of a configuration, and others that are not of it.
    pub(crate) fn of<'a>(paths: &[PathBuf], others: impl IntoIterator<Item = &'a Path>) -> Listing {
        let mut listing = Listing::default();
        paths.iter().for_each(|path| listing.add(path, 0));
        for path in others {
            listing.mark(path);
        }
        listing
    }

    fn mark(&mut self, path: &Path) -> Option<fs::Metadata> {
        let found = fs::metadata(path);
        let mark = |file: &fs::Metadata| {
            (file.len(), file.ino(), (file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()))
        };
        self.marks.push((path.to_owned(), found.as_ref().map(mark).map_err(io::Error::kind)));
        found.ok()
    }

    /// Adds a path that is given, or that a folder has.
    fn add(&mut self, path: &Path, depth: usize) {
        if self.marks.len() > MOST_PATHS || depth > DEEPEST {
            self.is_cut = true;
            return;
        }
        match self.mark(path) {
            Some(found) if found.is_dir() => {
                // A folder that cannot be listed is an error of the reader.
                let Ok(entries) = fs::read_dir(path) else { return self.files.push(path.to_owned()) };
                let mut below: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
                below.sort_unstable();
                below.iter().filter(|path| !is_hidden(path)).for_each(|path| self.add(path, depth + 1));
            }
            Some(_) if depth == 0 || is_yaml(path) => self.files.push(path.to_owned()),
            // A path that is given and is not there is an error of the reader.
            None if depth == 0 => self.files.push(path.to_owned()),
            _ => (),
        }
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Reads the files until none changes meanwhile. Returns each path with its text.
pub(crate) fn read(list: impl Fn() -> Listing) -> Result<(Listing, Vec<(String, String)>), String> {
    let text = |path: &PathBuf| Ok((path.display().to_string(), file::read(path, LARGEST)?));
    let mut before = list();
    for _ in 0..TRIES {
        if before.is_cut {
            return Err(format!(
                "more than {MOST_PATHS} paths, or more than {DEEPEST} folders inside each other"
            ));
        }
        let texts: Result<Vec<_>, String> = before.files.iter().map(text).collect();
        let after = list();
        if after == before {
            return Ok((before, texts?));
        }
        before = after;
    }
    Err("the files of the configuration change while they are read".to_owned())
}
