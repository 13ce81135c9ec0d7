//! Texts of YAML as messages of a control plane, as far as these have the fields.

use std::collections::BTreeMap;

use super::super::messages::{ConfigDescriptor, ConfigLimit, ConfigMessage, ConfigReplace};
use super::super::update::Update;
use super::control_plane::update;
use crate::rules::error::Finding;
use crate::rules::load::{LoadOptions, Loaded};
use crate::rules::tree::{Rules, Unit};
use crate::rules::yaml::{Content, Node, read};
use crate::serve::messages::{ListValue, Struct, Value, ValueKind};

/// Returns whether a message can have the same rules.
pub(in crate::serve) fn can_be_said(path: &str, text: &str) -> bool {
    config(path, text).is_some()
}

/// Loads the rules of texts by way of messages.
pub(in crate::serve) fn load_said(
    files: &[(String, String)],
    options: LoadOptions,
) -> Result<Rules, Vec<Finding>> {
    let configs: Vec<_> =
        files.iter().map(|(path, text)| config(path, text).expect("it can be said")).collect();
    let Loaded { rules, errors, .. } = Update(update("1", &configs)).load(options).expect("resources");
    if errors.is_empty() { Ok(rules) } else { Err(errors) }
}

fn config(path: &str, text: &str) -> Option<ConfigMessage> {
    let root = read(text).ok()?.root;
    let fields = Named::of(&root, &["domain", "descriptors"])?;
    let (domain, descriptors) = (fields.text("domain")?, fields.each("descriptors", descriptor)?);
    Some(ConfigMessage { name: path.to_owned(), domain, descriptors })
}

fn descriptor(node: &Node<'_>) -> Option<ConfigDescriptor> {
    const NAMES: [&str; 8] = [
        "key",
        "value",
        "descriptors",
        "rate_limit",
        "shadow_mode",
        "quota_mode",
        "detailed_metric",
        "metadata",
    ];
    let fields = Named::of(node, &NAMES)?;
    let metadata = match fields.get("metadata") {
        Some(node) => match value(node)?.kind? {
            ValueKind::Struct(fields) => Some(fields),
            _ => return None,
        },
        None => None,
    };
    let rate_limit = match fields.get("rate_limit") {
        Some(node) => Some(limit(node)?),
        None => None,
    };
    Some(ConfigDescriptor {
        key: fields.text("key")?,
        value: fields.text("value")?,
        rate_limit,
        descriptors: fields.each("descriptors", descriptor)?,
        shadow_mode: fields.flag("shadow_mode")?,
        detailed_metric: fields.flag("detailed_metric")?,
        quota_mode: fields.flag("quota_mode")?,
        metadata,
    })
}

fn limit(node: &Node<'_>) -> Option<ConfigLimit> {
    let fields = Named::of(node, &["unit", "requests_per_unit", "unlimited", "name", "replaces"])?;
    let unit = match &*fields.text("unit")? {
        "" if fields.flag("unlimited")? => 0,
        unit => (1..=7).find(|number| {
            Unit::from_wire(*number).is_some_and(|known| known.name().eq_ignore_ascii_case(unit))
        })?,
    };
    let requests = fields.text("requests_per_unit")?;
    let replaced = |node: &Node<'_>| Some(ConfigReplace { name: Named::of(node, &["name"])?.text("name")? });
    Some(ConfigLimit {
        unit,
        requests_per_unit: if requests.is_empty() { 0 } else { requests.parse().ok()? },
        unlimited: fields.flag("unlimited")?,
        name: fields.text("name")?,
        replaces: fields.each("replaces", replaced)?,
    })
}

fn value(node: &Node<'_>) -> Option<Value> {
    let kind = match node.kind() {
        _ if node.is_null() => ValueKind::Null(0),
        Content::Scalar { text, plain: true } => match (text.parse::<bool>(), text.parse::<f64>()) {
            (Ok(flag), _) => ValueKind::Bool(flag),
            (_, Ok(number)) => ValueKind::Number(number),
            _ => ValueKind::Text(text.to_string()),
        },
        Content::Scalar { text, .. } => ValueKind::Text(text.to_string()),
        Content::List(items) => {
            ValueKind::List(ListValue { values: items.iter().map(value).collect::<Option<_>>()? })
        }
        Content::Map(pairs) => {
            let pair = |(key, of): &(Node<'_>, Node<'_>)| match key.kind() {
                Content::Scalar { text, .. } => Some((text.to_string(), value(of)?)),
                _ => None,
            };
            let fields = pairs.iter().map(pair).collect::<Option<BTreeMap<_, _>>>()?;
            ValueKind::Struct(Struct { fields })
        }
    };
    Some(Value { kind: Some(kind) })
}

/// The fields of a map, all of which a message has. `None` of each method is a value that a message
/// does not have.
struct Named<'n, 't>(&'n [(Node<'t>, Node<'t>)]);

impl<'n, 't> Named<'n, 't> {
    fn of(node: &'n Node<'t>, names: &[&str]) -> Option<Named<'n, 't>> {
        match node.kind() {
            Content::Map(pairs) if pairs.iter().all(|(key, _)| names.iter().any(|name| key.is(name))) => {
                Some(Named(pairs))
            }
            _ => None,
        }
    }

    fn get(&self, name: &str) -> Option<&'n Node<'t>> {
        self.0.iter().find(|(key, value)| key.is(name) && !value.is_null()).map(|(_, value)| value)
    }

    fn text(&self, name: &str) -> Option<String> {
        match self.get(name).map(Node::kind) {
            None => Some(String::new()),
            // An unquoted fraction is an error of a file alone.
            Some(Content::Scalar { text, plain: true })
                if text.contains('.') && text.parse::<f64>().is_ok() =>
            {
                None
            }
            Some(Content::Scalar { text, .. }) => Some(text.to_string()),
            Some(_) => None,
        }
    }

    fn flag(&self, name: &str) -> Option<bool> {
        match &*self.text(name)? {
            "" => Some(false),
            text => text.parse().ok(),
        }
    }

    fn each<T>(&self, name: &str, of: fn(&Node<'_>) -> Option<T>) -> Option<Vec<T>> {
        match self.get(name).map(Node::kind) {
            None => Some(Vec::new()),
            Some(Content::List(items)) => items.iter().map(of).collect(),
            Some(_) => None,
        }
    }
}
