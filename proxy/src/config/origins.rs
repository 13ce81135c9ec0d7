//! The settings that a file or the options name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use super::rows::settings;
use super::settings::{Route, Settings};
use super::table::{Set, Text, Texts};
use tollgate_common::settings::fault::unknown;

/// The texts of one source, by the names of their settings.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    /// The folder of the file.
    pub(super) folder: PathBuf,
    pub(super) texts: BTreeMap<&'static str, Texts>,
    pub(super) routes: Vec<RouteTable>,
}

/// The texts of a route, and the place of its table.
#[derive(Clone, Debug)]
pub(super) struct RouteTable {
    pub(super) texts: BTreeMap<&'static str, Texts>,
    pub(super) at: usize,
}

/// The time-outs, each by its name in the file.
const TIMEOUT: &str = "timeout";

impl clap::Args for Given {
    fn augment_args(mut command: Command) -> Command {
        let default = Settings::default();
        for setting in settings().filter(|setting| !setting.option.is_empty()) {
            let long = setting.long();
            let (first, rest) = setting.help.split_at(1);
            let value = (setting.show)(&default).map(|(value, _)| format!(" [{value}]"));
            let (rest, own) = rest.split_once(" [").map_or((rest, None), |(rest, own)| (rest, Some(own)));
            let value = own.map(|own| format!(" [{own}")).or(value).unwrap_or_default();
            let more = if matches!(setting.set, Set::Each(_)) { "; may be given more than once" } else { "" };
            let help = format!("{}{rest}{more}{value}", first.to_uppercase());
            let form = setting.option.split_once(' ').map_or("BOOL", |(_, form)| form);
            let arg = Arg::new(long).long(long).help(help).value_name(form);
            command = command.arg(match setting.set {
                Set::Each(_) => arg.action(ArgAction::Append),
                Set::Switch(_) => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
                Set::One(_) if long == "admin" => arg.num_args(0..=1).default_missing_value("127.0.0.1:8081"),
                Set::One(_) => arg,
            });
        }
        let help = "A time-out by its name in [timeouts] of the file; may be given more than once";
        let timeout = Arg::new(TIMEOUT).long(TIMEOUT).value_name("NAME=DURATION").help(help);
        command.arg(timeout.action(ArgAction::Append))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Given::augment_args(command)
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Given, clap::Error> {
        let mut given = Given::default();
        given.update_from_arg_matches(matches)?;
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let is_quoted = |text: &&String| !matches!(text.as_str(), "true" | "false");
        let text = |text: &String| Text { text: text.clone(), is_quoted: is_quoted(&text), at: None };
        for setting in settings().filter(|setting| !setting.option.is_empty()) {
            if let Some(texts) = matches.get_many::<String>(setting.long()) {
                let texts = texts.map(text).collect();
                self.texts.insert(setting.name, Texts { texts, is_list: false, at: None });
            }
        }
        for given in matches.get_many::<String>(TIMEOUT).into_iter().flatten() {
            let wrong =
                |why: String| clap::Error::raw(ErrorKind::ValueValidation, format!("--timeout: {why}"));
            let form = || wrong("expected NAME=DURATION such as connect=5s".to_owned());
            let (name, time) = given.split_once('=').ok_or_else(form)?;
            let times = || settings().filter_map(|time| Some((time.name.strip_prefix("timeouts.")?, time)));
            let names = || times().map(|(name, _)| name).collect::<Vec<_>>();
            let known = times().find(|time| time.0 == name);
            let (_, setting) = known.ok_or_else(|| wrong(unknown(name, &names())))?;
            self.texts.insert(setting.name, Texts::one(text(&time.to_owned())));
        }
        Ok(())
    }
}

/// The two sources of settings: the options override the file.
#[derive(Clone, Copy)]
pub(super) struct Origins<'a> {
    pub(super) file: &'a Given,
    pub(super) options: &'a Given,
}

impl<'a> Origins<'a> {
    /// Returns the texts that are in force of a setting.
    pub(super) fn texts(&self, name: &str) -> Option<&'a Texts> {
        self.options.texts.get(name).or(self.file.texts.get(name))
    }

    /// Returns the place of a setting, if the file has it and no option does.
    pub(super) fn at(&self, name: &str) -> Option<usize> {
        self.texts(name)?.at
    }

    /// Returns the place of a field of a route, or of the same setting for requests under none.
    pub(super) fn at_limit(&self, route: Option<&Route>, field: &str) -> Option<usize> {
        let Some(route) = route else { return self.at(field) };
        let is_its = |table: &&RouteTable| table.name().texts.iter().any(|name| name.text == route.name);
        self.file.routes.iter().find(is_its)?.texts.get(field)?.at
    }
}

impl RouteTable {
    /// Returns the name, which is the prefix if none is given. There is a prefix.
    pub(super) fn name(&self) -> &Texts {
        self.texts.get("name").unwrap_or(&self.texts["prefix"])
    }
}
