//! The metadata of a descriptor: any YAML, as a value of JSON.

use serde_json::{Map, Number, Value};

use super::fields::{boolean, is_fraction, whole};
use super::yaml::{Content, Node};

/// Returns the value of a map, or `None` if the node is none.
pub(super) fn of_map(node: &Node<'_>) -> Option<Box<Value>> {
    matches!(node.kind(), Content::Map(_)).then(|| Box::new(of(node)))
}

/// Returns the value of a node, with its scalars as YAML 1.1 types them.
fn of(node: &Node<'_>) -> Value {
    match node.kind() {
        _ if node.is_null() => Value::Null,
        Content::Scalar { text, plain: true } => scalar(text),
        Content::Scalar { text, .. } => Value::String(text.clone().into_owned()),
        Content::List(items) => items.iter().map(of).collect(),
        Content::Map(pairs) => {
            let pairs = pairs.iter().filter_map(|(key, value)| match key.kind() {
                Content::Scalar { text, .. } => Some((text.clone().into_owned(), of(value))),
                _ => None,
            });
            Value::Object(pairs.collect::<Map<_, _>>())
        }
    }
}

fn scalar(text: &str) -> Value {
    let fraction = || {
        let number = is_fraction(text).then(|| text.replace('_', "").parse::<f64>().ok()).flatten();
        // An infinite number is none of JSON, and stays a text.
        number.and_then(Number::from_f64).map(Value::Number)
    };
    let typed = boolean(text).map(Value::Bool).or_else(|| whole(text).map(Value::from)).or_else(fraction);
    typed.unwrap_or_else(|| Value::String(text.to_owned()))
}
