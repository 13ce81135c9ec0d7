//! `tollgate`: servers on the rate limiter of that name.

use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};

mod admin;
#[cfg_attr(not(test), expect(dead_code))]
mod check;
mod config;
mod counters;
mod forward;
mod io;
mod limits;
mod listen;
mod output;
mod pace;
mod readings;
#[allow(dead_code, reason = "the command `serve` calls it, and is not here yet")]
mod rules;
mod run;
mod serve;
#[allow(dead_code, reason = "the command `serve` calls it, and is not here yet")]
mod service;
mod threads;

use config::options::{Options, sentence};

#[cfg(not(unix))]
compile_error!("tollgate-server runs on Unix only: it listens on Unix sockets and obeys signals of Unix");

/// Servers on the rate limiter tollgate.
#[derive(Parser)]
#[command(name = "tollgate", version)]
struct Tollgate {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// A reverse proxy that limits each client
    Proxy(Box<Options>),
    /// Say what a file of settings means, or its first mistake
    Check(Box<Options>),
}

/// Returns the exit code: 0 if each request was answered, 1 if some were cut, 2 if the start
/// failed.
fn main() -> ExitCode {
    let outcome = match Tollgate::try_parse() {
        Ok(Tollgate { command: Some(Command::Proxy(options)) }) => serve(*options),
        Ok(Tollgate { command: Some(Command::Check(options)) }) => run::check(&options),
        Ok(Tollgate { command: None }) => {
            Tollgate::command().print_help().map(|()| true).map_err(|e| format!("cannot print: {e}"))
        }
        Err(help) if !help.use_stderr() => help.exit(),
        Err(error) => Err(sentence(&error)),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(sentence) => {
            eprintln!("error: {sentence}");
            ExitCode::from(2)
        }
    }
}

fn serve(options: Options) -> Result<bool, String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| format!("cannot start threads: {error}"))?;
    let outcome = runtime.block_on(run::run(options));
    // Connections that are still open are cut here. A file or a name server that hangs does not
    // delay the end.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}
