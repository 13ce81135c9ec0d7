//! Arguments that several commands have.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, value_parser};

/// Files and folders, without a name.
pub(crate) fn paths(help: &'static str) -> Arg {
    Arg::new("paths").value_name("PATH").num_args(1..).value_parser(value_parser!(PathBuf)).help(help)
}

/// A file of settings.
pub(crate) fn config(help: &'static str) -> Arg {
    option("config", "FILE", help).value_parser(value_parser!(PathBuf))
}

/// An option with a value.
pub(crate) fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// An option without a value.
pub(crate) fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// Returns the values of an argument, in the order in which they were given.
pub(crate) fn many<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Vec<T> {
    matches.get_many(name).into_iter().flatten().cloned().collect()
}

/// Returns the value of an argument that is required, or has a default.
pub(crate) fn one<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> T {
    matches.get_one(name).cloned().expect("clap has checked that there is one")
}
