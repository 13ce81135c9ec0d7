//! The program `tollgate-migrate`: the statements that it prints, and those that it applies.

mod loud;
mod rights;
mod urls;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use tollgate::Quota;
use tollgate_distributed::{Amount, AnyStore, Op, Spec, Store};
use tollgate_test_servers::mariadb::{MariaDb, mariadb_is_installed};
use tollgate_test_servers::postgres::{Postgres, postgres_is_installed};

fn migrate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate-migrate")).args(arguments).output().unwrap()
}

fn printed(engine: &str, options: &[&str]) -> Vec<u8> {
    let output = migrate(&[&["--print", engine], options].concat());
    assert!(output.status.success());
    output.stdout
}

/// Gives statements to the client of a server.
fn feed(client: &mut Command, statements: &[u8]) {
    let mut child =
        client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(statements).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The store decides, and the program applies its statements to tables that are there.
async fn the_tables_are_there(url: &str) {
    let spec = Spec::new(Quota::per_day(1).burst(10), 0).unwrap();
    let mut ops = [Op::new(b"key", spec, Amount { min: 1, max: 4, spent: 0, of_us: 0 })];
    AnyStore::open(url).unwrap().acquire(&mut ops).await.unwrap();
    assert_eq!(ops[0].answer.granted, 4);
    for arguments in [&[url][..], &["--tokens", url]] {
        let output = migrate(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[tokio::test]
async fn printed_statements_create_the_tables_of_postgres() {
    if !postgres_is_installed() {
        return;
    }
    let server = Postgres::start(&[]).unwrap();
    for options in [&[][..], &["--tokens"]] {
        let mut client = Command::new("psql");
        client.args(["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", &server.url()]);
        feed(&mut client, &printed("postgres", options));
    }
    the_tables_are_there(&server.url()).await;
}

#[tokio::test]
async fn printed_statements_create_the_tables_of_mariadb() {
    if !mariadb_is_installed() {
        return;
    }
    let server = MariaDb::start(&[]).unwrap();
    for options in [&[][..], &["--tokens"]] {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--user=test", "tests"]);
        feed(client.arg(format!("--port={}", server.port())), &printed("mysql", options));
    }
    the_tables_are_there(&server.url()).await;
}

#[tokio::test]
async fn a_file_of_sqlite_needs_no_statements() {
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("buckets").display());
    the_tables_are_there(&url).await;
    assert!(String::from_utf8(printed("sqlite", &[])).unwrap().contains("tollgate_buckets"));
}

#[test]
fn a_wrong_call_shows_the_usage_or_the_error() {
    for arguments in [&[][..], &["--print"], &["--nothing", "sqlite:x"], &["sqlite:x", "sqlite:y"]] {
        let output = migrate(arguments);
        assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).starts_with("usage:"));
    }
    for arguments in [&["--print", "oracle"][..], &["oracle://x"], &["postgres://127.0.0.1:1/x"]] {
        let output = migrate(arguments);
        assert!(!output.status.success() && !output.stderr.is_empty());
    }
}
