//! Spellings of `/login` that real servers take for `/login`.
//!
//! `accepted.txt` of the crate `common` has the spellings of a search, each with the name of its
//! server. The tests here repeat the search, so the list has all of them and no others. Those
//! beside the word `listed` were found in other ways. It is the one list on which all parts are
//! tried:
//!
//! | part | test |
//! |---|---|
//! | the proxy | here, and those of `proxy/limits/prefixes` |
//! | its allow list | `features/exempt.rs` |
//! | the layer | here |
//! | the checks over HTTP | `walk.rs` of the service, and those of `serve/checks` |
//! | the recipes of nginx, HAProxy, Caddy and Envoy | `walk.rs` of the service, by `verify/rigs/behind-proxies` |

mod search;
mod servers;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use tollgate_common::paths::ACCEPTED;

use crate::support::{Connection, Folder, Proxy};
use servers::{Server, axum_server, express, limited_axum_server, stripping};

/// Returns the spellings in the list that a server takes for `/login`.
fn accepted(server: &str) -> BTreeSet<String> {
    let pairs = ACCEPTED.lines().filter_map(|line| line.split_once(' '));
    pairs.filter(|(name, _)| *name == server).map(|(_, spelling)| spelling.to_owned()).collect()
}

/// A client of one server, over one connection while that lasts.
struct Client {
    at: SocketAddr,
    connection: Option<Connection>,
}

impl Client {
    fn new(at: SocketAddr) -> Client {
        Client { at, connection: None }
    }

    /// Returns the status and the body of the response. The status is 0 if the server closes the
    /// connection.
    fn get(&mut self, target: &str) -> (u16, String) {
        let mut connection = self.connection.take().unwrap_or_else(|| Connection::connect(self.at));
        connection.write(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let reply = connection.reply("GET").expect("a response or the end");
        let Some((reply, _)) = reply else { return (0, String::new()) };
        if reply.header("connection") != Some("close") {
            self.connection = Some(connection);
        }
        (reply.status, reply.body)
    }
}

/// Returns the spellings for which the handler of `/login` answers, among requests to this address.
fn reach_login<'a>(at: SocketAddr, spellings: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
    let mut client = Client::new(at);
    spellings.filter(|spelling| client.get(spelling) == (200, "login".to_owned())).cloned().collect()
}

/// Checks that the proxy lets 5 of 60 requests through to `/login`. The requests use all spellings
/// that the server accepts.
fn limited(server: &Server) {
    let folder = Folder::new();
    let limits = "limit = \"100000/s\"\n[[route]]\nprefix = \"/login\"\nlimit = \"5/h burst 5\"\n";
    let config = folder.write("tollgate.toml", limits);
    let proxy = Proxy::on("127.0.0.1:0", &format!("--upstream http://{} --config {config}", server.at));
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

/// Returns the spellings of the list that are answered with 200 once `/login` is used up.
fn passed(at: SocketAddr) -> Vec<&'static str> {
    let mut client = Client::new(at);
    let statuses = [0; 6].map(|_| client.get("/login").0);
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    let list = ACCEPTED.lines().filter_map(|line| Some(line.split_once(' ')?.1));
    list.filter(|spelling| client.get(spelling).0 == 200).collect()
}

#[test]
fn no_spelling_passes_the_proxy() {
    let folder = Folder::new();
    let config = folder.write("tollgate.toml", "[[route]]\nprefix = \"/login\"\nlimit = \"5/h burst 5\"\n");
    let options = format!("--demo --limit none --config {config}");
    assert_eq!(passed(Proxy::on("127.0.0.1:0", &options).address), [""; 0]);
}

/// The layer limits what a handler is reached by.
#[test]
fn no_spelling_passes_the_layer() {
    assert_eq!(passed(limited_axum_server().at), [""; 0]);
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
