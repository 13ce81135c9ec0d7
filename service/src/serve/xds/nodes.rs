//! A configuration of a message as the nodes that the loader reads, so that the rules of a message
//! and of a file have the same checks.
//!
//! The spot of a finding is the number of its descriptor. A message is at most
//! `prost`'s 100 messages deep, so each walk may recurse.

use std::borrow::Cow;

use super::messages::{ConfigDescriptor, ConfigLimit, ConfigMessage};
use crate::rules::error::Spot;
use crate::rules::tree::Unit;
use crate::rules::yaml::{Content, Node};
use crate::serve::messages::{Struct, Value, ValueKind};

/// Returns the document of a configuration.
pub(super) fn document(config: &ConfigMessage) -> Node<'_> {
    let at = Spot { line: 0, column: 0 };
    let mut map = Map::at(at);
    map.put("domain", text(at, &config.domain));
    map.put("descriptors", descriptors(at, &config.descriptors, &mut 0));
    map.end()
}

fn descriptors<'m>(at: Spot, all: &'m [ConfigDescriptor], number: &mut u32) -> Node<'m> {
    Node::new(at, Content::List(all.iter().map(|each| descriptor(each, number)).collect()))
}

/// Returns the map of a descriptor, by the number of the descriptors before it.
fn descriptor<'m>(of: &'m ConfigDescriptor, number: &mut u32) -> Node<'m> {
    *number = number.saturating_add(1);
    let at = Spot { line: *number, column: 0 };
    let mut map = Map::at(at);
    map.put("key", text(at, &of.key));
    map.put("value", text(at, &of.value));
    if let Some(limit) = &of.rate_limit {
        map.put("rate_limit", rate_limit(at, limit));
    }
    map.flag("shadow_mode", of.shadow_mode);
    map.flag("quota_mode", of.quota_mode);
    map.flag("detailed_metric", of.detailed_metric);
    if let Some(metadata) = &of.metadata {
        map.put("metadata", of_struct(at, metadata));
    }
    if !of.descriptors.is_empty() {
        map.put("descriptors", descriptors(at, &of.descriptors, number));
    }
    map.end()
}

/// Returns the map of a limit. A unit of 0 is none, as a limit without one needs no word.
fn rate_limit(at: Spot, of: &ConfigLimit) -> Node<'_> {
    let mut map = Map::at(at);
    map.flag("unlimited", of.unlimited);
    if of.unit != 0 || !of.unlimited {
        let known = Unit::from_wire(of.unit).map(|unit| Cow::Borrowed(unit.name()));
        let unknown = || if of.unit == 0 { Cow::Borrowed("UNKNOWN") } else { of.unit.to_string().into() };
        map.put("unit", scalar(at, known.unwrap_or_else(unknown), false));
    }
    if of.requests_per_unit != 0 || !of.unlimited {
        map.put("requests_per_unit", scalar(at, of.requests_per_unit.to_string(), true));
    }
    map.put("name", text(at, &of.name));
    let replaces = of.replaces.iter().map(|replaced| {
        let mut map = Map::at(at);
        map.put("name", text(at, &replaced.name));
        map.end()
    });
    map.put("replaces", Node::new(at, Content::List(replaces.collect())));
    map.end()
}

fn of_struct(at: Spot, of: &Struct) -> Node<'_> {
    let pairs = of.fields.iter().map(|(name, value)| (text(at, name), of_value(at, value)));
    Node::new(at, Content::Map(pairs.collect()))
}

fn of_value(at: Spot, of: &Value) -> Node<'_> {
    match &of.kind {
        None | Some(ValueKind::Null(_)) => scalar(at, "null", true),
        Some(ValueKind::Bool(value)) => scalar(at, if *value { "true" } else { "false" }, true),
        // Whole numbers are written without a fraction, up to those that a `double` has exactly.
        Some(ValueKind::Number(value)) if value.fract() == 0.0 && value.abs() < 9e15 => {
            scalar(at, value.to_string(), true)
        }
        Some(ValueKind::Number(value)) => scalar(at, format!("{value:?}"), true),
        Some(ValueKind::Text(value)) => text(at, value),
        Some(ValueKind::Struct(value)) => of_struct(at, value),
        Some(ValueKind::List(list)) => {
            Node::new(at, Content::List(list.values.iter().map(|value| of_value(at, value)).collect()))
        }
    }
}

/// Returns a text, which never stands for a number or a boolean.
fn text(at: Spot, text: &str) -> Node<'_> {
    scalar(at, text, false)
}

fn scalar<'m>(at: Spot, text: impl Into<Cow<'m, str>>, plain: bool) -> Node<'m> {
    Node::new(at, Content::Scalar { text: text.into(), plain })
}

/// A map that is written.
struct Map<'m> {
    at: Spot,
    pairs: Vec<(Node<'m>, Node<'m>)>,
}

impl<'m> Map<'m> {
    fn at(at: Spot) -> Map<'m> {
        Map { at, pairs: Vec::new() }
    }

    fn put(&mut self, name: &'static str, value: Node<'m>) {
        self.pairs.push((text(self.at, name), value));
    }

    /// Puts a boolean that is true: false is the default.
    fn flag(&mut self, name: &'static str, is_on: bool) {
        if is_on {
            self.put(name, scalar(self.at, "true", true));
        }
    }

    fn end(self) -> Node<'m> {
        Node::new(self.at, Content::Map(self.pairs))
    }
}
