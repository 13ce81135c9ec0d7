//! The file of routes, and which paths are under one.
//!
//! ```toml
//! [[route]]
//! prefix = "/login"           # and /login/..., but not /logins
//! limit = "5/m burst 5"       # of each client
//! name = "login"              # for clients and statistics; the prefix if it is not given
//! cost = 1                    # tokens for each request
//! ```

use std::path::Path;

use serde::Deserialize;
use tollgate::Quota;
use tollgate::http::Policy;
use toml::Spanned;

/// A route as the file has it.
pub(crate) struct Entry {
    pub(crate) name: String,
    /// [Plain](plain).
    pub(crate) prefix: String,
    pub(crate) quota: Quota,
    pub(crate) cost: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    route: Vec<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    prefix: Spanned<String>,
    limit: Quota,
    name: Option<Spanned<String>>,
    cost: Option<Spanned<u64>>,
}

/// Reads a file. An error is one line that says which file, which line of it, and what would do.
pub(crate) fn read(file: &Path) -> Result<Vec<Entry>, String> {
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| format!("error: cannot read {}: {error}", file.display()))?;
    parse(&text).map_err(|(at, what)| {
        let line = 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
        format!("error: {}:{line}: {what}", file.display())
    })
}

/// An error is the byte where it is, and a sentence.
fn parse(text: &str) -> Result<Vec<Entry>, (usize, String)> {
    let file: File = toml::from_str(text).map_err(|error| {
        let what = error.message().lines().collect::<Vec<_>>().join(", ");
        (error.span().map_or(0, |span| span.start), what)
    })?;
    let mut entries: Vec<Entry> = Vec::new();
    for Table { prefix, limit, name, cost } in file.route {
        let at = prefix.span().start;
        if !prefix.as_ref().starts_with('/') {
            return Err((at, format!("the prefix `{}` does not begin with `/`", prefix.as_ref())));
        }
        let name = name.unwrap_or_else(|| prefix.clone());
        if let Err(why) = Policy::new(name.as_ref(), limit) {
            return Err((name.span().start, format!("the name `{}`: {why}", name.as_ref())));
        }
        if let Some(cost) = &cost
            && !(1..=limit.capacity()).contains(cost.as_ref())
        {
            let (cost, burst, at) = (cost.as_ref(), limit.capacity(), cost.span().start);
            return Err((at, format!("a cost of {cost} is out of the bounds of 1 and the burst, {burst}")));
        }
        let (prefix, cost) = (plain(prefix.as_ref()), cost.map_or(1, Spanned::into_inner));
        if name.as_ref() == "default" || entries.iter().any(|entry| entry.name == *name.as_ref()) {
            return Err((name.span().start, format!("the name `{}` is taken", name.as_ref())));
        }
        if entries.iter().any(|entry| entry.prefix == prefix) {
            return Err((at, "another route has this prefix".to_owned()));
        }
        entries.push(Entry { name: name.into_inner(), prefix, quota: limit, cost });
    }
    Ok(entries)
}

/// A path without what most servers overlook: escapes, empty segments, dots (RFC 3986, 6.2.2). Or whoever writes `//login` or
/// `/%6cogin` would be under no route. It is empty for `/`.
pub(crate) fn plain(path: &str) -> String {
    let path = unescaped(path);
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => (),
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    segments.iter().flat_map(|segment| ["/", segment]).collect()
}

fn unescaped(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut parts = path.split('%');
    bytes.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        let escape = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match escape.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(part[2..].bytes());
            }
            None => {
                bytes.push(b'%');
                bytes.extend(part.bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether a path is the prefix or something below it. Both are [plain](plain).
pub(crate) fn is_under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
