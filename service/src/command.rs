//! The command line of the program `tollgate`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use tollgate_common::process;
use tollgate_common::settings::error::sentence;

use crate::arguments::{config, flag, many, paths};
use crate::check;
use crate::replay::command::{self as replay, ReplayOptions};
use crate::serve::checks::Check;
use crate::serve::options::ServeOptions;
use crate::serve::run;
use crate::serve::tables::StoreTable;
use tollgate_common::settings::options::TableOptions;

/// Returns the command line of the program.
fn tollgate() -> Command {
    let checked = |command: Command, others: &[Arg]| {
        let command = command.arg(paths("Files and folders of a rate limit service").required(true));
        TableOptions::<StoreTable>::augment_args(command.args(others))
    };
    let check = Command::new("check").about("Say all mistakes of rate limits, and of checks over HTTP");
    let explain =
        Command::new("explain").about("Say which rate limit a descriptor finds, level by level, or why none");
    let domain = Arg::new("domain")
        .long("domain")
        .help("The domain, and the descriptors of a request")
        .num_args(2..)
        .value_names(["DOMAIN", "KEY=VALUE[,KEY=VALUE]"])
        .required(true);
    Command::new("tollgate")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A rate limit service on the rate limiter tollgate")
        .subcommand(ServeOptions::of(
            Command::new("serve")
                .about("A rate limit service for Envoy, from the YAML of envoyproxy/ratelimit"),
        ))
        .subcommand(checked(
            check,
            &[
                config("A file of settings, whose checks over HTTP are checked as well"),
                flag("strict", "A warning is a mistake as well"),
            ],
        ))
        .subcommand(checked(
            explain,
            &[domain, config("A file of settings, which may name the store of the counts")],
        ))
        .subcommand(ReplayOptions::of(
            Command::new("replay").about("Say what rate limits would have refused of an access log"),
        ))
}

/// Runs the command of these arguments. Returns the exit code: 0 if each request was answered, 1 if
/// some were cut, 2 if the start failed.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let outcome = match tollgate().try_get_matches_from(named(arguments.collect())) {
        Ok(matches) => match matches.subcommand() {
            Some((name, matches)) => call(name, matches),
            None => tollgate().print_help().map(|()| true).map_err(|e| format!("cannot print: {e}")),
        },
        Err(help) if !help.use_stderr() => help.exit(),
        Err(error) => Err(sentence(&error)),
    };
    process::exit_code(outcome)
}

/// Runs the command of this name.
fn call(name: &str, matches: &ArgMatches) -> Result<bool, String> {
    let known = |error: clap::Error| sentence(&error);
    match name {
        "serve" => return process::serve(run::run(ServeOptions::given(matches).map_err(known)?)),
        "replay" => return replay::run(&ReplayOptions::given(matches).map_err(known)?),
        _ => (),
    }
    let settings = matches.get_one::<PathBuf>("config").map(PathBuf::as_path);
    let store = TableOptions::from_arg_matches(matches).map_err(known)?;
    let options = ServeOptions::with_store(&many::<PathBuf>(matches, "paths"), settings, &store);
    if name == "explain" {
        let domain = many::<String>(matches, "domain");
        // clap has checked that there are two texts.
        return check::explain(&options, &domain[0], &domain[1..]);
    }
    let warnings = settings.map_or(Ok(Vec::new()), Check::warnings_of)?;
    check::run(&options, matches.get_flag("strict"), &warnings)
}

/// Returns the arguments. A program of the name `ratelimit` is `tollgate serve`.
fn named(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.first().is_some_and(|name| Path::new(name).file_name() == Some("ratelimit".as_ref())) {
        arguments.insert(1, "serve".into());
    }
    arguments
}
