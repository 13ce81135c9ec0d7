//! The names of limits in a response that has passed several limiters.
//!
//! Each limiter names its own: those of a proxy and of a layer behind it may both be `"default"`.
//! An item of `RateLimit` belongs to the policy of its name, so one of them gets another name.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Gives a policy another name if a line before has one of that name, and so the last item of
/// `RateLimit`. The lines of this proxy come last, with one item each.
pub(super) fn tell_apart(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(POLICY).iter();
    // Most responses have one.
    if lines.next().is_some() && lines.next().is_some() {
        rename(headers);
    }
}

fn rename(headers: &mut HeaderMap) {
    let mut policies: Vec<HeaderValue> = headers.get_all(POLICY).iter().cloned().collect();
    let mut limits: Vec<HeaderValue> = headers.get_all(LIMIT).iter().cloned().collect();
    for at in 1..policies.len() {
        let (before, own) = policies.split_at_mut(at);
        let taken = |name: &str| before.iter().flat_map(names).any(|other| other == name);
        let Some(name) = names(&own[0]).next().filter(|name| taken(name)).map(str::to_owned) else {
            continue;
        };
        let Some(bare) = name.strip_suffix('"') else { continue };
        let free = (2..).map(|number| format!("{bare}-{number}\"")).find(|name| !taken(name));
        let Some(free) = free else { continue };
        let of_limit = limits.iter_mut().rev().find(|line| names(line).next() == Some(&*name));
        for line in std::iter::once(&mut own[0]).chain(of_limit) {
            let rest = &line.as_bytes()[name.len()..];
            *line = HeaderValue::from_bytes(&[free.as_bytes(), rest].concat()).unwrap_or(line.clone());
        }
    }
    for (field, lines) in [(POLICY, policies), (LIMIT, limits)] {
        headers.remove(&field);
        for line in lines {
            headers.append(&field, line);
        }
    }
}

/// Returns the names in a list, with their quotes (RFC 9651, 3.1 and 3.3.3).
fn names(line: &HeaderValue) -> impl Iterator<Item = &str> {
    let mut rest = line.to_str().unwrap_or_default();
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([' ', ',', '\t']);
        let (mut is_quoted, mut is_escaped) = (false, false);
        let end = rest.find(|c| {
            let is_plain = !std::mem::take(&mut is_escaped);
            is_quoted ^= is_plain && c == '"';
            is_escaped = is_plain && is_quoted && c == '\\';
            c == ',' && !is_quoted
        });
        let (item, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        let (mut quotes, mut is_escaped) = (0, false);
        let name = item.find(|c| {
            quotes += usize::from(!is_escaped && c == '"');
            is_escaped = !is_escaped && c == '\\';
            quotes == 2
        });
        (!item.is_empty()).then(|| name.map_or(item, |end| &item[..=end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_taken_gets_a_number_in_both_fields() {
        for (policies, limits, after) in [
            (&[r#""a";q=1;w=1"#][..], &[r#""a";r=1;t=1"#][..], r#""a";q=1;w=1 / "a";r=1;t=1"#),
            (
                &[r#""a";q=1;w=1"#, r#""a";q=2;w=2"#],
                &[r#""a";r=1;t=1"#, r#""a";r=2;t=2"#],
                r#""a";q=1;w=1 | "a-2";q=2;w=2 / "a";r=1;t=1 | "a-2";r=2;t=2"#,
            ),
            // The one behind tells of its limit only when it is scarce. Lists are in one line.
            (
                &[r#""b,\",c";q=1 , "a";q=1,"a-2";q=3"#, r#""c";q=4"#, r#""a";q=2"#],
                &[r#""a";r=2"#],
                r#""b,\",c";q=1 , "a";q=1,"a-2";q=3 | "c";q=4 | "a-3";q=2 / "a-3";r=2"#,
            ),
            (&["", "?", "\"a", "\"a"], &[], r#" | ? | "a | "a / "#),
        ] {
            let mut headers = HeaderMap::new();
            for (field, lines) in [(POLICY, policies), (LIMIT, limits)] {
                for line in lines {
                    headers.append(&field, HeaderValue::from_static(line));
                }
            }
            tell_apart(&mut headers);
            let lines = |field| {
                let lines = headers.get_all(field).iter().map(|line| line.to_str().expect("ASCII"));
                lines.collect::<Vec<_>>().join(" | ")
            };
            assert_eq!(format!("{} / {}", lines(POLICY), lines(LIMIT)), after);
        }
    }
}
