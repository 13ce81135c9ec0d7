//! The configuration: read at the start, when its files change, and when it is asked for.
//!
//! The paths are listed four times a second, through symlinks. A change is read once the listing is
//! the same twice, so that a file that is being written is not read. It holds as a whole or not at
//! all.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::built_in;
use super::environment;
use super::options::ServeOptions;
use super::settings::ServeSettings;
use super::sources;
use super::state::{Configured, Files, Service};
use crate::files::{Listing, read};
use crate::rules::load::{LoadOptions, Loaded, MOST_TOLD, load_all};
use tollgate_common::log::LogHandle;
use tollgate_common::net::tls::Tls;
use tollgate_common::settings::error::few;

/// From one look at the paths to the next.
const PERIOD: Duration = Duration::from_millis(250);
/// The source of the configuration, and its service.
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
        let others: Vec<_> = settings.other_files().collect();
        let (listing, files) = if self.options.is_built_in {
            let text = (built_in::NAME.to_owned(), built_in::LIMITS.to_owned());
            (Listing::of(&[], others), vec![text])
        } else {
            read(&settings.paths, &others).map_err(|why| self.with_variables(why))?
        };
        let options = LoadOptions { merge_domains: settings.merges_domains };
        let Loaded { rules, errors, warnings, .. } = load_all(&files, options);
        if !errors.is_empty() {
            return Err(few(errors.iter(), MOST_TOLD, "\n"));
        }
        let tls = match (&self.tls, settings.tls()) {
            (Some(tls), Some((files, clients))) => Some((tls, Tls::read_for(&files, clients.as_ref())?)),
            _ => None,
        };
        let before = self.service.in_force();
        let lost = before.loaded.as_ref().map_or(Vec::new(), |loaded| loaded.rules.lost(&rules));
        self.service.check_shared(&rules)?;
        let loaded = self.service.counts.load(rules)?;
        // Nothing fails from here on.
        if !warnings.is_empty() {
            tracing::warn!("{}", few(warnings.iter(), MOST_TOLD, "\n"));
        }
        if !lost.is_empty() {
            tracing::warn!("limits that are gone ({}): {}", lost.len(), few(lost.iter(), MOST_TOLD, ", "));
        }
        let waiting = settings.needing_restart(&before.settings);
        if !waiting.is_empty() {
            tracing::warn!("changes that need a restart: {}", waiting.join(", "));
        }
        let files = Files { read: listing.files.len(), unread: listing.unread.clone() };
        if files.unread != before.files.unread
            && let Some(told) = listing.told_unread()
        {
            tracing::warn!("{told}");
        }
        if let Some((tls, by)) = tls {
            tls.replace(by);
        }
        self.log.set_format(settings.log_json);
        self.service.set(Configured { settings, files, loaded: Some(loaded) });
        Ok(listing)
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
        let is_read = *source.read.lock().unwrap_or_else(PoisonError::into_inner) == now;
        let before = std::mem::replace(&mut self.0, now);
        !is_read && before == self.0
    }
}

fn listing(settings: &ServeSettings) -> Listing {
    Listing::of(&settings.paths, settings.other_files())
}
