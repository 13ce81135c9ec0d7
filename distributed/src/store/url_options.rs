//! The options of a store in its URL.

use std::str::FromStr;
use std::time::Duration;

use super::error::{StoreError, StoreErrorKind};

/// The options of a URL that are those of a store: pairs of a name and a value.
pub(crate) struct UrlOptions<'u>(Vec<(&'u str, &'u str)>);

impl<'u> UrlOptions<'u> {
    /// Returns the URL without the options of these names, and the options.
    pub(crate) fn split(url: &'u str, names: &[&str]) -> (String, UrlOptions<'u>) {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut options = Vec::new();
        let others = query.split('&').filter(|pair| {
            let option = pair.split_once('=').filter(|(name, _)| names.contains(name));
            options.extend(option);
            option.is_none() && !pair.is_empty()
        });
        let others: Vec<&str> = others.collect();
        let mark = if others.is_empty() { "" } else { "?" };
        (format!("{base}{mark}{}", others.join("&")), UrlOptions(options))
    }

    /// Sets a value, if the URL has it.
    ///
    /// # Errors
    ///
    /// A permanent error if it cannot be read.
    pub(crate) fn set<T: FromStr>(&self, name: &str, value: &mut T) -> Result<(), StoreError> {
        for (_, text) in self.0.iter().filter(|(own, _)| *own == name) {
            let why = || format!("the option {name}={text} of the URL cannot be read");
            *value = text.parse().map_err(|_| StoreError::new(StoreErrorKind::Permanent, why()))?;
        }
        Ok(())
    }

    /// Sets a time, which the URL has in milliseconds.
    ///
    /// # Errors
    ///
    /// As those of [`set`](Self::set).
    pub(crate) fn set_time(&self, name: &str, value: &mut Duration) -> Result<(), StoreError> {
        let mut millis = u64::try_from(value.as_millis()).unwrap_or(u64::MAX);
        self.set(name, &mut millis)?;
        *value = Duration::from_millis(millis);
        Ok(())
    }
}
