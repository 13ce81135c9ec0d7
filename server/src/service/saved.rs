//! The counts in the file of the state: the secret of the keys, and each table by its name.

use std::io;
use std::sync::PoisonError;

use siphasher::sip128::SipHasher13;
use tollgate::AnyRule;

use super::counts::{CountOptions, LimitCounts};
use crate::rules::tree::Unit;
use crate::state_file::{SavedPart, Writer, take_secret};

impl LimitCounts {
    /// Returns counts by the secret of a saved state. It takes the secret out of the parts.
    pub(crate) fn of_saved(parts: &mut Vec<SavedPart>, options: &CountOptions) -> LimitCounts {
        match take_secret(parts) {
            Some(secret) => LimitCounts::by(SipHasher13::new_with_key(&secret), options),
            None => LimitCounts::new(options),
        }
    }

    /// Writes the secret and all tables.
    pub(crate) fn save(&self, to: &mut Writer) -> io::Result<()> {
        to.put_secret(&self.hasher.key())?;
        for unit in Unit::ALL {
            for (kind, table) in self.of(unit).named() {
                to.put(&format!("{} {kind}", unit.text()), &table.0.save())?;
            }
        }
        let texts = self.texts.read().unwrap_or_else(PoisonError::into_inner).clone();
        for (text, limiter) in texts {
            for (kind, table) in limiter.tables.named() {
                to.put(&format!("{text} {kind}"), &table.save())?;
            }
        }
        Ok(())
    }

    /// Returns the number of the keys that are held.
    pub(crate) fn keys(&self) -> usize {
        let texts = self.texts.read().unwrap_or_else(PoisonError::into_inner);
        let of_texts =
            texts.values().flat_map(|limiter| limiter.tables.named()).map(|(_, table)| table.keys());
        let units = Unit::ALL.into_iter().flat_map(|unit| self.of(unit).named());
        units.map(|(_, table)| table.0.stats().keys).chain(of_texts).sum()
    }

    /// Merges the tables of another process, which has the same secret and took from the same
    /// counts: of each key the higher count holds. One that is refused is a warning.
    pub(crate) fn merge(&self, parts: Vec<SavedPart>) {
        let others = LimitCounts::by(self.hasher, &self.options);
        for part in parts {
            if let Err(why) = others.restore(&part) {
                tracing::warn!("the state of `{}`, of another process, is not merged: {why}", part.name);
            }
        }
        for unit in Unit::ALL {
            for ((_, own), (_, other)) in self.of(unit).named().into_iter().zip(others.of(unit).named()) {
                other.each(&mut |key, count| own.raise(key, count));
            }
        }
        let texts = others.texts.read().unwrap_or_else(PoisonError::into_inner);
        let both = texts.iter().filter_map(|(text, other)| Some((self.text_limiter(*text)?, other)));
        for (own, other) in both {
            for ((_, own), (_, other)) in own.tables.named().into_iter().zip(other.tables.named()) {
                other.each(&mut |key, remaining| own.lower(key, remaining));
            }
        }
    }

    /// Restores a table, after the rules are loaded and before the first decision. The load would
    /// remove the limiters of overrides.
    pub(crate) fn restore(&self, part: &SavedPart) -> Result<(), String> {
        let (of, kind) = part.name.rsplit_once(' ').unwrap_or_default();
        let missing = || "there is no such table".to_owned();
        let restored = if let Some(unit) = Unit::ALL.into_iter().find(|unit| unit.text() == of) {
            let named = self.of(unit).named().into_iter().find(|(name, _)| *name == kind);
            named.ok_or_else(missing)?.1.0.restore(&part.bytes)
        } else {
            let text: AnyRule = of.parse().map_err(|_| missing())?;
            let limiter = self.text_limiter(text).ok_or("there are too many texts")?;
            let named = limiter.tables.named().into_iter().find(|(name, _)| *name == kind);
            named.ok_or_else(missing)?.1.restore(&part.bytes)
        };
        restored.map_err(|why| why.to_string())
    }
}
