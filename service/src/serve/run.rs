//! The start and the end of the service.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::oneshot;

use super::admin::Pages;
use super::built_in;
use super::counts::bound_of_keys;
use super::environment;
use super::front::{Front, Protocol};
use super::options::ServeOptions;
use super::reload::Source;
use super::reserve::open::bound_of_reservations;
use super::settings::ServeSettings;
use super::shared::{SharedCounts, bound_of_known};
use super::sources;
use super::state::{Condition, Service};
use super::xds::client::follow;
use super::xds::plane::ControlPlane;
use crate::files::Listing;
use tollgate_common::admin;
use tollgate_common::log::LogHandle;
use tollgate_common::net::files::open_files_limit;
use tollgate_common::net::serving;
use tollgate_common::net::signals::{Stops, caught};
use tollgate_common::net::socket::Listener;
use tollgate_common::net::tls::Tls;
use tollgate_common::output::say;
use tollgate_common::settings::values::Address;
use tollgate_common::state_file::{Saver, StateFile, Writer};

/// The most connections of a listener.
const CONNECTIONS: usize = 10_000;
/// From one sweep of keys to the next.
const SWEEP: Duration = Duration::from_secs(1);
/// The files of the process that are no connection of a client.
const OWN_FILES: usize = 64 + admin::SOCKETS;

/// Serves until a stop signal. Returns `true` if each request was answered, and `false` if some
/// were cut. An error is one sentence.
pub(crate) async fn run(mut options: ServeOptions) -> Result<bool, String> {
    // The signals are caught before the first line is printed: its reader may send a signal at
    // once.
    let (mut stops, hangups) = (Stops::caught()?, caught(SignalKind::hangup())?);
    let environment = sources::environment_of_process();
    let mut settings = sources::load(&options, &environment)?;
    let has_variable = environment::of_runtime(&environment).next().is_some();
    if built_in::is_served(&options, &settings, has_variable) {
        options.is_built_in = true;
        settings = sources::load(&options, &environment)?;
    }
    let is_built_in = options.is_built_in;
    let has_plane = settings.xds.is_used;
    if let (true, Some(path)) = (has_plane, options.paths.first()) {
        let (path, server) = (path.display(), &settings.xds.server);
        return Err(format!(
            "the rules are those of {path} or of the control plane {server}, and not of both"
        ));
    }
    let has_store = settings.store.url.is_some();
    let warnings = environment::check(&environment, has_store, has_plane, &settings.store.notes)?;
    let log = LogHandle::start(settings.log_json, settings.log_level);
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let tls = settings.tls().map(|(files, clients)| Tls::read_for(&files, clients.as_ref()));
    let tls = tls.transpose()?.map(Arc::new);
    let (file, saved) = settings.state.as_deref().map(StateFile::open).transpose()?.unzip();
    let mut saved = saved.unwrap_or_default();
    let mut service = Service::new(settings.clone(), &mut saved);
    service.origin = file.as_ref().map_or(service.origin, StateFile::origin);
    if settings.store.url.is_some() {
        let shared = SharedCounts::open(&settings.store, settings.max_keys, &service.counts.options.clock)?;
        shared.warm().await;
        service.shared = Some(shared);
    }
    service.control_plane = has_plane.then(|| Arc::new(ControlPlane::new(settings.xds.clone())));
    let service = Arc::new(service);
    let source = Arc::new(Source::new(options, environment, service.clone(), tls.clone(), log));
    // A service that is healthy only with a domain shows that there is no file.
    let waits = settings.needs_domain && Listing::of(&settings.paths, []).files.is_empty();
    if let Some(plane) = &service.control_plane {
        tokio::spawn(follow(source.clone(), plane.clone()));
        if !settings.starts_without {
            tracing::info!("waiting for the first configuration of {}", plane.settings.server);
            tokio::select! {
                () = plane.until(|status| status.accepted > 0) => (),
                () = stops.next() => return Ok(true),
            }
        }
    } else if settings.starts_without || waits {
        // The outcome is logged.
        let _ = source.reload();
    } else {
        source.load()?;
    }
    if let Some(file) = &file {
        file.restore(saved, |part| service.counts.restore(part));
        file.tell(service.counts.keys());
    }
    let fronts = bind(&settings, &service, tls)?;
    let (listener, address) = admin::bind(settings.admin).await?;
    say(format_args!("debug pages on http://{address}/"));
    match settings.store.told() {
        None => say(format_args!("{}", bound_of_keys(settings.max_keys))),
        Some(told) => say(format_args!("{told}\n{}", bound_of_known(settings.max_keys))),
    }
    say(format_args!("{}", bound_of_reservations(settings.reservations.most)));
    if is_built_in {
        // gRPC is the first, and HTTP the second.
        if let Some(Address::Tcp(http)) = fronts.get(1).map(|(_, listener)| listener.address()) {
            built_in::commands(*http).iter().for_each(|line| say(format_args!("{line}")));
        }
    }
    tokio::spawn(admin::serve(listener, Pages(source.clone())));
    tokio::spawn(service.clone().lapse_each());
    tokio::spawn(reload_at_each(hangups, source.clone()));
    source.watch().map_err(|error| format!("cannot start threads: {error}"))?;
    sweep_each(SWEEP, service.clone()).map_err(|error| format!("cannot start threads: {error}"))?;
    let counted = service.clone();
    let merged = service.clone();
    let saver = file.map(|file| {
        let save = move |to: &mut Writer| counted.counts.save(to);
        file.save_each(settings.state_interval, save, move |parts| merged.counts.merge(parts))
    });
    let saver = saver.transpose()?;
    let whole = serve(stops, &service, fronts).await;
    service.lapse_all().await;
    if let Some(shared) = &service.shared {
        shared.shutdown().await;
    }
    saver.into_iter().for_each(Saver::end);
    Ok(whole)
}

/// Forgets keys after each interval, until the process ends.
fn sweep_each(interval: Duration, service: Arc<Service>) -> io::Result<()> {
    let sweep = move || loop {
        let began = Instant::now();
        service.counts.sweep();
        if let Some(shared) = &service.shared {
            shared.sweep();
        }
        // Of many keys it takes a while: at most a tenth of one processor.
        thread::sleep(interval.max(began.elapsed() * 10));
    };
    thread::Builder::new().name("keys".to_owned()).spawn(sweep).map(drop)
}

/// Listens at all addresses, and prints them.
fn bind(
    settings: &ServeSettings,
    service: &Arc<Service>,
    tls: Option<Arc<Tls>>,
) -> Result<Vec<(Arc<Front>, Listener)>, String> {
    let mut addresses =
        vec![(Protocol::Grpc, settings.grpc()), (Protocol::Http, Address::Tcp(settings.http))];
    addresses.extend(settings.prometheus().map(|at| (Protocol::Prometheus, Address::Tcp(at))));
    let each = (open_files_limit().saturating_sub(OWN_FILES) / addresses.len()).clamp(1, CONNECTIONS);
    let mut fronts = Vec::new();
    for (protocol, at) in addresses {
        let listener = Listener::bind(&at)?;
        let (name, tls) = match protocol {
            Protocol::Grpc => ("gRPC", tls.clone()),
            Protocol::Http => ("HTTP", None),
            Protocol::Prometheus => ("Prometheus", None),
        };
        say(format_args!("{name} on {}", listener.address()));
        fronts.push((Front::new(service, protocol, tls, each)?, listener));
    }
    Ok(fronts)
}

async fn serve(stops: Stops, service: &Service, fronts: Vec<(Arc<Front>, Listener)>) -> bool {
    let (mut stop, mut serving) = (Vec::new(), tokio::task::JoinSet::new());
    for (front, listener) in fronts {
        let (sender, stopped) = oneshot::channel();
        stop.push(sender);
        serving.spawn(serving::serve(front, listener, stopped));
    }
    let begin = || -> Duration {
        service.health.send_replace(Condition::Stopping);
        service.in_force().settings.lame_duck
    };
    let all = async { serving.join_all().await.into_iter().all(|whole| whole) };
    let stop = || stop.into_iter().for_each(|sender| sender.send(()).unwrap_or_default());
    stops.end(all, begin, stop).await.unwrap_or(false)
}

async fn reload_at_each(mut hangups: Signal, source: Arc<Source>) {
    while hangups.recv().await.is_some() {
        let source = source.clone();
        // The outcome is logged.
        let _ = tokio::task::spawn_blocking(move || source.reload()).await;
    }
}
