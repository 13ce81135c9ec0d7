//! Feature `serde`: a [`Quota`], a [`Window`] or a [`Rule`] in its text form.

use std::fmt;

use ::serde::de::{Deserialize, Deserializer, Error, Visitor};
use ::serde::ser::{Serialize, Serializer};

use crate::quota::from_text;
use crate::quota::rate::Quota;
use crate::quota::rule::Rule;
use crate::quota::window::Window;

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
in_text_form!(Rule, from_text::RULE);
