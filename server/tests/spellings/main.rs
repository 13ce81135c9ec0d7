//! Spellings of `/login` that real servers take for `/login`.
//!
//! `accepted.txt` has the spellings of a search, beside the name of the server that accepts each.
//! The tests here repeat the search, so the list is neither short nor long of one. That the proxy
//! finds the route of all of them is a test of `paths.rs`, which reads the same list.

mod client;
mod search;
mod servers;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use client::Client;
use servers::{Server, axum_server, express, stripping};

const ACCEPTED: &str = include_str!("accepted.txt");

/// The spellings in the list that a server takes for `/login`.
fn accepted(server: &str) -> BTreeSet<String> {
    let pairs = ACCEPTED.lines().filter_map(|line| line.split_once(' '));
    pairs.filter(|(name, _)| *name == server).map(|(_, spelling)| spelling.to_owned()).collect()
}

/// Those spellings for which the handler of `/login` answers, if requests go to this address.
fn reach_login<'a>(at: SocketAddr, spellings: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
    let mut client = Client::new(at);
    spellings.filter(|spelling| client.get(spelling) == (200, "login".to_owned())).cloned().collect()
}

/// Whether the search finds the list, for a server.
fn searched(server: &Server) {
    let candidates = search::candidates();
    let found = reach_login(server.at, candidates.iter());
    let list = accepted(server.name);
    let missing: Vec<_> = found.difference(&list).map(|it| format!("{} {it}\n", server.name)).collect();
    assert!(missing.is_empty(), "not in accepted.txt:\n{}", missing.concat());
    let wrong: Vec<_> = list.difference(&found).collect();
    assert!(wrong.is_empty(), "in accepted.txt, but {} refuses them: {wrong:#?}", server.name);
    assert!(!list.is_empty());
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
