//! `tollgate`: servers on the rate limiter of that name.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

mod proxy;

/// Servers on the rate limiter tollgate.
#[derive(Parser)]
#[command(version)]
struct Tollgate {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// A reverse proxy that limits each client
    Proxy(Box<proxy::Options>),
    /// Say what a file of settings means, or its first mistake
    Check(Box<proxy::Options>),
}

/// 0: each request was answered. 1: some were cut, or the settings are wrong. 2: it could not start.
#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Tollgate::try_parse() {
        Ok(Tollgate { command: Some(Command::Proxy(options)) }) => proxy::run(*options).await,
        Ok(Tollgate { command: Some(Command::Check(options)) }) => proxy::check(&options),
        Ok(Tollgate { command: None }) => Tollgate::command().print_help().map(|()| true).map_err(|e| format!("cannot print: {e}")),
        Err(help) if !help.use_stderr() => help.exit(),
        Err(error) => Err(proxy::sentence(&error)),
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
