//! Spellings of `/login` that real servers take for `/login`.
//!
//! `accepted.txt` has the spellings of a search, beside the name of the server that accepts each.
//! The tests here repeat the search, so the list has all of them and no others. A test of
//! `paths.rs` reads the same list, and checks that the proxy finds the route of each. Tests of
//! `features/exempt.rs` read it, and check that the allow list takes none for another.

mod client;
#[path = "../proxy/process.rs"]
#[expect(dead_code, reason = "it is that of the other tests as well")]
mod process;
mod search;
mod servers;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use client::Client;
use process::Proxy;
use servers::{Server, axum_server, express, stripping};

/// A time far above that of each step. Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

const ACCEPTED: &str = include_str!("accepted.txt");

/// Returns the spellings in the list that a server takes for `/login`.
fn accepted(server: &str) -> BTreeSet<String> {
    let pairs = ACCEPTED.lines().filter_map(|line| line.split_once(' '));
    pairs.filter(|(name, _)| *name == server).map(|(_, spelling)| spelling.to_owned()).collect()
}

/// Returns the spellings for which the handler of `/login` answers, among requests to this address.
fn reach_login<'a>(at: SocketAddr, spellings: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
    let mut client = Client::new(at);
    spellings.filter(|spelling| client.get(spelling) == (200, "login".to_owned())).cloned().collect()
}

/// Checks that the proxy lets 5 of 60 requests through to `/login`. The requests use all spellings
/// that the server accepts.
fn limited(server: &Server) {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.toml", server.name));
    let limits = "limit = \"100000/s\"\n[[route]]\nprefix = \"/login\"\nlimit = \"5/h burst 5\"\n";
    std::fs::write(&file, limits).expect("it can be written");
    let upstream = format!("http://{}", server.at);
    let proxy = Proxy::start(&["--upstream", &upstream, "--config", file.to_str().expect("it is a name")]);
    let mut client = Client::new(proxy.address);
    let list = accepted(server.name);
    let mut statuses: Vec<u16> =
        list.iter().cycle().take(60).map(|spelling| client.get(spelling).0).collect();
    assert!(
        statuses.len() == 60 && statuses.iter().all(|status| [200, 429].contains(status)),
        "{statuses:?}"
    );
    statuses.retain(|status| *status == 200);
    assert_eq!(statuses.len(), 5, "{} behind the proxy", server.name);
}

/// Checks that the search finds the list of a server, and that the proxy limits each spelling in
/// it.
fn searched(server: &Server) {
    let candidates = search::candidates();
    let found = reach_login(server.at, candidates.iter());
    let list = accepted(server.name);
    let missing: Vec<_> = found.difference(&list).map(|it| format!("{} {it}\n", server.name)).collect();
    assert!(missing.is_empty(), "not in accepted.txt:\n{}", missing.concat());
    let wrong: Vec<_> = list.difference(&found).collect();
    assert!(wrong.is_empty(), "in accepted.txt, but {} refuses them: {wrong:#?}", server.name);
    assert!(!list.is_empty());
    limited(server);
}

#[test]
fn express_accepts_the_list() {
    match express() {
        Ok(server) => searched(&server),
        Err(reason) => println!("did not run: {reason}"),
    }
}

#[test]
fn axum_accepts_the_list() {
    searched(&axum_server());
}

#[test]
fn a_server_that_strips_parameters_accepts_the_list() {
    searched(&stripping());
}
