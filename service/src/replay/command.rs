//! The command line of `tollgate replay`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};

use super::lines::FieldNames;
use super::logs::LogSource;
use super::run::{Progress, Replay, Side};
use crate::arguments::{flag, many, one, option, paths};
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

/// The options of `tollgate replay`.
pub(crate) struct ReplayOptions {
    paths: Vec<PathBuf>,
    config: PathBuf,
    /// The name of the profile.
    check: String,
    logs: Vec<String>,
    against: Vec<PathBuf>,
    field: Vec<String>,
    algorithm: Algorithm,
    max_keys: usize,
    store: TableOptions<StoreTable>,
    json: bool,
    picture: Option<PathBuf>,
}

impl ReplayOptions {
    /// Returns a command that has these options.
    pub(crate) fn of(command: Command) -> Command {
        let path = || value_parser!(PathBuf);
        let check = option(
            "check",
            "NAME",
            "The profile that makes requests of lines, and the logs, also with options between; `-` is standard \
             input",
        );
        let field = "The field of a log in JSON for time, client, method, path, decision or header:NAME";
        let algorithm = "How `unit` and `requests_per_unit` are counted: fixed_window or token_bucket";
        let command = command
            .arg(paths("The files of the limits, or folders of them").required(true))
            .arg(
                option("config", "CONFIG", "The settings, with the table `[check.NAME]`")
                    .value_parser(path())
                    .required(true),
            )
            .arg(check.num_args(1..).value_names(["NAME", "LOG"]).action(ArgAction::Append).required(true))
            .arg(
                option("against", "PATH", "Another configuration to set beside the first one")
                    .value_parser(path())
                    .action(ArgAction::Append),
            )
            .arg(option("field", "WHAT=FIELD", field).action(ArgAction::Append))
            .arg(
                option("algorithm", "ALGORITHM", algorithm)
                    .default_value("fixed_window")
                    .value_parser(|text: &str| choice(text, &Algorithm::NAMES)),
            )
            .arg(
                option("max-keys", "MAX_KEYS", "The most keys of each unit")
                    .default_value("4194304")
                    .value_parser(value_parser!(usize)),
            );
        TableOptions::<StoreTable>::augment_args(command).arg(flag("json", "Print the report as JSON")).arg(
            option("picture", "FILE.svg", "Write a picture of requests and refusals over time")
                .value_parser(path()),
        )
    }

    /// Returns the options that were given, with the logs that clap takes for paths.
    pub(crate) fn given(matches: &ArgMatches) -> Result<ReplayOptions, clap::Error> {
        let (mut paths, mut check) = (many::<PathBuf>(matches, "paths"), many::<String>(matches, "check"));
        let mut logs = check.split_off(1);
        if logs.is_empty() {
            // An option stands between the name and the logs, which clap takes for paths.
            let check = matches.indices_of("check").and_then(|mut at| at.next());
            let before = matches.indices_of("paths").into_iter().flatten().filter(|at| Some(*at) < check);
            let behind = paths.split_off(before.count());
            logs.extend(behind.iter().map(|path| path.to_string_lossy().into_owned()));
        }
        Ok(ReplayOptions {
            paths,
            config: one(matches, "config"),
            check: check.remove(0),
            logs,
            against: many(matches, "against"),
            field: many(matches, "field"),
            algorithm: one(matches, "algorithm"),
            max_keys: one(matches, "max-keys"),
            store: TableOptions::from_arg_matches(matches)?,
            json: matches.get_flag("json"),
            picture: matches.get_one("picture").cloned(),
        })
    }
}

/// Replays the logs, and prints the report.
pub(crate) fn run(options: &ReplayOptions) -> Result<bool, String> {
    let logs = &options.logs;
    if logs.is_empty() || options.paths.is_empty() {
        let missing =
            if logs.is_empty() { "a log behind its name" } else { "the files of the limits before it" };
        return Err(format!("--check needs {missing}"));
    }
    let profile = profile_of(&options.config, &options.check)?;
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
