//! Creates the tables of the stores, or prints the statements that create them.

use std::env;
use std::process::ExitCode;

use tollgate_distributed::{AnyStore, StoreError, TokenTable};

const USAGE: &str = "usage: tollgate-migrate [--tokens] URL
       tollgate-migrate --print ENGINE [--tokens]

Creates the tables of a store in the database that URL names: sqlite:PATH, postgres://.. or mysql://..
With --print, prints the statements for sqlite, postgres or mysql. With --tokens, they are those of the
buckets that are refilled at intervals: the table token_buckets and the routine request_token.";

/// A table, and its routine.
type Migration = [&'static str; 2];

/// The statements of each engine for buckets and counts, and those for buckets that are refilled at
/// intervals. The client of MariaDB needs a delimiter around a routine.
const MIGRATIONS: [(&str, &[Migration], Migration); 3] = [
    (
        "mysql",
        &[
            [
                include_str!("../../migrations/mysql/buckets.sql"),
                include_str!("../../migrations/mysql/acquire.sql"),
            ],
            [
                include_str!("../../migrations/mysql/counts.sql"),
                include_str!("../../migrations/mysql/count.sql"),
            ],
        ],
        [
            include_str!("../../migrations/mysql/tokens.sql"),
            include_str!("../../migrations/mysql/request_token.sql"),
        ],
    ),
    (
        "postgres",
        &[
            [
                include_str!("../../migrations/postgres/buckets.sql"),
                include_str!("../../migrations/postgres/acquire.sql"),
            ],
            [
                include_str!("../../migrations/postgres/counts.sql"),
                include_str!("../../migrations/postgres/all.sql"),
            ],
        ],
        [include_str!("../../migrations/postgres/tokens.sql"), ""],
    ),
    (
        "sqlite",
        &[
            [include_str!("../../migrations/sqlite/buckets.sql"), ""],
            [include_str!("../../migrations/sqlite/counts.sql"), ""],
        ],
        [include_str!("../../migrations/sqlite/tokens.sql"), ""],
    ),
];

fn main() -> ExitCode {
    let (mut print, mut tokens, mut names) = (false, false, Vec::new());
    for argument in env::args().skip(1) {
        match argument.as_str() {
            "--print" => print = true,
            "--tokens" => tokens = true,
            name if !name.starts_with('-') => names.push(argument),
            _ => return fail(USAGE),
        }
    }
    let [name] = names.as_slice() else { return fail(USAGE) };
    if print {
        return show(name, tokens);
    }
    match apply(name, tokens) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}

fn show(engine: &str, tokens: bool) -> ExitCode {
    let Some((_, buckets, intervals)) = MIGRATIONS.iter().find(|(name, ..)| *name == engine) else {
        return fail(&format!("{engine:?} is not sqlite, postgres or mysql"));
    };
    let parts = if tokens { std::slice::from_ref(intervals) } else { *buckets };
    for [table, routine] in parts {
        print!("{table}");
        if engine == "mysql" {
            print!(";\nDELIMITER //\n{routine}//\nDELIMITER ;\n");
        } else {
            print!("{routine}");
        }
    }
    ExitCode::SUCCESS
}

fn apply(url: &str, tokens: bool) -> Result<(), StoreError> {
    let store = AnyStore::open(url)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| StoreError::new(tollgate_distributed::StoreErrorKind::Refused, error))?;
    runtime.block_on(async { if tokens { store.create_token_table().await } else { store.migrate().await } })
}
