//! The rules that a store can count, and the URLs that name one.

use std::error::Error;

use tollgate::{Quota, Window};
use tollgate_distributed::{AnyStore, Spec};

use super::settings::StoreUrl;

/// Opens the store of a URL. The error has its cause alone, since the URL may have a password.
pub(crate) fn open(url: &StoreUrl) -> Result<AnyStore, String> {
    AnyStore::open(&url.0)
        .map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))
}

/// Returns the mistake of a URL, if it has one. No server is asked, and no file is made.
pub(crate) fn check(url: &StoreUrl) -> Result<(), String> {
    if url.0.starts_with("sqlite:") { Ok(()) } else { open(url).map(drop) }
}

/// Returns an error if a store cannot count a quota.
pub(crate) fn counts(quota: Quota, exact: bool) -> Result<(), String> {
    // Leases are at most half of the burst.
    let debt = if exact { 0 } else { quota.capacity() / 2 };
    Spec::new(quota, debt).map(drop).map_err(|why| why.to_string())
}

/// Returns the reason why a window is no limit of a fleet.
pub(crate) fn window_in_store(window: Window) -> String {
    format!("{window} is a window, and a store shares quotas only, such as 100/s burst 200")
}
