//! The options of a command line, one for each setting of a table that has one.

use std::marker::PhantomData;

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use super::given::{Given, Origin, Text, Texts};
use super::table::{Set, Setting};

/// The table of a program.
pub trait Table: 'static {
    type Settings: 'static;

    /// Returns all settings, in the order in which they are told.
    fn settings() -> impl Iterator<Item = &'static Setting<Self::Settings>>;

    /// Returns the settings that no source has changed.
    fn defaults() -> Self::Settings;
}

/// The options of a program that are given.
#[derive(Clone, Debug, Default)]
pub struct TableOptions<P> {
    pub given: Given,
    of: PhantomData<P>,
}

impl<P: Table> TableOptions<P> {
    fn settings() -> impl Iterator<Item = &'static Setting<P::Settings>> {
        P::settings().filter(|setting| !setting.option.is_empty() && !setting.has_shared_option())
    }
}

impl<P: Table> clap::Args for TableOptions<P> {
    fn augment_args(mut command: Command) -> Command {
        let defaults = P::defaults();
        for setting in Self::settings() {
            let long = setting.long();
            let arg = Arg::new(long).long(long).help(help(setting, &defaults));
            let arg = arg.value_name(setting.form().unwrap_or("BOOL"));
            command = command.arg(match setting.set {
                Set::Each(_) => arg.action(ArgAction::Append),
                Set::OneOr(text, _) => arg.num_args(0..=1).default_missing_value(text),
                _ if setting.form().is_none() => {
                    arg.num_args(0..=1).require_equals(true).default_missing_value("true")
                }
                _ => arg,
            });
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<P: Table> FromArgMatches for TableOptions<P> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<TableOptions<P>, clap::Error> {
        let mut options = TableOptions { given: Given::default(), of: PhantomData };
        options.update_from_arg_matches(matches)?;
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let from = Origin::Option;
        let of = |setting: &Setting<P::Settings>| {
            let texts = matches.get_many::<String>(setting.long())?;
            let texts = texts.map(|text| Text { text: text.clone(), from }).collect();
            Some((setting.name, Texts { texts, is_list: false, from }))
        };
        self.given.texts.extend(Self::settings().filter_map(of));
        Ok(())
    }
}

/// Returns the sentence of an option, with the default and the variable.
fn help<T>(setting: &Setting<T>, defaults: &T) -> String {
    let (first, rest) = setting.help.split_at(1);
    let (rest, own) = rest.split_once(" [").map_or((rest, None), |(rest, own)| (rest, Some(own)));
    let shown = || setting.shown(defaults).map_or(setting.usual().to_owned(), |(value, _)| value);
    let default = own.map_or_else(|| bracketed(&shown()), |own| format!(" [{own}"));
    let more = if matches!(setting.set, Set::Each(_)) { "; may be given more than once" } else { "" };
    let variable = if setting.variable.is_empty() { "" } else { ", " };
    format!("{}{rest}{more}{default}{variable}{}", first.to_uppercase(), setting.variable)
}

/// Returns a default in its brackets, or nothing if there is none.
fn bracketed(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" [{text}]") }
}

/// Returns the list of the variables that have no option.
pub fn variables_alone<P: Table>() -> String {
    let mut text = String::new();
    for setting in P::settings().filter(|setting| setting.option.is_empty() && !setting.variable.is_empty()) {
        text += &format!("  {:40} {}{}\n", setting.variable, setting.help, bracketed(setting.usual()));
    }
    text
}
