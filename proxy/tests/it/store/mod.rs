//! Proxies as processes on one store of each engine. A server that is not installed is left out.

mod engines;
mod fleet;
mod outage;
mod settings;

use crate::support::Proxy;

/// Starts a proxy on a store, with other options. It does not give up on a busy machine.
fn start(url: &str, options: &str) -> Proxy {
    Proxy::start(&format!("--store {url} --store-deadline 10s {options}"))
}
