//! `tollgate-proxy`: a reverse proxy that limits each client.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tollgate_common::process;
use tollgate_common::settings::error::sentence;

mod admin;
mod config;
mod counters;
mod forward;
mod limits;
mod pace;
mod run;
mod serve;

use config::options::Options;

/// A reverse proxy that limits each client.
#[derive(Parser)]
#[command(name = "tollgate-proxy", version, args_conflicts_with_subcommands = true)]
struct TollgateProxy {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Command {
    /// Say what a file of settings means, or its first mistake
    Check(Box<Options>),
}

/// Returns the exit code: 0 if each request was answered, 1 if some were cut, 2 if the start
/// failed.
fn main() -> ExitCode {
    process::exit_code(match TollgateProxy::try_parse() {
        Ok(TollgateProxy { command: None, options }) => process::serve(run::run(options)),
        Ok(TollgateProxy { command: Some(Command::Check(options)), .. }) => run::check(&options),
        Err(help) if !help.use_stderr() => help.exit(),
        Err(error) => Err(sentence(&error)),
    })
}
