//! The comparison of answers with the expectations of a case, without the service.

use serde_json::Value;

/// Returns the first difference. An expectation that does not name a field allows each value of it.
pub(crate) fn difference(expected: &Value, found: &Value) -> Option<String> {
    let differs = || Some(format!("{found} is not {expected}"));
    match expected {
        // A range of numbers, of which a header is a text.
        Value::Array(range) if range.len() == 2 && range.iter().all(Value::is_number) => {
            let number = found.as_f64().or_else(|| found.as_str()?.parse().ok());
            let within = |number: f64| range[0].as_f64() <= Some(number) && Some(number) <= range[1].as_f64();
            if number.is_some_and(within) { None } else { differs() }
        }
        Value::Array(expected) => match found.as_array() {
            Some(found) if found.len() == expected.len() => {
                expected.iter().zip(found).find_map(|(expected, found)| difference(expected, found))
            }
            _ => differs(),
        },
        Value::Object(fields) => fields.iter().find_map(|(name, expected)| {
            difference(expected, &found[name]).map(|text| format!("{name}: {text}"))
        }),
        Value::Number(number) => {
            // A limit that is not told, and 0, are one in the protocol.
            let same = found.as_f64() == number.as_f64() || (number.as_f64() == Some(0.0) && found.is_null());
            if same { None } else { differs() }
        }
        Value::String(any) if any == "*" => {
            if found.is_null() {
                differs()
            } else {
                None
            }
        }
        _ => {
            if expected == found {
                None
            } else {
                differs()
            }
        }
    }
}
