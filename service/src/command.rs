//! The command line of the program `tollgate`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tollgate_common::process;
use tollgate_common::settings::error::sentence;

use crate::check;
use crate::replay::command::{self as replay, ReplayOptions};
use crate::serve::checks::Check;
use crate::serve::options::ServeOptions;
use crate::serve::run;
use crate::serve::tables::StoreTable;
use tollgate_common::settings::options::TableOptions;

/// A rate limit service on the rate limiter tollgate.
#[derive(Parser)]
#[command(name = "tollgate", version)]
struct Tollgate {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// A rate limit service for Envoy, from the YAML of envoyproxy/ratelimit
    Serve(Box<ServeOptions>),
    /// Say all mistakes of rate limits, and of checks over HTTP
    Check(CheckOptions),
    /// Say which rate limit a descriptor finds, level by level, or why none
    Explain(ExplainOptions),
    /// Say what rate limits would have refused of an access log
    Replay(Box<ReplayOptions>),
}

#[derive(clap::Args)]
struct CheckOptions {
    /// Files and folders of a rate limit service
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// A file of settings, whose checks over HTTP are checked as well
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A warning is a mistake as well
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    store: TableOptions<StoreTable>,
}

#[derive(clap::Args)]
struct ExplainOptions {
    /// Files and folders of a rate limit service
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// The domain, and the descriptors of a request
    #[arg(long, num_args = 2.., value_names = ["DOMAIN", "KEY=VALUE[,KEY=VALUE]"], required = true)]
    domain: Vec<String>,
    /// A file of settings, which may name the store of the counts
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    store: TableOptions<StoreTable>,
}

/// Runs the command of these arguments. Returns the exit code: 0 if each request was answered, 1 if
/// some were cut, 2 if the start failed.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let outcome = match Tollgate::try_parse_from(named(arguments.collect())) {
        Ok(Tollgate { command: Some(Command::Serve(options)) }) => process::serve(run::run(*options)),
        Ok(Tollgate { command: Some(Command::Check(CheckOptions { paths, config, strict, store })) }) => {
            let of_checks = config.as_deref().map_or(Ok(Vec::new()), Check::warnings_of);
            let options = ServeOptions::with_store(&paths, config.as_deref(), &store);
            of_checks.and_then(|warnings| check::run(&options, strict, &warnings))
        }
        Ok(Tollgate { command: Some(Command::Replay(options)) }) => replay::run(&options),
        Ok(Tollgate { command: Some(Command::Explain(ExplainOptions { paths, domain, config, store })) }) => {
            let options = ServeOptions::with_store(&paths, config.as_deref(), &store);
            // clap has checked that there are two texts.
            check::explain(&options, &domain[0], &domain[1..])
        }
        Ok(Tollgate { command: None }) => {
            Tollgate::command().print_help().map(|()| true).map_err(|e| format!("cannot print: {e}"))
        }
        Err(help) if !help.use_stderr() => help.exit(),
        Err(error) => Err(sentence(&error)),
    };
    process::exit_code(outcome)
}

/// Returns the arguments. A program of the name `ratelimit` is `tollgate serve`.
fn named(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.first().is_some_and(|name| Path::new(name).file_name() == Some("ratelimit".as_ref())) {
        arguments.insert(1, "serve".into());
    }
    arguments
}
