//! The fields of `rate_limit`: the amount that a limit grants, and the limits that it replaces.

use std::collections::HashSet;

use tollgate::{AnyRule, InvalidRule, Quota};

use super::error::{Spot, meant};
use super::fields::{Fields, Report, Section};
use super::tree::{Amount, Unit};
use super::yaml::Content;

/// The most distinct texts of limits: each has a limiter of its own, of some 44 kB.
const MAX_TEXTS: usize = 256;
/// The most limits of a list: each takes the time and the memory of a limit.
pub(crate) const MAX_ITEMS: usize = 8;

pub(super) const RATE_LIMIT: Section = Section {
    name: "rate_limit",
    fields: &[
        "unit",
        "requests_per_unit",
        "unlimited",
        "name",
        "replaces",
        "limit",
        "limits",
        "charge",
        "unit_multiplier",
    ],
};
const ITEM: Section =
    Section { name: "a limit of 'limits'", fields: &["unit", "requests_per_unit", "unit_multiplier"] };
const REPLACES: Section = Section { name: "replaces", fields: &["name"] };

/// The distinct texts of limits so far.
#[derive(Default)]
pub(super) struct Texts(HashSet<Box<str>>);

/// Returns the amounts of a limit: one, unless it is a list.
pub(super) fn amounts(
    fields: &Fields<'_, '_>,
    texts: &mut Texts,
    report: &mut Report,
) -> Option<Vec<(Amount, Spot)>> {
    let Some(node) = fields.get("limits") else {
        return amount(fields, texts, report).map(|amount| vec![(amount, fields.at)]);
    };
    let others = ["unlimited", "requests_per_unit", "unit", "unit_multiplier", "limit"];
    if let Some(other) = others.into_iter().find(|other| fields.get(other).is_some()) {
        report.error(fields.spot(other), format!("'{other}' cannot stand beside 'limits'"));
    }
    report.note(node.at, "'limits' is of tollgate: envoyproxy/ratelimit refuses the file".to_owned());
    let items = fields.list("limits", report);
    if items.is_empty() || items.len() > MAX_ITEMS {
        let what = format!("'limits' has 1 to {MAX_ITEMS} limits, and not {}", items.len());
        report.error(node.at, what);
        return None;
    }
    let mut amounts: Vec<(Amount, Spot)> = Vec::new();
    for item in items {
        let read = match item.kind() {
            Content::Scalar { text, .. } => texts.rule(text, item.at, report),
            _ => Fields::of(item, &ITEM, report).and_then(|fields| {
                let other = ["unlimited", "limit"].into_iter().find(|name| fields.get(name).is_some());
                if let Some(other) = other {
                    let what =
                        format!("'{other}' cannot stand in a limit of 'limits', which is a text or a window");
                    report.error(fields.spot(other), what);
                    return None;
                }
                amount(&fields, texts, report)
            }),
        };
        let Some(read) = read else { continue };
        if let Some((first, _)) = amounts.iter().find(|(other, _)| other.shares(&read)) {
            let what = format!(
                "'{}' has the count of '{}' in this list: one of both goes",
                read.name(),
                first.name()
            );
            report.error(item.at, what);
        }
        amounts.push((read, item.at));
    }
    (!amounts.is_empty()).then_some(amounts)
}

/// Returns the amount of a limit.
fn amount(fields: &Fields<'_, '_>, texts: &mut Texts, report: &mut Report) -> Option<Amount> {
    let unlimited = fields.flag("unlimited", report);
    let requests = fields.number("requests_per_unit", 0..=u32::MAX, report);
    let unit = fields.text("unit", report);
    let times = fields.number("unit_multiplier", 1..=u32::MAX, report);
    if let Some(node) = fields.get("limit") {
        let others = [
            ("unlimited", unlimited),
            ("requests_per_unit", requests.is_some()),
            ("unit", !unit.is_empty()),
            ("unit_multiplier", times.is_some()),
        ];
        if let Some((other, _)) = others.into_iter().find(|(_, is_there)| *is_there) {
            report.error(fields.spot(other), format!("'{other}' cannot stand beside 'limit'"));
        }
        report.note(node.at, "'limit' is of tollgate: envoyproxy/ratelimit refuses the file".to_owned());
        let text = fields.text("limit", report);
        return texts.rule(text, node.at, report);
    }
    if unlimited {
        if !unit.is_empty() {
            let what = "should not specify rate limit unit when unlimited; one of both goes".to_owned();
            report.error(fields.spot("unit"), what);
        } else if times.is_some() {
            let what = "'unit_multiplier' cannot stand beside 'unlimited'".to_owned();
            report.error(fields.spot("unit_multiplier"), what);
        } else if requests.is_some() {
            let what = "'requests_per_unit' has no effect beside 'unlimited'".to_owned();
            report.warn(fields.spot("requests_per_unit"), what);
        }
        return Some(Amount::Unlimited);
    }
    let Some(&unit) = Unit::ALL.iter().find(|known| known.name().eq_ignore_ascii_case(unit)) else {
        let meant = meant(unit, &Unit::ALL.map(Unit::text));
        report.error(fields.spot("unit"), format!("invalid rate limit unit '{unit}'; {meant}"));
        return None;
    };
    if requests.is_none() {
        report.warn(fields.at, "a limit without 'requests_per_unit' refuses each request".to_owned());
    }
    let requests = requests.unwrap_or(0);
    match (times, requests) {
        (None | Some(1), _) => Some(Amount::Window { unit, requests }),
        // It refuses each request, however long the window is.
        (_, 0) => Some(Amount::Window { unit, requests }),
        (Some(times), _) => {
            let seconds = u64::from(unit.seconds()) * u64::from(times);
            let text = format!("{requests}/{seconds}s fixed utc");
            match texts.rule(&text, fields.spot("unit_multiplier"), report)? {
                Amount::Text(_, window) => Some(Amount::Windows { unit, times, requests, window }),
                other => Some(other),
            }
        }
    }
}

impl Texts {
    /// Reads a limit that is a text.
    fn rule(&mut self, text: &str, at: Spot, report: &mut Report) -> Option<Amount> {
        let what = match text.parse::<AnyRule>().map_err(|why: InvalidRule| why.to_string()) {
            Err(why) => format!("invalid limit: {why}"),
            Ok(AnyRule::Quota(quota @ (Quota::UNLIMITED | Quota::BLOCKED))) => {
                let other = "there are 'unlimited: true' and 'requests_per_unit: 0'";
                format!("invalid limit: {quota} is no rate and no window; {other}")
            }
            Ok(_) if self.0.len() == MAX_TEXTS && !self.0.contains(text) => {
                format!("more than {MAX_TEXTS} distinct texts of 'limit': each has a limiter of its own")
            }
            Ok(rule) => {
                self.0.insert(text.into());
                return Some(Amount::Text(text.into(), rule));
            }
        };
        report.error(at, what);
        None
    }
}

/// Returns whether the texts of a limit take hits that come after the fact.
pub(super) fn charged_after(
    fields: &Fields<'_, '_>,
    amounts: &[(Amount, Spot)],
    report: &mut Report,
) -> bool {
    let has_text = amounts.iter().any(|(amount, _)| matches!(amount, Amount::Text(..)));
    let what = match (fields.get("charge"), fields.text("charge", report)) {
        (None, _) => return false,
        _ if !has_text => "'charge' stands beside a text of 'limit' or 'limits' alone".to_owned(),
        (_, "after") => return true,
        (_, other) => format!("invalid charge '{other}'; there is charge: after"),
    };
    report.error(fields.spot("charge"), what);
    false
}

/// Returns the names that a limit of a name replaces.
pub(super) fn replaced_names(fields: &Fields<'_, '_>, own: &str, report: &mut Report) -> Box<[Box<str>]> {
    let mut names = Vec::new();
    for node in fields.list("replaces", report) {
        if !report.check_map(node) {
            continue;
        }
        let name = Fields::of(node, &REPLACES, report).map_or("", |fields| fields.text("name", report));
        if name.is_empty() {
            report.error(node.at, "should not have an empty replaces entry; it needs name: NAME".to_owned());
        } else if name == own {
            let what = format!("replaces should not contain name of same descriptor: '{name}'");
            report.error(node.at, what);
        }
        names.push(name.into());
    }
    names.into()
}
