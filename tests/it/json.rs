//! As much of JSON as a table of cases needs: all of it, read into a tree, without an error type.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// A whole number under 2^64.
    Whole(u64),
    Float(f64),
    Text(String),
    List(Vec<Json>),
    Map(BTreeMap<String, Json>),
}

impl Json {
    /// Panics on anything that is not JSON.
    pub(crate) fn read(text: &str) -> Json {
        let mut chars = text.chars().peekable();
        let value = value(&mut chars);
        assert_eq!(next(&mut chars), None, "one value, and nothing after it");
        value
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Map(map) => map.get(name),
            _ => panic!("{name:?} is asked of {self:?}"),
        }
    }

    pub(crate) fn list(&self) -> &[Json] {
        match self {
            Json::List(list) => list,
            _ => panic!("{self:?} is no list"),
        }
    }

    pub(crate) fn whole(&self) -> u64 {
        match self {
            Json::Whole(number) => *number,
            _ => panic!("{self:?} is no whole number"),
        }
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Json::Text(text) => text,
            _ => panic!("{self:?} is no text"),
        }
    }

    pub(crate) fn is_true(&self) -> bool {
        match self {
            Json::Bool(bool) => *bool,
            _ => panic!("{self:?} is neither true nor false"),
        }
    }
}

type Input<'a> = Peekable<Chars<'a>>;

/// The next character that is not space.
fn next(chars: &mut Input<'_>) -> Option<char> {
    chars.find(|c| !c.is_ascii_whitespace())
}

fn peek(chars: &mut Input<'_>) -> Option<char> {
    while chars.next_if(char::is_ascii_whitespace).is_some() {}
    chars.peek().copied()
}

fn expect(chars: &mut Input<'_>, wanted: char) {
    assert_eq!(next(chars), Some(wanted));
}

fn value(chars: &mut Input<'_>) -> Json {
    match peek(chars) {
        Some('{') => Json::Map(items(chars, '{', '}', |chars| {
            let name = text(chars);
            expect(chars, ':');
            (name, value(chars))
        })),
        Some('[') => Json::List(items(chars, '[', ']', value)),
        Some('"') => Json::Text(text(chars)),
        _ => word(chars),
    }
}

fn items<T, C: FromIterator<T>>(
    chars: &mut Input<'_>,
    open: char,
    close: char,
    item: impl Fn(&mut Input<'_>) -> T,
) -> C {
    expect(chars, open);
    let mut items = Vec::new();
    if peek(chars) == Some(close) {
        expect(chars, close);
        return items.into_iter().collect();
    }
    loop {
        items.push(item(chars));
        match next(chars) {
            Some(',') => {}
            Some(end) if end == close => return items.into_iter().collect(),
            other => panic!("{other:?} is neither a comma nor {close:?}"),
        }
    }
}

fn text(chars: &mut Input<'_>) -> String {
    expect(chars, '"');
    let mut text = Vec::new();
    loop {
        let unit = match chars.next().expect("a text ends in quotes") {
            '"' => return String::from_utf16(&text).expect("escapes are paired"),
            '\\' => match chars.next().expect("something is escaped") {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'u' => {
                    let digits: String = chars.take(4).collect();
                    text.push(u16::from_str_radix(&digits, 16).expect("four hex digits"));
                    continue;
                }
                other => other,
            },
            other => other,
        };
        text.extend_from_slice(unit.encode_utf16(&mut [0; 2]));
    }
}

fn word(chars: &mut Input<'_>) -> Json {
    let mut word = String::new();
    while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || "+-.".contains(*c)) {
        word.push(c);
    }
    match word.as_str() {
        "null" => Json::Null,
        "true" => Json::Bool(true),
        "false" => Json::Bool(false),
        number => match number.parse() {
            Ok(whole) => Json::Whole(whole),
            Err(_) => Json::Float(number.parse().unwrap_or_else(|_| panic!("{number:?} is no number"))),
        },
    }
}

#[test]
fn json_is_read_as_it_is_written() {
    let read = Json::read(
        r#" [ {"a\n\"\u00e9\ud83d\ude00" : [ ] , "b":{}}, -1.5e3, 18446744073709551615, null,true ] "#,
    );
    let first = &read.list()[0];
    assert_eq!(first.get("a\n\"é😀"), Some(&Json::List(vec![])));
    assert_eq!(first.get("b"), Some(&Json::Map(BTreeMap::new())));
    assert_eq!(first.get("c"), None);
    assert_eq!(&read.list()[1..3], [Json::Float(-1500.0), Json::Whole(u64::MAX)]);
    assert_eq!(&read.list()[3..], [Json::Null, Json::Bool(true)]);
}
