//! The counts in the file of the state: the secret of the keys, and each table by its name.

use std::io;
use std::sync::Arc;

use siphasher::sip128::SipHasher13;

use super::counts::{CountOptions, LimitCounts};
use super::homes::Home;
use super::limit_paths::LimitPaths;
use super::limiters::{TextLimiter, Windows};
use crate::rules::tree::Unit;
use tollgate_common::state_file::{SavedPart, Writer, take_secret};

/// The name of the part with the paths of the limits. That of a table has other letters.
const PATHS: &str = "paths";

impl LimitCounts {
    /// Returns counts by the secret of a saved state, which know the rules of the save. It takes
    /// both out of the parts.
    pub(crate) fn of_saved(parts: &mut Vec<SavedPart>, options: &CountOptions) -> LimitCounts {
        let counts = match take_secret(parts) {
            Some(secret) => LimitCounts::by(SipHasher13::new_with_key(&secret), options),
            None => LimitCounts::new(options),
        };
        if let Some(index) = parts.iter().position(|part| part.name == PATHS) {
            let text = parts.remove(index).bytes;
            let home = |name: &str| counts.home_of(name);
            *counts.limit_paths() = LimitPaths::read(&String::from_utf8_lossy(&text), home);
        }
        counts
    }

    /// Writes the secret, the paths of the limits, and all tables.
    pub(crate) fn save(&self, to: &mut Writer) -> io::Result<()> {
        to.put_secret(&self.hasher.key())?;
        self.each_part(|name, bytes| to.put(name, bytes))
    }

    /// Returns the number of the keys that are held.
    pub(crate) fn keys(&self) -> usize {
        let of_texts: usize = self.all_texts().values().map(|limiter| limiter.table.stats().keys).sum();
        Unit::ALL.into_iter().map(|unit| self.of(unit).keys.len()).sum::<usize>() + of_texts
    }

    /// Merges the tables of another process, which has the same secret and took from the same
    /// counts: of each key the higher count holds. One that is refused is a warning.
    pub(crate) fn merge(&self, parts: Vec<SavedPart>) {
        let others = LimitCounts::by(self.hasher, &self.options);
        for part in parts.into_iter().filter(|part| part.name != PATHS) {
            if let Err(why) = others.restore(&part) {
                tracing::warn!("the state of `{}`, of another process, is not merged: {why}", part.name);
            }
        }
        for unit in Unit::ALL {
            others.of(unit).each(&mut |key, count| self.of(unit).raise(key, count));
        }
        for (text, other) in others.all_texts() {
            let own = self.any_text_limiter(text);
            other.table.each(&mut |key, remaining| own.table.lower(key, remaining));
        }
    }

    /// Calls `put` with each part but the secret.
    pub(super) fn each_part(&self, mut put: impl FnMut(&str, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let paths = self.limit_paths();
        put(PATHS, paths.save().as_bytes())?;
        let (texts, has_past) = (self.all_texts(), paths.have_past());
        drop(paths);
        let units = Unit::ALL.map(|unit| self.of(unit));
        let units = units.into_iter().map(|windows| (windows.unit.text().to_owned(), Saved::Unit(windows)));
        let texts = texts.iter().map(|(text, limiter)| (text.to_string(), Saved::Text(limiter)));
        let tables: Vec<_> = units.chain(texts).collect();
        if !has_past {
            return tables.iter().try_for_each(|(of, table)| put(&named(of), &table.bytes()));
        }
        // A key that moves meanwhile would be in neither table, and is the slower for it.
        let still = self.moves.stop();
        let saved: Vec<_> = tables.iter().map(|(of, table)| (named(of), table.bytes())).collect();
        drop(still);
        saved.iter().try_for_each(|(name, bytes)| put(name, bytes))
    }

    /// Restores a table, after the rules are loaded and before the first decision.
    pub(crate) fn restore(&self, part: &SavedPart) -> Result<(), String> {
        // An earlier version had two tables of each, `fixed` and `open`.
        let missing = "there is no such table";
        let (name, _) = part.name.rsplit_once(' ').ok_or(missing)?;
        let restored = match Unit::named(name) {
            Some(unit) => self.of(unit).keys.restore(&part.bytes),
            None => {
                let text = name.parse().map_err(|_| missing)?;
                self.any_text_limiter(text).table.restore(&part.bytes)
            }
        };
        restored.map_err(|why| why.to_string())
    }

    /// Returns the home of a name in a saved state.
    fn home_of(&self, name: &str) -> Option<Home> {
        if let Some((unit, requests)) = name.split_once(' ')
            && let (Some(unit), Ok(requests)) = (Unit::named(unit), requests.parse())
        {
            return Some(self.windows_home(unit, requests));
        }
        Some(Home::Text(self.any_text_limiter(name.parse().ok()?)))
    }
}

/// Returns the name of the table of a unit or of a text.
fn named(of: &str) -> String {
    format!("{of} keys")
}

/// A table to save.
enum Saved<'a> {
    Unit(&'a Windows),
    Text(&'a Arc<TextLimiter>),
}

impl Saved<'_> {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Saved::Unit(windows) => windows.keys.save(),
            Saved::Text(limiter) => limiter.table.save(),
        }
    }
}
