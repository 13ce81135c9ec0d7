//! The paths that a target may mean.

use std::borrow::Cow;

use crate::serve::messages::text_of;
use tollgate_common::paths::{marks, readings};

/// Returns each path that a server may look up for a target: its readings, those without a slash at
/// their end, and in lower case unless case counts. `None` if there are too many.
pub(super) fn paths_of(target: &str, is_case_sensitive: bool) -> Option<Vec<Cow<'_, str>>> {
    let path = path_of(target);
    let has_case = !is_case_sensitive && path.bytes().any(|byte| byte.is_ascii_uppercase());
    if marks(path.as_bytes()) == 0 && !has_case && (path.len() == 1 || !path.ends_with('/')) {
        return Some(vec![Cow::Borrowed(path)]);
    }
    let mut found: Vec<Cow<'_, str>> = Vec::new();
    let mut add = |path: &str| {
        if !found.iter().any(|known| known == path) {
            found.push(path.to_owned().into());
        }
    };
    let readings = match marks(path.as_bytes()) {
        0 => vec![path.as_bytes().to_vec()],
        _ => readings(path.as_bytes())?.into_iter().map(|reading| reading.path).collect(),
    };
    for reading in readings {
        let reading = text_of(&reading);
        let bare = Some(reading.trim_end_matches('/')).filter(|bare| !bare.is_empty()).unwrap_or("/");
        for path in [&reading, bare] {
            add(path);
            if !is_case_sensitive {
                add(&path.to_ascii_lowercase());
            }
        }
    }
    Some(found)
}

/// Returns the path of a target, which may have the form of a URL.
fn path_of(target: &str) -> &str {
    let path = match target.split_once("://") {
        Some((_, rest)) if !target.starts_with('/') => {
            &rest[rest.find(['/', '?', '#']).unwrap_or(rest.len())..]
        }
        _ => target,
    };
    let path = path.split(['?', '#']).next().unwrap_or(path);
    if path.is_empty() { "/" } else { path }
}

/// Returns the name of a host, without its port, in lower case.
pub(super) fn host_of(text: &str) -> String {
    // The colons of an IPv6 address stand in brackets.
    let from = text.find(']').unwrap_or(0);
    let end = text[from..].find(':').map_or(text.len(), |at| from + at);
    text[..end].trim().trim_end_matches('.').to_ascii_lowercase()
}
