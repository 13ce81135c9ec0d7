//! Values of rules that are probably read in another way than they are meant.
//!
//! A value is compared as a whole, byte by byte, and `*` alone stands for other characters.

use std::net::IpAddr;

use ipnet::IpNet;

/// The key of Envoy whose values are networks.
const MASKED: &str = "masked_remote_address";

/// Returns the doubt about a rule of a key and a value, if there is one.
pub(super) fn of_value(key: &str, value: &str) -> Option<String> {
    let spaced = [("key", key), ("value", value)].into_iter().find(|(_, text)| has_space(text));
    if let Some((name, text)) = spaced {
        return Some(format!("the {name} {text:?} has white space that no request has; '>-' leaves it out"));
    }
    let told = if key != MASKED && is_network(value) {
        format!("is compared as a text, and no address is the same; '{MASKED}' has networks")
    } else if is_expression(value) {
        "is compared as a text, and not as a regular expression; '*' is the only wildcard".to_owned()
    } else if value.starts_with('/') && value.contains('?') && !value.contains('*') {
        "has a query: a path with another query passes it by".to_owned()
    } else {
        return None;
    };
    Some(format!("the value '{value}' {told}"))
}

/// Returns the reason why the value of a rule is not that of a request, though it looks like it.
pub(super) fn of_miss(value: &str, asked: &str) -> Option<String> {
    let rule = format!("the rule {value:?}");
    if value.trim() == asked {
        return Some(format!("{rule} has white space at an end"));
    }
    if asked.strip_prefix(value.trim()).is_some_and(|rest| rest.starts_with(" #")) {
        return Some(format!("{rule} ends before ' #', where a comment of YAML begins; quotes keep it"));
    }
    if let (Ok(network), Ok(address)) = (value.parse::<IpNet>(), asked.parse::<IpAddr>())
        && network.contains(&address)
    {
        return Some(format!("{rule} is a network, and is compared as a text"));
    }
    if is_expression(value) {
        return Some(format!("{rule} is no regular expression; '*' is the only wildcard"));
    }
    match value.split_once('?').is_some_and(|(path, _)| path == asked) {
        true => Some(format!("{rule} has a query, and the request has none")),
        false if value.is_empty() || value.contains('*') => None,
        false if asked.strip_prefix(value).is_some_and(|rest| rest.starts_with('?')) => {
            Some(format!("the request has a query, and {rule} has none; '{value}?*' takes any"))
        }
        false if asked.starts_with(value) => Some(format!(
            "{rule} is a beginning only, and a value is compared as a whole; '{value}*' takes the rest"
        )),
        false => None,
    }
}

/// Returns whether a text is a network, also one of a single address: `10.0.0.1/32` is no address.
fn is_network(text: &str) -> bool {
    text.parse::<IpNet>().is_ok()
}

/// Returns whether a text has white space at an end, or a character that no header has.
fn has_space(text: &str) -> bool {
    text.trim() != text || text.contains(char::is_control)
}

/// Returns whether a text has a sign of regular expressions. In a name such as
/// `10.0.*` the dot is itself.
fn is_expression(text: &str) -> bool {
    const ANY: [&str; 10] = ["/.*", "/.+", ").*", "]*", "]+", "]{", "\\d", "\\w", "\\s", "\\."];
    let has_choice = text.contains('(') && text.contains('|') && text.contains(')');
    let has_end = text.len() > 1 && (text.starts_with('^') || text.ends_with('$'));
    has_end || has_choice || text.starts_with(".*") || ANY.iter().any(|any| text.contains(any))
}
