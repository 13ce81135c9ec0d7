//! The configuration: read at the start, when its files change, and when it is asked for.
//!
//! The paths are listed four times a second, through symlinks. A change is read once the listing is
//! the same twice, so that a file that is being written is not read. The rules of a control plane
//! are put in force as they come. A configuration holds as a whole or not at all.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::built_in;
use super::environment;
use super::loaded::LoadedRules;
use super::options::ServeOptions;
use super::settings::ServeSettings;
use super::sources;
use super::state::{Configured, Files, Service};
use super::xds::update::Update;
use crate::files::{Listing, read};
use crate::rules::error::bounded;
use crate::rules::load::{LoadOptions, Loaded, MOST_TOLD, load_all};
use tollgate_common::log::LogHandle;
use tollgate_common::net::tls::Tls;
use tollgate_common::settings::error::few;

/// From one look at the paths to the next.
const PERIOD: Duration = Duration::from_millis(250);
/// The most bytes of a line of the log about a configuration.
const MOST_LOGGED: usize = 16 << 10;

/// The source of the configuration, and its service.
pub(crate) struct Source {
    pub(super) options: ServeOptions,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) service: Arc<Service>,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) log: LogHandle,
    read: Mutex<LastRead>,
}

/// The part of the source that was read last.
#[derive(Default)]
struct LastRead {
    listing: Listing,
    /// The rules of the control plane. A reload keeps them.
    update: Option<Update>,
    /// The update that was refused last, with the reason. Under other settings it may be right.
    refused: Option<(Update, String)>,
}

/// The reason why an update is not in force.
#[derive(Debug)]
pub(super) struct UpdateRefusal {
    pub(super) why: String,
    /// The same update was refused before, and nothing was read again.
    pub(super) is_repeated: bool,
}

impl UpdateRefusal {
    pub(super) fn new(why: String) -> UpdateRefusal {
        UpdateRefusal { why, is_repeated: false }
    }
}

/// Settings and rules that are in force together, or not at all.
struct Fresh {
    settings: ServeSettings,
    files: Files,
    /// `None` before the first update of a control plane.
    loaded: Option<Loaded>,
    version: String,
    tls: Option<Tls>,
}

impl Source {
    pub(super) fn new(
        options: ServeOptions,
        environment: BTreeMap<String, String>,
        service: Arc<Service>,
        tls: Option<Arc<Tls>>,
        log: LogHandle,
    ) -> Source {
        let mut read = LastRead::default();
        if service.control_plane.is_some() {
            // The files are those of settings, which are read.
            read.listing = listing(&service.in_force().settings);
        }
        Source { options, environment, service, tls, log, read: Mutex::new(read) }
    }

    /// Reads everything again, and logs the outcome. An error changes nothing.
    pub(crate) fn reload(&self) -> Result<(), String> {
        logged(self.load())
    }

    /// Reads everything, and counts the outcome. An error changes nothing.
    pub(super) fn load(&self) -> Result<(), String> {
        let mut read = self.read();
        // What is wrong is not read again before it changes.
        read.listing = listing(&self.service.in_force().settings);
        read.listing = self.counted(self.take(read.update.as_ref()))?;
        read.refused = None;
        Ok(())
    }

    /// Puts an update of the control plane in force under the present settings, counts the outcome
    /// and logs it. An error changes nothing, and neither does an update that is in force or that
    /// was refused last.
    pub(super) fn load_update(&self, update: Update) -> Result<(), UpdateRefusal> {
        let mut read = self.read();
        if read.update.as_ref().is_some_and(|before| before.is_same(&update)) {
            read.refused = None;
            return Ok(());
        }
        if let Some((_, why)) = read.refused.as_ref().filter(|(before, _)| before.is_same(&update)) {
            return Err(UpdateRefusal { why: why.clone(), is_repeated: true });
        }
        if let Err(why) = logged(self.counted(self.take_update(&update))) {
            read.refused = Some((update, why.clone()));
            return Err(UpdateRefusal::new(why));
        }
        (read.update, read.refused) = (Some(update), None);
        Ok(())
    }

    fn read(&self) -> MutexGuard<'_, LastRead> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counted<T>(&self, outcome: Result<T, String>) -> Result<T, String> {
        let statistics = &self.service.counts.statistics;
        match &outcome {
            Ok(_) => statistics.config_loaded(),
            Err(_) => statistics.config_refused(),
        }
        outcome
    }

    /// Puts everything in force as it is read, and returns its listing.
    fn take(&self, update: Option<&Update>) -> Result<Listing, String> {
        let settings = sources::load(&self.options, &self.environment)?;
        let has_plane = self.service.control_plane.is_some();
        if settings.xds.is_used != has_plane {
            return Err("a change from files to a control plane, or back, needs a restart".to_owned());
        }
        let others: Vec<_> = settings.other_files().collect();
        let options = LoadOptions { merge_domains: settings.merges_domains };
        let (listing, loaded) = if has_plane {
            (Listing::of(&[], others), update.map(|update| update.load(options)).transpose()?)
        } else if self.options.is_built_in {
            let text = (built_in::NAME.to_owned(), built_in::LIMITS.to_owned());
            (Listing::of(&[], others), Some(load_all(&[text], options)))
        } else {
            let read = read(&settings.paths, &others).map_err(|why| self.with_variables(why));
            let (listing, files) = read?;
            (listing, Some(load_all(&files, options)))
        };
        let tls = match (&self.tls, settings.tls()) {
            (Some(_), Some((files, clients))) => Some(Tls::read_for(&files, clients.as_ref())?),
            _ => None,
        };
        let files = Files { read: listing.files.len(), unread: listing.unread.clone() };
        let version = update.map(Update::version).unwrap_or_default().to_owned();
        let before = self.service.in_force();
        self.put(Fresh { settings, files, loaded, version, tls })?;
        if listing.unread != before.files.unread
            && let Some(told) = listing.told_unread()
        {
            tracing::warn!("{told}");
        }
        Ok(listing)
    }

    /// Puts an update in force. A fault of the files of settings is none of it, so they are not
    /// read.
    fn take_update(&self, update: &Update) -> Result<(), String> {
        let settings = self.service.in_force().settings.clone();
        let loaded = update.load(LoadOptions { merge_domains: settings.merges_domains })?;
        let is_empty = loaded.rules.is_empty() && loaded.errors.is_empty();
        let (files, version) = (Files::default(), update.version().to_owned());
        self.put(Fresh { settings, files, loaded: Some(loaded), version, tls: None })?;
        if is_empty {
            tracing::warn!("the control plane has sent no configuration, so nothing is limited");
        }
        Ok(())
    }

    /// Puts settings and rules in force, or neither.
    fn put(&self, Fresh { settings, files, loaded, version, tls }: Fresh) -> Result<(), String> {
        let before = self.service.in_force();
        let (mut warnings, mut lost, mut rules) = (Vec::new(), Vec::new(), None);
        if let Some(loaded) = loaded {
            if !loaded.errors.is_empty() {
                return Err(few(loaded.errors.iter(), MOST_TOLD, "\n"));
            }
            let gone = |before: &LoadedRules| {
                before.rules.lost(&loaded.rules).into_iter().map(str::to_owned).collect()
            };
            lost = before.loaded.as_ref().map_or(Vec::new(), gone);
            warnings = loaded.warnings;
            self.service.check_shared(&loaded.rules)?;
            rules = Some(self.service.counts.load(loaded.rules)?);
        }
        // Nothing fails from here on.
        if !warnings.is_empty() {
            tracing::warn!("{}", bounded(&few(warnings.iter(), MOST_TOLD, "\n"), MOST_LOGGED));
        }
        if !lost.is_empty() {
            let names = few(lost.iter(), MOST_TOLD, ", ");
            tracing::warn!("limits that are gone ({}): {}", lost.len(), bounded(&names, MOST_LOGGED));
        }
        let waiting = settings.needing_restart(&before.settings);
        if !waiting.is_empty() {
            tracing::warn!("changes that need a restart: {}", waiting.join(", "));
        }
        if let (Some(tls), Some(by)) = (&self.tls, tls) {
            tls.replace(by);
        }
        self.log.set_format(settings.log_json);
        self.service.set(Configured { settings, files, loaded: rules, version });
        Ok(())
    }

    /// Adds the variables that a path came from to an error about it.
    fn with_variables(&self, why: String) -> String {
        if !self.options.paths.is_empty() {
            return why;
        }
        let given = environment::of_runtime(&self.environment).map(|(name, value)| format!("{name}={value}"));
        let given = given.collect::<Vec<_>>().join(", ");
        match given.is_empty() {
            true => format!("{why}: no PATH is given, and no RUNTIME_ROOT"),
            false => format!("{why}: the path is that of {given}"),
        }
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
        let is_read = source.read().listing == now;
        let before = std::mem::replace(&mut self.0, now);
        !is_read && before == self.0
    }
}

/// Logs the outcome of a load, in the words of envoyproxy/ratelimit.
fn logged(outcome: Result<(), String>) -> Result<(), String> {
    match &outcome {
        Ok(()) => tracing::info!("Successfully loaded new configuration"),
        Err(why) => {
            tracing::error!("Error loading new configuration from runtime: {}", bounded(why, MOST_LOGGED));
        }
    }
    outcome
}

fn listing(settings: &ServeSettings) -> Listing {
    Listing::of(&settings.paths, settings.other_files())
}
