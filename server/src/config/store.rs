//! The store of a fleet, as a file or the options name it.

use std::path::Path;
use std::time::Duration;

use super::settings::{Outage, Store, StoreUrl};
use super::shared::check;

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

/// Returns a URL, whose file is relative to a folder.
pub(super) fn url(text: &str, folder: &Path) -> Result<StoreUrl, String> {
    let url = StoreUrl(text.to_owned());
    check_url(&url)?;
    match text.strip_prefix("sqlite:") {
        Some(path) if !path.starts_with(':') => {
            Ok(StoreUrl(format!("sqlite:{}", folder.join(path).display())))
        }
        _ => Ok(url),
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
