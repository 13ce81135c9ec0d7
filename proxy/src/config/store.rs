//! The store of a fleet, as a file or the options name it, and the rules that it can count.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use tollgate::{AnyRule, Quota};
use tollgate_distributed::{AnyStore, CountSpec, Spec};

use super::settings::{Outage, Store, StoreUrl};

/// The engines, each with whether this program has it.
const ENGINES: [(&str, bool); 4] = [
    ("sqlite", cfg!(feature = "sqlite")),
    ("redis", cfg!(feature = "redis")),
    ("postgres", cfg!(feature = "postgres")),
    ("mysql", cfg!(feature = "mysql")),
];

/// Returns the store of a URL, unless other settings name more.
pub(super) fn default() -> Store {
    Store {
        url: StoreUrl(String::new()),
        name: "tollgate".to_owned(),
        exact: false,
        deadline: Duration::from_millis(50),
        on_outage: Outage::Local,
        share: 1.0,
    }
}

/// Returns a URL, whose file is relative to a folder. Its mistake has no part of it but its engine.
pub(super) fn url(text: &str, folder: &Path) -> Result<StoreUrl, String> {
    const FORM: &str = "expected sqlite:PATH, redis://HOST, postgres://USER@HOST/DATABASE or \
                        mysql://USER@HOST/DATABASE";
    let (engine, rest) = text.split_once(':').ok_or(FORM)?;
    let (engine, is_there) = ENGINES.into_iter().find(|(name, _)| *name == engine).ok_or(FORM)?;
    if !is_there {
        return Err(format!("this program was built without {engine}: `--features {engine}` adds it"));
    }
    let rest_of_it = if engine == "sqlite" { Some(rest) } else { rest.strip_prefix("//") };
    if rest_of_it.is_none_or(|rest_of_it| rest_of_it.is_empty() || rest_of_it.contains('\0')) {
        return Err(FORM.to_owned());
    }
    let url = StoreUrl(text.to_owned());
    match engine {
        "sqlite" if rest.starts_with(':') => Ok(url),
        "sqlite" => Ok(StoreUrl(format!("sqlite:{}", folder.join(rest).display()))),
        // No server is asked.
        _ => open(&url).map(|_| url),
    }
}

/// Opens the store of a URL. The error has its cause alone, since the URL may have a password.
pub(crate) fn open(url: &StoreUrl) -> Result<AnyStore, String> {
    AnyStore::open(&url.0)
        .map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))
}

/// Returns an error if a store cannot count a rule.
pub(crate) fn counts(rule: AnyRule, exact: bool) -> Result<(), String> {
    let counted = match rule {
        // The store is not asked.
        AnyRule::Quota(Quota::UNLIMITED | Quota::BLOCKED) => Ok(()),
        AnyRule::Quota(quota) => {
            // Leases are at most half of the burst.
            let debt = if exact { 0 } else { quota.capacity() / 2 };
            Spec::new(quota, debt).map(drop)
        }
        // It does not depend on the time.
        AnyRule::Window(window) => CountSpec::new(window, Duration::ZERO).map(drop),
    };
    counted.map_err(|why| why.to_string())
}
