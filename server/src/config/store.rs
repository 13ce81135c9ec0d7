//! The store of a fleet, as a file or the options name it.

use std::convert::Infallible;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use tollgate::Rule;

use super::fault::{Fault, fault};
use super::given::Given;
use super::placed::Placed;
use super::settings::{Outage, Settings, Store, StoreUrl};
use super::shared::{check, counts, window_in_store};
use super::values::{OrNone, Time};

/// The store that the proxies of a fleet share.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct StoreTable {
    /// Share the limits with other proxies by this store; `none` is this process's memory [none]
    #[arg(long = "store", id = "store", value_name = "URL|none")]
    url: Option<Placed<OrNone<StoreUrl>>>,
    /// Proxies of one name share their limits [tollgate]
    #[arg(long = "store-name", id = "store-name", value_name = "NAME")]
    name: Option<Placed<Name>>,
    /// Ask the store for each decision (`exact`), or for leases (`leased`) [leased]
    #[arg(long = "store-mode", id = "store-mode", value_name = "leased|exact")]
    mode: Option<Placed<Mode>>,
    /// The longest wait for an answer of the store [50ms]
    #[arg(long = "store-deadline", id = "store-deadline", value_name = "DURATION")]
    deadline: Option<Placed<Deadline>>,
    /// While the store does not answer: limit by a share (`local`), refuse, or let all pass [local]
    #[arg(long = "store-on-outage", id = "store-on-outage", value_name = "local|deny|allow")]
    on_outage: Option<Placed<Outage>>,
    /// The share of the limits that `local` grants: 1 / n in a fleet of n [1]
    #[arg(long = "store-share", id = "store-share", value_name = "NUMBER")]
    share: Option<Placed<Share>>,
}

/// The name of a fleet.
#[derive(Clone, Debug)]
struct Name(String);

impl FromStr for Name {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Name, &'static str> {
        let known = text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-._".contains(letter));
        let name = (known && (1..=24).contains(&text.len())).then(|| Name(text.to_owned()));
        name.ok_or("expected a name of 1 to 24 letters, digits and -._")
    }
}

/// Whether each decision asks the store.
#[derive(Clone, Copy, Debug)]
struct Mode {
    exact: bool,
}

impl FromStr for Mode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Mode, &'static str> {
        match text {
            "leased" => Ok(Mode { exact: false }),
            "exact" => Ok(Mode { exact: true }),
            _ => Err("expected `leased` or `exact`"),
        }
    }
}

/// The longest wait for an answer.
#[derive(Clone, Copy, Debug)]
struct Deadline(Duration);

impl FromStr for Deadline {
    type Err = String;

    fn from_str(text: &str) -> Result<Deadline, String> {
        let Time(time) = text.parse::<Time<0>>()?;
        let is_within = (Duration::from_millis(1)..=Duration::from_secs(10)).contains(&time);
        is_within
            .then_some(Deadline(time))
            .ok_or_else(|| format!("{text} is out of the bounds of 1ms and 10s"))
    }
}

impl FromStr for Outage {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Outage, &'static str> {
        match text {
            "local" => Ok(Outage::Local),
            "deny" => Ok(Outage::Deny),
            "allow" => Ok(Outage::Allow),
            _ => Err("expected `local`, `deny` or `allow`"),
        }
    }
}

/// A share of the limits.
#[derive(Clone, Copy, Debug)]
struct Share(f64);

impl FromStr for Share {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Share, &'static str> {
        let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0).map(Share);
        share.ok_or("expected a number above 0 and at most 1")
    }
}

/// The engines, each with whether this program has it.
const ENGINES: [(&str, bool); 4] = [
    ("sqlite", cfg!(feature = "sqlite")),
    ("redis", cfg!(feature = "redis")),
    ("postgres", cfg!(feature = "postgres")),
    ("mysql", cfg!(feature = "mysql")),
];

/// Any text: an error here would be told with it, and it may have a password. [`check_url`] comes
/// later.
impl FromStr for StoreUrl {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<StoreUrl, Infallible> {
        Ok(StoreUrl(text.to_owned()))
    }
}

/// Returns the mistake of a URL, without a part of it but its engine.
fn check_url(url: &StoreUrl) -> Result<(), String> {
    const FORM: &str = "expected sqlite:PATH, redis://HOST, postgres://USER@HOST/DATABASE or \
                        mysql://USER@HOST/DATABASE";
    let (engine, rest) = url.0.split_once(':').ok_or(FORM)?;
    let (engine, is_there) = ENGINES.into_iter().find(|(name, _)| *name == engine).ok_or(FORM)?;
    if !is_there {
        return Err(format!("this program was built without {engine}: `--features {engine}` adds it"));
    }
    let place = if engine == "sqlite" { Some(rest) } else { rest.strip_prefix("//") };
    if place.is_none_or(|place| place.is_empty() || place.contains('\0')) {
        return Err(FORM.to_owned());
    }
    check(url)
}

impl StoreUrl {
    /// The same URL, whose file is relative to a folder.
    fn in_folder(&self, folder: &Path) -> StoreUrl {
        match self.0.strip_prefix("sqlite:") {
            Some(path) if !path.starts_with(':') => {
                StoreUrl(format!("sqlite:{}", folder.join(path).display()))
            }
            _ => self.clone(),
        }
    }
}

impl StoreTable {
    /// Sets the store, or turns it off. A path is relative to the folder.
    pub(super) fn apply(&self, to: &mut Option<Store>, folder: &Path) {
        match self.url.as_ref().map(|url| &url.value.0) {
            Some(None) => *to = None,
            Some(Some(url)) => {
                let url = url.in_folder(folder);
                *to = Some(match to.take() {
                    Some(before) => Store { url, ..before },
                    None => Store {
                        url,
                        name: "tollgate".to_owned(),
                        exact: false,
                        deadline: Duration::from_millis(50),
                        on_outage: Outage::Local,
                        share: 1.0,
                    },
                });
            }
            None => {}
        }
        if let Some(store) = to {
            self.apply_others(store);
        }
    }

    fn apply_others(&self, store: &mut Store) {
        if let Some(name) = &self.name {
            store.name.clone_from(&name.value.0);
        }
        store.exact = self.mode.as_ref().map_or(store.exact, |mode| mode.value.exact);
        store.deadline = self.deadline.as_ref().map_or(store.deadline, |deadline| deadline.value.0);
        store.on_outage = self.on_outage.as_ref().map_or(store.on_outage, |policy| policy.value);
        store.share = self.share.as_ref().map_or(store.share, |share| share.value.0);
    }

    /// Returns the first setting that needs a store: its place, and its name as an option.
    fn needy(&self) -> Option<(Option<usize>, &'static str)> {
        let settings = [
            (self.name.as_ref().map(|given| given.at), "--store-name"),
            (self.mode.as_ref().map(|given| given.at), "--store-mode"),
            (self.deadline.as_ref().map(|given| given.at), "--store-deadline"),
            (self.on_outage.as_ref().map(|given| given.at), "--store-on-outage"),
            (self.share.as_ref().map(|given| given.at), "--store-share"),
        ];
        settings.into_iter().find_map(|(at, name)| at.map(|at| (at, name)))
    }
}

/// Checks that the URL is one of an engine that is there, that the store can count all limits, and
/// that no other setting is given without it.
pub(super) fn check_store(file: &Given, options: &Given, settings: &Settings) -> Result<(), Fault> {
    for Placed { value, at } in [&file.store.url, &options.store.url].into_iter().flatten() {
        if let OrNone(Some(url)) = value {
            let name = if at.is_some() { "the store" } else { "--store" };
            check_url(url).map_err(|why| fault(*at, format!("{name}: {why}")))?;
        }
    }
    let Some(store) = &settings.store else {
        let is_off = file.store.url.is_some() || options.store.url.is_some();
        let needy = options.store.needy().or_else(|| file.store.needy().filter(|_| !is_off));
        return match needy {
            Some((None, name)) => Err(fault(None, format!("{name} needs --store"))),
            Some((at, _)) => Err(fault(at, "a store needs its `url`".to_owned())),
            None => Ok(()),
        };
    };
    let can_share = |rule: Rule| match rule {
        Rule::Bucket(quota) => counts(quota, store.exact),
        Rule::Window(window) => Err(window_in_store(window)),
    };
    if let Some(rule) = settings.limit {
        let given = options.limit.as_ref().or(file.limit.as_ref());
        can_share(rule).map_err(|what| fault(given.and_then(|given| given.at), what))?;
    }
    for route in &settings.routes {
        let at = file.limit_of(&route.name);
        can_share(route.rule).map_err(|what| fault(at, format!("the route {:?}: {what}", route.name)))?;
    }
    Ok(())
}
