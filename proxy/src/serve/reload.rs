//! New settings for a proxy that is running.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::signal::unix::Signal;
use tollgate::AnyRule;

use super::connections::Proxy;
use super::sockets::Sockets;
use crate::config::options::{self, Options};
use crate::config::settings::{Settings, Upstream};
use crate::counters::Event;
use crate::limits::store::Fleet;
use tollgate_common::log::LogHandle;
use tollgate_common::net::tls::Tls;
use tollgate_common::output::say;

/// The parts of the proxy that settings change, and the sources of settings.
pub(crate) struct Reload {
    pub(crate) options: Options,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) demo: Upstream,
    pub(crate) sockets: Sockets,
    pub(crate) log: LogHandle,
    /// The lock that a change of the settings, and so of the limits, holds.
    pub(crate) changing: Mutex<()>,
}

impl Reload {
    /// Reads the file and the certificate again at each hangup, and prints each change.
    pub(crate) async fn at_each(self: Arc<Self>, mut hangups: Signal) {
        while hangups.recv().await.is_some() {
            let reload = self.clone();
            // The read runs on a thread of its own, so a slow disk stops no connection.
            let read = tokio::task::spawn_blocking(move || reload.read_again()).await;
            match read.unwrap_or_else(|error| Err(format!("cannot reload: {error}"))) {
                Ok(lines) => {
                    lines.iter().for_each(|line| say(format_args!("{line}")));
                    say(format_args!("{}", self.read_what()));
                }
                Err(sentence) => {
                    self.proxy.counters.add(Event::ReloadFailed);
                    tracing::error!("{sentence}; all settings stay as they were");
                }
            }
        }
    }

    /// Returns the line that ends a reload.
    fn read_what(&self) -> &'static str {
        match (&self.options.config, &self.proxy.tls) {
            (Some(_), _) => "settings read again",
            (None, Some(_)) => "certificate read again: there is no --config of other settings",
            (None, None) => "nothing read again: there is no --config",
        }
    }

    /// Reads the sources again, and returns a line for each change. An error is one sentence, and
    /// changes nothing.
    fn read_again(&self) -> Result<Vec<String>, String> {
        let before = self.proxy.settings();
        let (mut settings, mut lines) = options::reload(&self.options, &before)?;
        options::check_upstream(&self.options, &settings)?;
        let open = self.proxy.limits.in_force();
        let fleet = Fleet::open(settings.store.as_ref(), open.fleet.as_ref())?;
        let tls = match (&self.proxy.tls, &settings.tls) {
            (Some(tls), Some(files)) => {
                Some((tls, Tls::read(files).map_err(|why| options::in_tls(&self.options, why))?))
            }
            _ => None,
        };
        if let Some(fleet) = fleet.clone().filter(|fleet| open.fleet.as_ref() != Some(fleet)) {
            tokio::spawn(fleet.prepare());
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if settings.limit == before.limit {
            // The admin page may have changed the limit while the file was read.
            settings.limit = self.proxy.settings().limit;
        }
        let changed = self.proxy.limits.replace(&settings, fleet)?;
        // Nothing fails from here on.
        if let Some((tls, by)) = tls {
            tls.replace(by);
        }
        changed.iter().for_each(|_| self.proxy.counters.add(Event::LimitChanged));
        lines.extend(changed);
        self.proxy.connections.clients.set_most(self.sockets.share(settings.bounds.in_flight).0);
        self.proxy.forward.replace(&self.sockets.bounded(&settings), &self.demo);
        self.log.set_format(settings.log.json);
        self.proxy.set(settings);
        Ok(lines)
    }

    /// Changes the default rule of all keys at once, until a file names another one. Returns `None`
    /// if there is no default limit.
    pub(crate) fn set_rule(&self, rule: AnyRule) -> Option<Result<(), String>> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = self.proxy.limits.set_rule(rule);
        if let Some(Ok(())) = outcome {
            self.proxy.counters.add(Event::LimitChanged);
            let settings = Settings { limit: Some(rule), ..(*self.proxy.settings()).clone() };
            self.proxy.set(settings);
        }
        outcome
    }
}
