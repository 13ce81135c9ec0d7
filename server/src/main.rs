//! `tollgate`: servers on the rate limiter of that name.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};

mod admin;
mod check;
mod files;
mod log;
mod net;
mod output;
mod past;
mod paths;
mod proxy;
mod replay;
mod rules;
mod service;
mod settings;
mod state_file;

use proxy::config::options::Options;
use proxy::run;
use replay::command::ReplayOptions;
use service::checks::Check;
use service::options::ServeOptions;
use settings::fault::sentence;

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
    /// A rate limit service for Envoy, from the YAML of envoyproxy/ratelimit
    Serve(Box<ServeOptions>),
    /// Say what a file of settings means, or its first mistake; or all mistakes of rate limits
    Check(Box<CheckOptions>),
    /// Say which rate limit a descriptor finds, level by level, or why none
    Explain(ExplainOptions),
    /// Say what rate limits would have refused of an access log
    Replay(Box<ReplayOptions>),
}

#[derive(clap::Args)]
struct CheckOptions {
    /// Files and folders of a rate limit service, which are checked instead of the settings; with
    /// --config also its checks over HTTP
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A warning about them is a mistake as well
    #[arg(long, requires = "paths")]
    strict: bool,
    #[command(flatten)]
    settings: Options,
}

#[derive(clap::Args)]
struct ExplainOptions {
    /// Files and folders of a rate limit service
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// The domain, and the descriptors of a request
    #[arg(long, num_args = 2.., value_names = ["DOMAIN", "KEY=VALUE[,KEY=VALUE]"], required = true)]
    domain: Vec<String>,
}

/// Returns the exit code: 0 if each request was answered, 1 if some were cut, 2 if the start
/// failed.
fn main() -> ExitCode {
    let outcome = match Tollgate::try_parse_from(arguments()) {
        Ok(Tollgate { command: Some(Command::Proxy(options)) }) => serve(run::run(*options)),
        Ok(Tollgate { command: Some(Command::Serve(options)) }) => serve(service::run::run(*options)),
        Ok(Tollgate { command: Some(Command::Check(options)) }) if options.paths.is_empty() => {
            run::check(&options.settings)
        }
        Ok(Tollgate { command: Some(Command::Check(options)) }) => {
            let of_checks = options.settings.config.as_deref().map_or(Ok(Vec::new()), Check::warnings_of);
            of_checks.and_then(|warnings| check::run(&options.paths, options.strict, &warnings))
        }
        Ok(Tollgate { command: Some(Command::Replay(options)) }) => replay::command::run(&options),
        Ok(Tollgate { command: Some(Command::Explain(ExplainOptions { paths, domain })) }) => {
            // clap has checked that there are two texts.
            check::explain(&paths, &domain[0], &domain[1..])
        }
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

/// Returns the arguments. A program of the name `ratelimit` is `tollgate serve`.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<_> = std::env::args_os().collect();
    if arguments.first().is_some_and(|name| Path::new(name).file_name() == Some("ratelimit".as_ref())) {
        arguments.insert(1, "serve".into());
    }
    arguments
}

fn serve(server: impl Future<Output = Result<bool, String>>) -> Result<bool, String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| format!("cannot start threads: {error}"))?;
    let outcome = runtime.block_on(server);
    // Connections that are still open are cut here. A file or a name server that hangs does not
    // delay the end.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}
