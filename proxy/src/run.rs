//! A reverse proxy that limits each client.
//!
//! The order of a request: `net` (PROXY header, TLS), `serve` (HTTP), `limits` (its limit),
//! `forward` (a place, an upstream), and back through its bodies.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::signal::unix::SignalKind;

use crate::admin::page::Page;
use crate::config::describe::describe;
use crate::config::options::{self, Options};
use crate::config::settings::Settings;
use crate::limits::hasher::KeyHasher;
use crate::limits::in_force::Limits;
use crate::limits::store::Fleet;
use crate::limits::tally::Sums;
use crate::serve::connections::Proxy;
use crate::serve::reload::Reload;
use crate::serve::sockets::Sockets;
use crate::serve::{demo, introduce};
use tollgate_common::admin;
use tollgate_common::log::LogHandle;
use tollgate_common::net::serving;
use tollgate_common::net::signals::{Stops, caught};
use tollgate_common::net::socket::Listener;
use tollgate_common::net::tls::Tls;
use tollgate_common::output::say;
use tollgate_common::state_file::{self, SavedPart, Saver, StateFile};

/// Serves until a stop signal. Returns `true` if each request was answered, and `false` if some
/// were cut. An error is one sentence.
pub(crate) async fn run(options: Options) -> Result<bool, String> {
    // The signals are caught before the first line is printed: its reader may send a signal at
    // once. From then on they do not end the process by themselves.
    let (stops, hangups) = (Stops::caught()?, caught(SignalKind::hangup())?);
    let settings = options::load(&options)?;
    options::check_upstream(&options, &settings)?;
    let log = LogHandle::start(settings.log.json, tracing::Level::INFO);
    let tls = settings.tls.as_ref().map(Tls::read).transpose();
    let tls = tls.map_err(|why| options::in_tls(&options, why))?.map(Arc::new);
    let mut state = settings.state.as_deref().map(StateFile::open).transpose()?;
    let fleet = Fleet::open(settings.store.as_ref(), None)?;
    if let Some(fleet) = &fleet {
        fleet.clone().prepare().await;
    }
    let listener = Listener::bind(&settings.listen)?;
    let admin = match &settings.admin {
        Some(admin) => Some(admin::bind(admin.at).await?),
        None => None,
    };
    let (demo, each) = match settings.upstreams.first() {
        Some(upstream) => (upstream.clone(), 1),
        // An upstream in this process takes two of its sockets for each connection.
        None => (demo::start().await.map_err(|e| format!("cannot start an upstream: {e}"))?, 2),
    };
    let sockets = Sockets::new(admin.as_ref().map_or(0, |_| admin::SOCKETS), each);
    for line in introduce::introduction(&settings, listener.address(), &demo) {
        say(format_args!("{line}"));
    }
    let interval = settings.state_interval;
    let limits = restored(&settings, fleet, state.as_mut())?;
    let file = state.map(|(file, _)| file);
    let proxy = Arc::new(Proxy::new(settings, limits.clone(), listener.address(), &demo, tls, &sockets)?);
    let merge = |_| tracing::warn!("another process saves its limits there as well: the last one wins");
    let saver = file.map(|file| file.save_each(interval, move |to| limits.save(to), merge)).transpose()?;
    let changing = Mutex::default();
    let reload = Arc::new(Reload { options, proxy: proxy.clone(), demo, sockets, log, changing });
    let ready = Arc::new(AtomicBool::new(true));
    if let Some((listener, address)) = admin {
        say(format_args!("admin page on http://{address}/, and /metrics"));
        tokio::spawn(admin::serve(listener, Page::new(reload.clone(), ready.clone())));
    }
    tokio::spawn(report_every_second(proxy.limits.clone()));
    tokio::spawn(reload.at_each(hangups));
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let begin = || {
        ready.store(false, Relaxed);
        proxy.settings().timeouts.lame_duck
    };
    let serving = async {
        let whole = serving::serve(proxy.clone(), listener, stopped).await;
        proxy.limits.give_back().await;
        whole
    };
    let whole = stops.end(serving, begin, || stop.send(()).unwrap_or_default()).await;
    saver.into_iter().for_each(Saver::end);
    if let Some(whole) = whole {
        return Ok(whole);
    }
    // A client that has its whole answer was not cut.
    proxy.connections.step().await;
    Ok(proxy.forward.under_way() == 0)
}

/// Returns the limits as the file of the state has them, if there is one.
fn restored(
    settings: &Settings,
    fleet: Option<Fleet>,
    state: Option<&mut (StateFile, Vec<SavedPart>)>,
) -> Result<Arc<Limits>, String> {
    let Some((file, saved)) = state else {
        return Ok(Arc::new(Limits::new(settings, fleet, KeyHasher::new())?));
    };
    let limits = Limits::new(settings, fleet, KeyHasher::of_saved(saved))?;
    file.restore(std::mem::take(saved), |part| limits.restore(part));
    file.tell(limits.keys());
    Ok(Arc::new(limits))
}

/// Prints the meaning of the settings, or returns the first mistake as one sentence.
pub(crate) fn check(options: &Options) -> Result<bool, String> {
    let settings = options::load(options)?;
    options::check_upstream(options, &settings)?;
    settings.tls.as_ref().map(Tls::read).transpose().map_err(|why| options::in_tls(options, why))?;
    settings.state.as_deref().map(state_file::check).transpose()?;
    say(format_args!("{}", describe(&settings).trim_end()));
    Ok(true)
}

/// Prints a line for each second with a decision.
async fn report_every_second(limits: Arc<Limits>) {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    // The sums begin at 0, not at the start of this task: a request may have been decided by then.
    let mut before = Sums::default();
    loop {
        seconds.tick().await;
        let in_force = limits.in_force();
        let now = in_force.tally.sums();
        let second = now.since(before);
        before = now;
        if second.granted + second.refused > 0 {
            let refused = if in_force.shadow { "would be refused" } else { "refused" };
            let keys = limits.keys();
            say(format_args!("granted {}, {refused} {}, keys {keys}", second.granted, second.refused));
        }
    }
}
