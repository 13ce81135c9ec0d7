//! The YAML of manifests and of pages as values, of which a test reads some.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// Returns the documents of a text.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let events = Parser::new_from_str(text).map(|event| event.expect("YAML").0);
    let (mut events, mut anchors) = (events, HashMap::new());
    let mut documents = Vec::new();
    while let Some(event) = events.next() {
        if let Event::DocumentStart(_) = event {
            documents.extend(value(&mut events, &mut anchors));
        }
    }
    documents
}

/// Reads the next value. At the end of a list or a map there is none.
fn value<'t>(
    events: &mut impl Iterator<Item = Event<'t>>,
    anchors: &mut HashMap<usize, Value>,
) -> Option<Value> {
    let (found, anchor) = match events.next().expect("an event") {
        Event::Scalar(text, ScalarStyle::Plain, anchor, _) => {
            (serde_json::from_str(&text).unwrap_or_else(|_| text.into()), anchor)
        }
        Event::Scalar(text, _, anchor, _) => (text.into(), anchor),
        Event::SequenceStart(anchor, _) => (std::iter::from_fn(|| value(events, anchors)).collect(), anchor),
        Event::MappingStart(anchor, _) => {
            let mut map = Map::new();
            while let Some(key) = value(events, anchors) {
                let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                map.insert(key, value(events, anchors).expect("a value"));
            }
            (map.into(), anchor)
        }
        Event::Alias(anchor) => (anchors[&anchor].clone(), anchor),
        _ => return None,
    };
    anchors.insert(anchor, found.clone());
    Some(found)
}
