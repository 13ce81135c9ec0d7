//! Tests of a decision: all cases of the reference, tables, and a random walk beside a model. And
//! tests of the service as a whole: its settings, its reloads, and its calls over sockets.

mod calls;
mod cases;
mod clear;
mod client;
mod connections;
mod lists;
mod logged;
mod messages;
mod model;
mod moved;
mod networks;
mod redis_variables;
mod reload;
mod reserve;
mod room;
mod rules;
mod saved;
mod settings;
mod several;
mod statistics;
mod table;
mod walk;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::options::ServeOptions;
use super::reload::Source;
use super::sources;
use super::state::Service;
use tollgate_common::log::LogHandle;

/// Two requests a year of each account: no test is at the edge of an hour.
const SHOP: &str =
    "domain: shop\ndescriptors:\n  - key: account\n    rate_limit: {unit: year, requests_per_unit: 2}\n";

fn variables(given: &[(&str, &str)]) -> BTreeMap<String, String> {
    given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Returns a service of the paths, which has loaded nothing yet.
fn source(path: &Path, given: &[(&str, &str)]) -> Arc<Source> {
    let options = ServeOptions { paths: vec![path.to_owned()], ..ServeOptions::default() };
    let environment = variables(given);
    let service = Arc::new(Service::new(sources::load(&options, &environment).unwrap(), &mut Vec::new()));
    Arc::new(Source::new(options, environment, service, None, LogHandle::of_tests()))
}
