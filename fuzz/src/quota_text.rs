//! The text forms of a quota, a window and a rule.
//!
//! Any text is read, or refused by name, as each of the three. What is read is written as a text
//! that is read as the same. For texts that the grammar of a quota makes, as users may write them,
//! the numbers are known.

use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use tollgate::{AnyRule, InvalidRule, Quota, Window};
use tollgate_testing::reference::Asked;

use crate::bytes::Bytes;
use crate::reference::quotas::quota;
use crate::steps::asked;

#[derive(Debug)]
pub enum Case {
    Any(String),
    Made(Text),
}

/// A text of the grammar: a count, a period and a burst, each with its spelling. If it is strict,
/// the count is the limit of each period, and not only of the long run.
#[derive(Debug)]
pub struct Text {
    strict: bool,
    tokens: Count,
    number: Option<Count>,
    unit: (&'static str, u64),
    burst: Option<Count>,
    spaces: u8,
}

/// A number with some zeros before it, or one that is too large, by digits. One with a sign is no
/// count.
#[derive(Clone, Copy, Debug)]
struct Count {
    sign: &'static str,
    number: u128,
    zeros: usize,
}

/// The names of all units, and their nanoseconds.
const UNITS: [(&str, u64); 32] = [
    ("ns", 1),
    ("nanosecond", 1),
    ("nanoseconds", 1),
    ("us", 1_000),
    ("microsecond", 1_000),
    ("microseconds", 1_000),
    ("ms", 1_000_000),
    ("millisecond", 1_000_000),
    ("milliseconds", 1_000_000),
    ("s", 1_000_000_000),
    ("sec", 1_000_000_000),
    ("secs", 1_000_000_000),
    ("second", 1_000_000_000),
    ("seconds", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("mins", 60_000_000_000),
    ("minute", 60_000_000_000),
    ("minutes", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("hour", 3_600_000_000_000),
    ("hours", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("day", 86_400_000_000_000),
    ("days", 86_400_000_000_000),
    ("w", 604_800_000_000_000),
    ("week", 604_800_000_000_000),
    ("weeks", 604_800_000_000_000),
    // These are no units.
    ("", 0),
    ("ss", 0),
    ("S", 0),
    ("fortnight", 0),
];

impl Count {
    fn read(bytes: &mut Bytes<'_>) -> Count {
        let kind = bytes.byte();
        let number = match kind % 4 {
            0 | 1 => bytes.byte().into(),
            2 => bytes.spread(64).into(),
            // A number past the end of 64 bits, or just before it.
            _ => u128::from(u64::MAX) + u128::from(bytes.byte()) - 128,
        };
        let sign = match kind >> 2 & 15 {
            14 => "-",
            15 => "+",
            _ => "",
        };
        Count { sign, number, zeros: usize::from(kind >> 6) }
    }

    fn value(self) -> Option<u64> {
        if self.sign.is_empty() { self.number.try_into().ok() } else { None }
    }

    fn write(self, text: &mut String) {
        use std::fmt::Write;
        let Count { sign, number, zeros } = self;
        write!(text, "{sign}{:0>zeros$}{number}", "").expect("a string takes all");
    }
}

impl Text {
    fn read(strict: bool, bytes: &mut Bytes<'_>) -> Text {
        let shape = bytes.byte();
        Text {
            strict,
            tokens: Count::read(bytes),
            number: (shape & 1 > 0).then(|| Count::read(bytes)),
            unit: UNITS[usize::from(bytes.byte()) % UNITS.len()],
            burst: (shape & 2 > 0).then(|| Count::read(bytes)),
            spaces: shape >> 2,
        }
    }

    /// Returns a quota in numbers, in the largest unit up to the requested one.
    fn of((tokens, nanos, burst): Asked, bytes: &mut Bytes<'_>) -> Text {
        let (shape, most) = (bytes.byte(), usize::from(bytes.byte()) % UNITS.len());
        let fits = |unit: &&(&str, u64)| unit.1 > 0 && nanos.is_multiple_of(unit.1);
        let unit = *UNITS[..=most].iter().rev().find(fits).expect("one is a nanosecond");
        let zeros = usize::from(shape & 1);
        let count = |number: u64| Count { sign: "", number: number.into(), zeros };
        Text {
            strict: false,
            tokens: count(tokens),
            number: (nanos != unit.1).then(|| count(nanos / unit.1)),
            unit,
            burst: (burst != tokens).then(|| count(burst)),
            spaces: shape >> 2,
        }
    }

    fn space(&self, place: u8, text: &mut String) {
        if self.spaces >> place & 1 > 0 {
            text.push_str([" ", "\t", "  "][usize::from(place % 3)]);
        }
    }

    fn write(&self) -> String {
        let mut text = String::with_capacity(128);
        self.space(0, &mut text);
        if self.strict {
            text.push_str("at most ");
        }
        self.tokens.write(&mut text);
        self.space(1, &mut text);
        text.push('/');
        self.space(2, &mut text);
        self.write_period(&mut text);
        if let Some(burst) = self.burst {
            // The space may be missing, as no unit has a b.
            self.space(4, &mut text);
            text.push_str("burst");
            self.space(5, &mut text);
            burst.write(&mut text);
        }
        text
    }

    fn write_period(&self, text: &mut String) {
        if let Some(number) = self.number {
            number.write(text);
            self.space(3, text);
        }
        text.push_str(self.unit.0);
    }

    /// Returns the numbers of the text. If a part cannot be read, returns that part and a word of
    /// the form it should have.
    fn says(&self) -> Result<(u64, u128, u64), (String, &'static str)> {
        let count = |count: Count| {
            count.value().ok_or_else(|| {
                let mut text = String::new();
                count.write(&mut text);
                (text, "a whole number under 2^64")
            })
        };
        let tokens = count(self.tokens)?;
        let burst = match self.burst {
            Some(burst) => count(burst)?,
            None if self.strict => return Err((String::new(), "burst")),
            None => tokens,
        };
        let no_unit = "unit";
        if self.number.is_some_and(|number| !number.sign.is_empty()) {
            // The number ends with its digits, and here it has none.
            let mut period = String::new();
            self.write_period(&mut period);
            return Err((period.trim().to_owned(), no_unit));
        }
        if self.number.is_some() && self.unit == ("", 0) {
            return Err((String::new(), no_unit));
        }
        let number = self.number.map_or(Ok(1), count)?;
        match self.unit {
            ("", 0) if self.number.is_none() => Err((String::new(), "")),
            (text, 0) => Err((text.to_owned(), no_unit)),
            (_, nanos) => Ok((tokens, u128::from(number) * u128::from(nanos), burst)),
        }
    }
}

impl Case {
    pub fn read(bytes: &[u8]) -> Case {
        let mut bytes = Bytes::new(bytes);
        let kind = bytes.byte();
        match kind % 3 {
            0 => Case::Any(String::from_utf8_lossy(bytes.rest()).into_owned()),
            1 => Case::Made(Text::read(kind >= 192, &mut bytes)),
            _ => {
                let quota = asked(&mut bytes);
                Case::Made(Text::of(quota, &mut bytes))
            }
        }
    }

    pub fn run(&self) {
        match self {
            Case::Any(text) => {
                if let Some(quota) = any::<Quota>(text) {
                    assert!(!text.contains(['+', '-']), "a sign is read in {text:?}");
                    is_made_anew(text, quota);
                }
                let (window, rule) = (any::<Window>(text), any::<AnyRule>(text));
                // A rule is one or the other.
                match rule {
                    Some(AnyRule::Quota(quota)) => assert_eq!(text.parse(), Ok(quota), "{text:?}"),
                    Some(AnyRule::Window(read)) => assert_eq!(window, Some(read), "{text:?}"),
                    None => {
                        assert!(window.is_none() && text.parse::<Quota>().is_err(), "{text:?} is no rule")
                    }
                }
            }
            Case::Made(text) => made(text),
        }
    }
}

impl<'a> Arbitrary<'a> for Case {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Case> {
        Ok(Case::read(bytes.bytes(bytes.len())?))
    }
}

/// Reads any text. A value is written as a text that is read as the same; an error names its fault.
fn any<T>(text: &str) -> Option<T>
where
    T: FromStr<Err: Debug + Display + PartialEq> + Display + Debug + PartialEq,
{
    match text.parse::<T>() {
        Ok(value) => {
            reads_back(&value);
            Some(value)
        }
        Err(error) => {
            is_named(text, &error.to_string());
            None
        }
    }
}

/// Checks that the text of a value is read as the same, and written as the same again.
fn reads_back<T>(value: &T)
where
    T: FromStr<Err: Debug + PartialEq> + Display + Debug + PartialEq,
{
    let text = value.to_string();
    let again = text.parse::<T>();
    assert_eq!(again.as_ref(), Ok(value), "{text:?}");
    assert_eq!(again.expect("it was read").to_string(), text);
}

/// Checks that the constructor makes the same quota of its numbers. Of no rate it makes none.
fn is_made_anew(text: &str, quota: Quota) {
    if let Quota::UNLIMITED | Quota::BLOCKED = quota {
        return;
    }
    assert_eq!(quota.try_burst(quota.capacity()), Ok(quota), "{text:?}");
}

/// Checks that an error quotes a part of the text, or names a bound.
fn is_named(text: &str, message: &str) {
    let bounds = ["the least is ", " bound of ", " bounds from ", " is not below the limit of ", ": say utc"];
    let named = bounds.iter().any(|bound| message.contains(bound)) || quotes_a_part(text, message);
    assert!(named, "{message:?} of {text:?} names no part and no bound");
}

/// Returns whether a quoted text in the message is a part of `text`.
fn quotes_a_part(text: &str, message: &str) -> bool {
    let whole = format!("{text:?}");
    // A number and its unit may be apart in the text, and are quoted as one word.
    let joined = format!("{:?}", text.split_whitespace().collect::<String>());
    let mut quoted = Vec::new();
    let mut begin = None;
    let mut escaped = false;
    for (at, char) in message.char_indices() {
        match (char, begin) {
            _ if escaped => escaped = false,
            ('\\', Some(_)) => escaped = true,
            ('"', None) => begin = Some(at + 1),
            ('"', Some(from)) => {
                quoted.push(&message[from..at]);
                begin = None;
            }
            _ => {}
        }
    }
    // Grapheme extenders are escaped only at the start of a quoted text.
    quoted.iter().any(|part| whole.contains(part) || joined.contains(part) || part.starts_with("\\u{"))
}

fn made(text: &Text) {
    let (written, says) = (text.write(), text.says());
    let parsed: Result<Quota, InvalidRule> = written.parse();
    let (tokens, nanos, burst) = match says {
        Ok(says) => says,
        Err((part, wanted)) => {
            let message = parsed.expect_err("a part of it cannot be read").to_string();
            let part = format!("{part:?}");
            assert!(message.contains(part.trim_matches('"')), "{message:?} of {written:?} leaves {part} out");
            assert!(message.contains(wanted), "{message:?} of {written:?} does not say {wanted}");
            return;
        }
    };
    let Ok(period) = u64::try_from(nanos) else {
        let error = parsed.expect_err("the period is too long").to_string();
        let wanted = format!("a period of {nanos} ns is over the bound of 2^62 ns (146 years)");
        assert!(error.ends_with(&wanted), "{error:?} of {written:?}");
        return;
    };
    if text.strict && burst >= tokens {
        let message = parsed.expect_err("nothing would be earned").to_string();
        is_named(&written, &message);
        assert!(message.contains(&burst.to_string()), "{message:?} of {written:?} has no burst");
        return;
    }
    let tokens = if text.strict { tokens - burst } else { tokens };
    // The text is read exactly when its numbers are those of a quota.
    let wanted = quota((tokens, period, burst));
    assert_eq!(parsed.as_ref().ok(), wanted.as_ref(), "{written:?}");
    match parsed {
        Ok(quota) => {
            let said = (quota.tokens(), quota.period(), quota.capacity());
            assert_eq!(said, (tokens, Duration::from_nanos(period), burst), "{written:?}");
            reads_back(&quota);
            is_made_anew(&written, quota);
        }
        Err(error) => {
            let message = error.to_string();
            is_named(&written, &message);
            assert!(names(&message, tokens, period, burst), "{message:?} names no number of {written:?}");
        }
    }
}

/// Returns whether the message names the number that is out of its bound: 0, or the given number.
fn names(message: &str, tokens: u64, period: u64, burst: u64) -> bool {
    let has = |number: u64| message.contains(&number.to_string());
    match message {
        _ if tokens == 0 => message.contains("a quota of 0 tokens"),
        _ if period == 0 => message.contains("a period of 0 ns"),
        _ if burst == 0 => message.contains("a burst of 0"),
        _ if period > 1 << 62 => message.contains(&format!("a period of {period} ns")),
        _ if burst > 1 << 40 => message.contains(&format!("a burst of {burst} is over")),
        _ => has(tokens) && has(period),
    }
}
