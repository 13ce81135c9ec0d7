//! The messages of the protocol by hand: a fault of the service's own definitions shows here.

use serde_json::{Map, Value, json};

const UNITS: [&str; 8] = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"];
const CODES: [&str; 3] = ["UNKNOWN", "OK", "OVER_LIMIT"];

/// A message that is written field by field. A field without a value is left out.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: &Value) {
        // A number of 64 bits is a text in the JSON of the protocol.
        let value = value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
        if let Some(value) = value {
            self.varint(field << 3);
            self.varint(value);
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u64, value: &Value) {
        if let Some(text) = value.as_str() {
            self.bytes(field, text.as_bytes());
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// `envoy.service.ratelimit.v3.RateLimitRequest`, from its JSON.
pub(crate) fn request(json: &Value) -> Vec<u8> {
    let mut message = Writer::default();
    message.text(1, &json["domain"]);
    for one in list(&json["descriptors"]) {
        message.bytes(2, &descriptor(one));
    }
    message.number(3, &json["hitsAddend"]);
    message.0
}

fn descriptor(json: &Value) -> Vec<u8> {
    let mut message = Writer::default();
    for entry in list(&json["entries"]) {
        let mut pair = Writer::default();
        pair.text(1, &entry["key"]);
        pair.text(2, &entry["value"]);
        message.bytes(1, &pair.0);
    }
    if let Some(limit) = json["limit"].as_object() {
        let mut r#override = Writer::default();
        r#override.number(1, &limit["requestsPerUnit"]);
        let unit = limit.get("unit").and_then(Value::as_str);
        let unit = unit.map(|name| UNITS.iter().position(|unit| *unit == name).expect("a unit"));
        r#override.number(2, &json!(unit));
        message.bytes(2, &r#override.0);
    }
    if !json["hitsAddend"].is_null() {
        let mut hits = Writer::default();
        hits.number(1, &json["hitsAddend"]);
        message.bytes(3, &hits.0);
    }
    message.number(4, &json!(u64::from(json["isNegativeHits"] == true)));
    message.0
}

/// `grpc.health.v1.HealthCheckRequest`.
pub(crate) fn health_request(service: &str) -> Vec<u8> {
    let mut message = Writer::default();
    message.text(1, &json!(service));
    message.0
}

/// A value of a message that is read.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn number(&self) -> u64 {
        match self {
            Field::Number(number) => *number,
            Field::Bytes(bytes) => panic!("{bytes:?} is no number"),
        }
    }

    fn bytes(&self) -> &'a [u8] {
        match self {
            Field::Bytes(bytes) => bytes,
            Field::Number(number) => panic!("{number} is no message"),
        }
    }

    fn text(&self) -> &'a str {
        str::from_utf8(self.bytes()).expect("text is UTF-8")
    }
}

fn varint(from: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = from.split_first().expect("a whole number");
        *from = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

/// The fields in their order.
fn fields(mut from: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut found = Vec::new();
    while !from.is_empty() {
        let tag = varint(&mut from);
        let length = match tag & 7 {
            0 => {
                found.push((tag >> 3, Field::Number(varint(&mut from))));
                continue;
            }
            1 => 8,
            2 => varint(&mut from) as usize,
            kind => panic!("a field of kind {kind}"),
        };
        let (bytes, rest) = from.split_at(length);
        from = rest;
        found.push((tag >> 3, Field::Bytes(bytes)));
    }
    found
}

fn first(message: &[u8], field: u64) -> Option<u64> {
    fields(message).iter().find(|(number, _)| *number == field).map(|(_, value)| value.number())
}

/// `RateLimitResponse`, in the words of the cases.
pub(crate) fn response(message: &[u8]) -> Value {
    let mut response = json!({"code": CODES[first(message, 1).unwrap_or(0) as usize], "statuses": []});
    let mut headers = Map::new();
    for (field, value) in fields(message) {
        match field {
            2 => response["statuses"].as_array_mut().expect("as above").push(status(value.bytes())),
            3 => {
                let header = fields(value.bytes());
                // The text is in one of two fields.
                headers.insert(header[0].1.text().to_owned(), json!(header[1].1.text()));
            }
            6 => response["metadata"] = structure(value.bytes()),
            _ => (),
        }
    }
    response["headers"] = headers.into();
    response
}

fn status(message: &[u8]) -> Value {
    let remaining = first(message, 3).unwrap_or(0);
    let mut status = json!({"code": CODES[first(message, 1).unwrap_or(0) as usize], "limit": null, "remaining": remaining});
    for (field, value) in fields(message) {
        match field {
            2 => {
                let mut limit = json!({"requestsPerUnit": first(value.bytes(), 1).unwrap_or(0)});
                limit["unit"] = json!(UNITS[first(value.bytes(), 2).unwrap_or(0) as usize]);
                if let Some((_, name)) = fields(value.bytes()).iter().find(|(field, _)| *field == 3) {
                    limit["name"] = json!(name.text());
                }
                status["limit"] = limit;
            }
            4 => status["resetWithin"] = json!(first(value.bytes(), 1).unwrap_or(0)),
            _ => (),
        }
    }
    status
}

/// `google.protobuf.Struct`.
fn structure(message: &[u8]) -> Value {
    let pairs = fields(message).into_iter().map(|(_, pair)| {
        let pair = fields(pair.bytes());
        (pair[0].1.text().to_owned(), value(pair[1].1.bytes()))
    });
    Value::Object(pairs.collect())
}

fn value(message: &[u8]) -> Value {
    let (field, value_of) = fields(message).pop().expect("one kind");
    match field {
        2 => json!(f64::from_le_bytes(value_of.bytes().try_into().expect("8 bytes"))),
        3 => json!(value_of.text()),
        4 => json!(value_of.number() != 0),
        5 => structure(value_of.bytes()),
        6 => fields(value_of.bytes()).iter().map(|(_, one)| value(one.bytes())).collect(),
        _ => Value::Null,
    }
}

/// `HealthCheckResponse`.
pub(crate) fn health(message: &[u8]) -> &'static str {
    ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"][first(message, 1).unwrap_or(0) as usize]
}

const CONFIG: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// `DiscoveryResponse` with configurations, each from its JSON in the names of the files.
pub(crate) fn discovery_response(version: &str, configs: &[Value]) -> Vec<u8> {
    let mut message = Writer::default();
    message.bytes(1, version.as_bytes());
    for config in configs {
        let mut resource = Writer::default();
        resource.bytes(1, CONFIG.as_bytes());
        resource.bytes(2, &rate_limit_config(config));
        message.bytes(2, &resource.0);
    }
    message.bytes(4, CONFIG.as_bytes());
    message.bytes(5, format!("nonce of {version}").as_bytes());
    message.0
}

fn rate_limit_config(json: &Value) -> Vec<u8> {
    let mut message = Writer::default();
    message.text(1, &json["name"]);
    message.text(2, &json["domain"]);
    for one in list(&json["descriptors"]) {
        message.bytes(3, &config_descriptor(one));
    }
    message.0
}

fn config_descriptor(json: &Value) -> Vec<u8> {
    let mut message = Writer::default();
    message.text(1, &json["key"]);
    message.text(2, &json["value"]);
    if let Some(limit) = json["rate_limit"].as_object() {
        let mut policy = Writer::default();
        let unit = limit.get("unit").and_then(Value::as_str).map(str::to_uppercase);
        let unit = unit.and_then(|name| UNITS.iter().position(|unit| *unit == name));
        policy.number(1, &json!(unit));
        policy.number(2, &limit["requests_per_unit"]);
        message.bytes(3, &policy.0);
    }
    for one in list(&json["descriptors"]) {
        message.bytes(4, &config_descriptor(one));
    }
    message.0
}

/// The version, the nonce and the reason of a refusal of a `DiscoveryRequest`.
pub(crate) fn discovery_request(message: &[u8]) -> (String, String, Option<String>) {
    let (mut version, mut nonce, mut refusal) = (String::new(), String::new(), None);
    for (field, value) in fields(message) {
        match field {
            1 => value.text().clone_into(&mut version),
            4 => assert_eq!(value.text(), CONFIG),
            5 => value.text().clone_into(&mut nonce),
            6 => {
                let of_status = fields(value.bytes());
                let text = of_status.iter().find(|(field, _)| *field == 2).map(|(_, text)| text.text());
                refusal = text.map(str::to_owned);
            }
            _ => (),
        }
    }
    (version, nonce, refusal)
}

/// `CommitRequest` of `kuadrant.service.ratelimit.v1`, of the request of a reservation.
pub(crate) fn commit(json: &Value, id: &str, actual: u64) -> Vec<u8> {
    let mut message = Writer(request(json));
    message.bytes(3, id.as_bytes());
    message.number(4, &actual.into());
    message.0
}

/// `ReserveResponse`: the code, and the id.
pub(crate) fn reserved(message: &[u8]) -> (&'static str, String) {
    let id = fields(message).into_iter().find(|(field, _)| *field == 2);
    let code = CODES[first(message, 1).unwrap_or(0) as usize];
    (code, id.map_or(String::new(), |(_, id)| id.text().to_owned()))
}

/// `CommitResponse`: whether the reservation was released, and the outcome.
pub(crate) fn committed(message: &[u8]) -> (bool, u64) {
    (first(message, 1) == Some(1), first(message, 100).unwrap_or(0))
}
