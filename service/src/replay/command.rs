//! The command line of `tollgate replay`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::lines::FieldNames;
use super::logs::LogSource;
use super::run::{Progress, Replay, Side};
use crate::check;
use crate::rules::load::load;
use crate::serve::checks::Check;
use crate::serve::counts::{Algorithm, CountOptions};
use crate::serve::options::ServeOptions;
use crate::serve::sources;
use crate::serve::tables::StoreTable;
use tollgate_common::output::say;
use tollgate_common::settings::file;
use tollgate_common::settings::options::TableOptions;
use tollgate_common::settings::values::choice;

/// The options of `tollgate replay`, and the logs.
pub(crate) struct ReplayOptions {
    given: ReplayArguments,
    logs: Vec<String>,
}

#[derive(Args)]
struct ReplayArguments {
    /// The files of the limits, or folders of them
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The settings, with the table `[check.NAME]`
    #[arg(long)]
    config: PathBuf,
    /// The profile that makes requests of lines, and the logs, also with options between; `-` is
    /// standard input
    #[arg(long, num_args = 1.., value_names = ["NAME", "LOG"], required = true)]
    check: Vec<String>,
    /// Another configuration to set beside the first one
    #[arg(long, value_name = "PATH")]
    against: Vec<PathBuf>,
    /// The field of a log in JSON for time, client, method, path, decision or header:NAME
    #[arg(long, value_name = "WHAT=FIELD")]
    field: Vec<String>,
    /// How `unit` and `requests_per_unit` are counted: fixed_window or token_bucket
    #[arg(long, default_value = "fixed_window", value_parser = |text: &str| choice(text, &Algorithm::NAMES))]
    algorithm: Algorithm,
    /// The most keys of each unit
    #[arg(long, default_value_t = 1 << 22)]
    max_keys: usize,
    /// The store of the service: limits that it cannot count are errors. The replay counts in this
    /// process, and asks no store
    #[command(flatten)]
    store: TableOptions<StoreTable>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write a picture of requests and refusals over time
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
}

impl FromArgMatches for ReplayOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ReplayOptions, clap::Error> {
        let mut given = ReplayArguments::from_arg_matches(matches)?;
        let mut logs = given.check.split_off(1);
        if logs.is_empty() {
            // An option stands between the name and the logs, which clap takes for paths.
            let check = matches.indices_of("check").and_then(|mut at| at.next());
            let before = matches.indices_of("paths").into_iter().flatten().filter(|at| Some(*at) < check);
            let behind = given.paths.split_off(before.count());
            logs.extend(behind.iter().map(|path| path.to_string_lossy().into_owned()));
        }
        Ok(ReplayOptions { given, logs })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ReplayOptions::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ReplayOptions {
    fn augment_args(command: Command) -> Command {
        ReplayArguments::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        ReplayArguments::augment_args_for_update(command)
    }
}

/// Replays the logs, and prints the report.
pub(crate) fn run(options: &ReplayOptions) -> Result<bool, String> {
    let ReplayOptions { given: options, logs } = options;
    if logs.is_empty() || options.paths.is_empty() {
        let missing =
            if logs.is_empty() { "a log behind its name" } else { "the files of the limits before it" };
        return Err(format!("--check needs {missing}"));
    }
    let name = &options.check[0];
    let profile = profile_of(&options.config, name)?;
    let mut fields = FieldNames::default();
    options.field.iter().try_for_each(|text| fields.set(text))?;
    let of_service = ServeOptions::with_store(&[], Some(&options.config), &options.store);
    let settings = sources::load(&of_service, &BTreeMap::new())?;
    let side = |paths: &[PathBuf]| {
        let counts = CountOptions {
            max_keys: options.max_keys,
            algorithm: options.algorithm,
            ..CountOptions::default()
        };
        let rules = load(&check::read(paths)?, check::options()?);
        let sentence = |errors: Vec<_>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let rules = rules.map_err(&sentence)?;
        match settings.store.not_shared(&rules, options.algorithm) {
            none if none.is_empty() => Side::new(rules, counts),
            some => Err(sentence(some)),
        }
    };
    let mut sides = vec![side(&options.paths)?];
    if !options.against.is_empty() {
        sides.push(side(&options.against)?);
    }
    let mut replay = Replay::new(profile, fields, sides);
    read(&mut replay, logs)?;
    if let Some(path) = &options.picture {
        let cannot = |error| format!("cannot write {}: {error}", path.display());
        fs::write(path, replay.timeline.svg()).map_err(cannot)?;
    }
    let report = replay.report();
    say(format_args!(
        "{}",
        if options.json { format!("{report:#}") } else { replay.text(&report) }.trim_end()
    ));
    let doubts = replay.doubts();
    doubts.iter().for_each(|doubt| eprintln!("error: {doubt}"));
    Ok(doubts.is_empty())
}

/// Reads the logs. Without a request in them there is nothing to report on.
fn read(replay: &mut Replay, logs: &[String]) -> Result<(), String> {
    // The bytes of a log that is compressed are not those of its lines.
    let size = |log: &String| fs::metadata(log).ok().filter(|_| !log.ends_with(".gz")).map(|file| file.len());
    let mut progress = Progress::new(logs.iter().map(size).sum());
    replay.read(logs.iter().map(|log| LogSource::new(log)).collect(), &mut |bytes| progress.add(bytes))?;
    match replay.logs.iter().find_map(LogSource::first_unreadable) {
        _ if replay.requests > 0 => Ok(()),
        Some(first) => Err(format!("no line can be read; the first is {first}")),
        None => Err(format!("there is no line in {}", logs.join(", "))),
    }
}

/// Reads the profile of a file of settings.
fn profile_of(path: &Path, name: &str) -> Result<Check, String> {
    let text = file::read(path, file::MOST)?;
    Check::all(&text)
        .map_err(|(at, what)| file::spot(path, &text, at.start, &what))?
        .remove(name)
        .ok_or_else(|| format!("{} has no [check.{name}]", path.display()))
}
