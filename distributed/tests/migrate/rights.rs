//! Accounts with the rights that README.md names, and tables that other programs made.

use std::process::Command;

use tollgate_distributed::{
    AnyStore, MySqlStore, PostgresStore, StoreError, StoreErrorKind, TokenRequester, TokenTable,
};
use tollgate_test_servers::mariadb::{MariaDb, mariadb_is_installed};
use tollgate_test_servers::postgres::{Postgres, postgres_is_installed};

use super::urls::take;
use super::{feed, migrate};

/// A server, and a client of an account that may create.
struct Owner {
    url: String,
    client: fn(&str) -> Command,
}

fn psql(url: &str) -> Command {
    let mut client = Command::new("psql");
    client.args(["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", url]);
    client
}

fn mariadb(url: &str) -> Command {
    let port = url.rsplit_once(':').and_then(|(_, rest)| rest.split('/').next()).unwrap();
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--user=test", "tests"]);
    client.arg(format!("--port={port}"));
    client
}

impl Owner {
    fn run(&self, statements: &str) {
        feed(&mut (self.client)(&self.url), statements.as_bytes());
    }

    /// Returns the URL of the account of the application.
    fn app(&self) -> String {
        self.url.replace("//postgres@", "//app@").replace("//test@", "//app@")
    }
}

/// Returns the statements of README.md that grant the rights on an engine.
fn grants(engine: &str) -> &'static str {
    let page = include_str!("../../README.md");
    let (_, rest) = page.split_once(&format!("-- {engine}\n")).expect("the page has the rights");
    rest.split("\n\n").next().and_then(|rest| rest.split("```").next()).unwrap()
}

async fn fails(store: &AnyStore) -> String {
    let error = take(store).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Permanent, "{error}");
    error.to_string()
}

/// An account with the rights of the page calls, cleans up and migrates, and cannot without one.
async fn the_rights_of_the_page_suffice(owner: &Owner, engine: &str) {
    for arguments in [&[owner.url.as_str()][..], &["--tokens", &owner.url]] {
        assert!(migrate(arguments).status.success());
    }
    owner.run(if engine == "PostgreSQL" { "CREATE ROLE app LOGIN" } else { "CREATE USER app@'%'" });
    let (app, grants) = (owner.app(), grants(engine));
    owner.run(grants);
    let store = AnyStore::open(&app).unwrap();
    store.migrate().await.unwrap();
    store.create_token_table().await.unwrap();
    assert_eq!(take(&store).await.unwrap(), 1);
    assert_eq!(take(&store).await.unwrap(), 1);
    assert_eq!(store.clean_up(std::time::Duration::ZERO).await.unwrap(), 0);
    let output = migrate(&[&app]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Each right of a call is needed.
    for right in ["SELECT", "INSERT", "UPDATE"] {
        let on = if engine == "PostgreSQL" { "TO app" } else { "TO app@'%'" };
        owner.run(&format!("REVOKE {right} ON tollgate_buckets {}", on.replace("TO", "FROM")));
        owner.run("DELETE FROM tollgate_buckets");
        let store = AnyStore::open(&app).unwrap();
        if right == "UPDATE" {
            // The first call of a key inserts, by PostgreSQL without this right.
            let _ = take(&store).await;
        }
        let text = fails(&store).await;
        assert!(text.contains("denied"), "{text}");
        owner.run(&format!("GRANT {right} ON tollgate_buckets {on}"));
    }
}

/// Takes a token of a bucket at intervals by the account of the application.
async fn takes<T: tollgate_distributed::TokenTable>(owner: &Owner, store: Result<T, StoreError>) {
    owner.run("INSERT INTO token_buckets VALUES ('acme', 1, 1, 1000000, '2026-01-01')");
    let requester = TokenRequester::new(store.unwrap());
    requester.migrate().await.unwrap();
    assert!(requester.request_token("acme").await.unwrap());
}

#[tokio::test]
async fn the_rights_of_the_page_suffice_on_postgres() {
    if !postgres_is_installed() {
        return;
    }
    let server = Postgres::start(&[]).unwrap();
    let owner = Owner { url: server.url(), client: psql };
    the_rights_of_the_page_suffice(&owner, "PostgreSQL").await;
    takes(&owner, PostgresStore::connect(&owner.app())).await;
}

#[tokio::test]
async fn the_rights_of_the_page_suffice_on_mariadb() {
    if !mariadb_is_installed() {
        return;
    }
    let server = MariaDb::start(&[]).unwrap();
    let owner = Owner { url: server.url(), client: mariadb };
    the_rights_of_the_page_suffice(&owner, "MariaDB").await;
    takes(&owner, MySqlStore::connect(&owner.app())).await;
}

#[tokio::test]
async fn a_table_or_a_function_of_another_program_is_an_error_and_stays() {
    if !postgres_is_installed() {
        return;
    }
    let server = Postgres::start(&[]).unwrap();
    let owner = Owner { url: server.url(), client: psql };
    owner.run(
        "CREATE TABLE tollgate_buckets (id bytea PRIMARY KEY, credits bigint, last_us bigint);
         CREATE FUNCTION request_token(id text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    );
    let store = AnyStore::open(&owner.url).unwrap();
    let error = store.migrate().await.unwrap_err();
    assert!(error.kind() == StoreErrorKind::Permanent && error.to_string().contains("unit"), "{error}");
    owner.run("DROP TABLE tollgate_buckets");
    let error = store.create_token_table().await.unwrap_err();
    assert!(
        error.kind() == StoreErrorKind::Permanent && error.to_string().contains("request_token"),
        "{error}"
    );
    owner.run("DO $$ BEGIN ASSERT request_token('x'); END $$");
}
