//! The command line of `tollgate replay`.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use clap::Args;

use super::lines::FieldNames;
use super::run::{Progress, Replay, Side};
use crate::check;
use crate::output::say;
use crate::rules::load::load;
use crate::service::checks::Check;
use crate::service::counts::{Algorithm, CountOptions};
use crate::settings::file;
use crate::settings::values::choice;

/// The options of `tollgate replay`.
#[derive(Args)]
pub(crate) struct ReplayOptions {
    /// The files of the limits, or folders of them
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The settings, with the table `[check.NAME]`
    #[arg(long)]
    config: PathBuf,
    /// The profile that makes requests of lines, and the logs; `-` is standard input
    #[arg(long, num_args = 2.., value_names = ["NAME", "LOG"])]
    check: Vec<String>,
    /// Another configuration to set beside the first one
    #[arg(long, value_name = "PATH")]
    against: Vec<PathBuf>,
    /// The field of a log in JSON for time, client, method, path or header:NAME
    #[arg(long, value_name = "WHAT=FIELD")]
    field: Vec<String>,
    /// How `unit` and `requests_per_unit` are counted: fixed_window or token_bucket
    #[arg(long, default_value = "fixed_window", value_parser = |text: &str| choice(text, &Algorithm::NAMES))]
    algorithm: Algorithm,
    /// The most keys of each unit
    #[arg(long, default_value_t = 1 << 22)]
    max_keys: usize,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write a picture of requests and refusals over time
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
}

/// Replays the logs, and prints the report.
pub(crate) fn run(options: &ReplayOptions) -> Result<bool, String> {
    let (name, logs) = options.check.split_first().ok_or("--check needs a name and a log")?;
    let profile = profile_of(&options.config, name)?;
    let mut fields = FieldNames::default();
    options.field.iter().try_for_each(|text| fields.set(text))?;
    let side = |paths: &[PathBuf]| {
        let counts = CountOptions {
            max_keys: options.max_keys,
            algorithm: options.algorithm,
            ..CountOptions::default()
        };
        let rules = load(&check::read(paths)?, check::options()?);
        let sentence = |errors: Vec<_>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        Side::new(rules.map_err(sentence)?, counts)
    };
    let mut sides = vec![side(&options.paths)?];
    if !options.against.is_empty() {
        sides.push(side(&options.against)?);
    }
    let mut replay = Replay::new(profile, fields, sides);
    read(&mut replay, logs)?;
    replay.end();
    if let Some(path) = &options.picture {
        let cannot = |error| format!("cannot write {}: {error}", path.display());
        fs::write(path, replay.timeline.svg()).map_err(cannot)?;
    }
    let report = replay.report();
    say(format_args!(
        "{}",
        if options.json { format!("{report:#}") } else { replay.text(&report) }.trim_end()
    ));
    Ok(true)
}

fn read(replay: &mut Replay, logs: &[String]) -> Result<(), String> {
    let sizes = logs.iter().map(|log| Some(fs::metadata(log).ok()?.len()));
    let mut progress = Progress::new(sizes.sum());
    for log in logs {
        let cannot = |error: io::Error| format!("cannot read {log}: {error}");
        let mut reader: Box<dyn BufRead> = match log.as_str() {
            "-" => Box::new(io::stdin().lock()),
            path => Box::new(BufReader::with_capacity(1 << 16, File::open(path).map_err(cannot)?)),
        };
        replay.read(&mut *reader, &mut |bytes| progress.add(bytes)).map_err(cannot)?;
    }
    Ok(())
}

/// Reads the profile of a file of settings.
fn profile_of(path: &Path, name: &str) -> Result<Check, String> {
    let text = file::read(path, file::MOST)?;
    Check::all(&text)
        .map_err(|(at, what)| file::place(path, &text, at.start, &what))?
        .remove(name)
        .ok_or_else(|| format!("{} has no [check.{name}]", path.display()))
}
