//! The configuration: read at the start, when its files change, and when it is asked for.
//!
//! The paths are listed four times a second, through symlinks. A change is read once the listing is
//! the same twice, so that a file that is being written is not read. It holds as a whole or not at
//! all.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::options::ServeOptions;
use super::settings::ServeSettings;
use super::sources;
use super::state::{Configured, Service};
use crate::log::LogHandle;
use crate::net::tls::Tls;
use crate::rules::load::{LoadOptions, Loaded, load_all};

/// From one look at the paths to the next.
const PERIOD: Duration = Duration::from_millis(250);
/// The most bytes of a file.
const LARGEST: u64 = 16 << 20;
/// The most files of a configuration, and the most folders in each other.
const MOST_FILES: usize = 10_000;
const DEEPEST: usize = 16;
/// The times that files are read which change meanwhile.
const TRIES: usize = 4;

/// The source of the configuration, and what it is for.
pub(crate) struct Source {
    pub(super) options: ServeOptions,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) service: Arc<Service>,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) log: LogHandle,
    /// The listing that was read last.
    read: Mutex<Listing>,
}

impl Source {
    pub(super) fn new(
        options: ServeOptions,
        environment: BTreeMap<String, String>,
        service: Arc<Service>,
        tls: Option<Arc<Tls>>,
        log: LogHandle,
    ) -> Source {
        Source { options, environment, service, tls, log, read: Mutex::default() }
    }

    /// Reads everything again, and logs the outcome. An error changes nothing.
    pub(crate) fn reload(&self) -> Result<(), String> {
        let outcome = self.load();
        match &outcome {
            Ok(()) => tracing::info!("Successfully loaded new configuration"),
            Err(why) => tracing::error!("Error loading new configuration from runtime: {why}"),
        }
        outcome
    }

    /// Reads everything, and counts the outcome. An error changes nothing.
    pub(super) fn load(&self) -> Result<(), String> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // What is wrong is not read again before it changes.
        *read = listing(&self.service.in_force().settings);
        let (outcome, statistics) = (self.take(), &self.service.counts.statistics);
        match &outcome {
            Ok(_) => statistics.config_loaded(),
            Err(_) => statistics.config_refused(),
        }
        *read = outcome?;
        Ok(())
    }

    /// Puts everything in force as it is read, and returns its listing.
    fn take(&self) -> Result<Listing, String> {
        let settings = sources::load(&self.options, &self.environment)?;
        let (listing, files) = settled(&settings)?;
        let options = LoadOptions { merge_domains: settings.merges_domains };
        let Loaded { rules, errors, warnings } = load_all(&files, options);
        if !errors.is_empty() {
            return Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        }
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let loaded = self.service.counts.load(rules)?;
        if let (Some(tls), Some((files, clients))) = (&self.tls, settings.tls()) {
            tls.replace_for(&files, clients.as_ref())?;
        }
        self.log.set_format(settings.log_json);
        self.service.set(Configured { settings, loaded: Some(loaded) });
        Ok(listing)
    }

    /// Reads at each change, until the process ends.
    pub(super) fn watch(self: Arc<Self>) -> io::Result<()> {
        let mut looks = Looks::default();
        let look = move || loop {
            thread::sleep(PERIOD);
            if looks.is_settled(&self) {
                // The outcome is logged.
                let _ = self.reload();
            }
        };
        thread::Builder::new().name("reload".to_owned()).spawn(look).map(drop)
    }
}

/// The looks at the paths.
#[derive(Default)]
pub(super) struct Looks(Listing);

impl Looks {
    /// Looks again. Returns whether the listing is another one than that which was read, and the
    /// same as at the look before.
    pub(super) fn is_settled(&mut self, source: &Source) -> bool {
        let now = listing(&source.service.in_force().settings);
        let is_read = *source.read.lock().unwrap_or_else(PoisonError::into_inner) == now;
        let before = std::mem::replace(&mut self.0, now);
        !is_read && before == self.0
    }
}

/// The files of the configuration and of the settings, as they are found at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Listing {
    /// The paths of the configuration's files, in the order in which they are loaded.
    files: Vec<PathBuf>,
    /// What tells a changed file, of each path that was looked at.
    marks: Vec<(PathBuf, Result<Mark, io::ErrorKind>)>,
}

/// The length, the number, and the times of a change of the content and of the file.
type Mark = (u64, u64, (i64, i64), (i64, i64));

fn listing(settings: &ServeSettings) -> Listing {
    let mut listing = Listing::default();
    for path in &settings.paths {
        listing.add(path, 0);
    }
    for path in settings.other_files() {
        listing.mark(path);
    }
    listing
}

impl Listing {
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
        if self.marks.len() > MOST_FILES || depth > DEEPEST {
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
fn settled(settings: &ServeSettings) -> Result<(Listing, Vec<(String, String)>), String> {
    let mut before = listing(settings);
    for _ in 0..TRIES {
        let texts: Result<Vec<_>, String> = before.files.iter().map(|path| text(path)).collect();
        let after = listing(settings);
        if after == before {
            return Ok((before, texts?));
        }
        before = after;
    }
    Err("the files of the configuration change while they are read".to_owned())
}

fn text(path: &Path) -> Result<(String, String), String> {
    let at = path.display();
    let cannot_read = |error| format!("cannot read {at}: {error}");
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(cannot_read)?;
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(cannot_read)?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("{at} is over the bound of {LARGEST} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        format!("{at}: error loading config file: byte {} is not UTF-8", error.utf8_error().valid_up_to())
    })?;
    Ok((at.to_string(), text))
}
