//! Values with their places in the file.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use toml::Spanned;

/// A value, and the byte of the file where it begins. Values of options have no place.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) at: Option<usize>,
}

impl<T: FromStr<Err: Display>> FromStr for Placed<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Placed<T>, String> {
        match text.parse() {
            Ok(value) => Ok(Placed { value, at: None }),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Placed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Placed<T>, D::Error> {
        let parsed = Spanned::<Parsed<T>>::deserialize(deserializer)?;
        let at = Some(parsed.span().start);
        Ok(Placed { value: parsed.into_inner().0, at })
    }
}

/// A value that was parsed while its text was visited, so that an error has the place of the text.
struct Parsed<T>(T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Parsed<T>, D::Error> {
        struct Parser<T>(PhantomData<T>);

        impl<T: FromStr<Err: Display>> Visitor<'_> for Parser<T> {
            type Value = Parsed<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes or a whole number")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Parsed<T>, E> {
                parsed(text).map(Parsed)
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Parsed<T>, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Parsed<T>, E> {
                let parsed = number.to_string().parse().map(Parsed);
                parsed.map_err(|error| E::custom(named(&number.to_string(), error)))
            }
        }

        deserializer.deserialize_any(Parser(PhantomData))
    }
}

/// Returns the value of a text.
fn parsed<T: FromStr<Err: Display>, E: Error>(text: &str) -> Result<T, E> {
    text.parse().map_err(|error| E::custom(named(&format!("{text:?}"), error)))
}

/// A list of texts, or one text.
pub(super) fn one_or_more<'de, T, D>(deserializer: D) -> Result<Option<Vec<Placed<T>>>, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    let items = Spanned::<Items<T>>::deserialize(deserializer)?;
    let at = Some(items.span().start);
    Ok(Some(match items.into_inner() {
        Items::One(value) => vec![Placed { value, at }],
        Items::More(values) => values,
    }))
}

enum Items<T> {
    One(T),
    More(Vec<Placed<T>>),
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Items<T>, D::Error> {
        struct Reader<T>(PhantomData<T>);

        impl<'de, T: FromStr<Err: Display>> Visitor<'de> for Reader<T> {
            type Value = Items<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of texts in quotes")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Items<T>, E> {
                parsed(text).map(Items::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Items<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(value) = values.next_element()? {
                    all.push(value);
                }
                Ok(Items::More(all))
            }
        }

        deserializer.deserialize_any(Reader(PhantomData))
    }
}

/// Returns an error with its value before it. The error of a rule has the text already.
fn named(value: &str, error: impl Display) -> String {
    let error = error.to_string();
    let rest = error.strip_prefix("cannot read ").map(|rest| rest.trim_start_matches('"'));
    let has_it = rest.is_some_and(|rest| rest.starts_with(value.trim_matches('"')));
    if has_it { error } else { format!("{value}: {error}") }
}
