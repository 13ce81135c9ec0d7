//! Feature `serde`: a [`Quota`], a [`Window`] or a [`AnyRule`] in its text form.

use std::fmt;

use ::serde::de::{Deserialize, Deserializer, Error, Visitor};
use ::serde::ser::{Serialize, Serializer};

use crate::rule::any_rule::AnyRule;
use crate::rule::from_text;
use crate::rule::rate::Quota;
use crate::rule::window::Window;

macro_rules! in_text_form {
    ($value:ident, $expected:expr) => {
        /// Writes the text form.
        impl Serialize for $value {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        /// Reads the text form. The error names the given value and the bound.
        impl<'de> Deserialize<'de> for $value {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$value, D::Error> {
                struct Text;

                impl Visitor<'_> for Text {
                    type Value = $value;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: Error>(self, text: &str) -> Result<$value, E> {
                        text.parse().map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }
    };
}

in_text_form!(Quota, from_text::QUOTA);
in_text_form!(Window, from_text::WINDOW);
in_text_form!(AnyRule, from_text::RULE);
