//! The spellings that the search tries.

use std::collections::BTreeSet;

const STARTS: [&str; 14] = [
    "/",
    "//",
    "/\\",
    "/%2f",
    "/./",
    "/../",
    "/..;x/",
    "/x/../",
    "/x/%2e%2E/",
    "/x%2f..%5C",
    "/x\\..\\",
    "/x//../",
    "//x/",
    "/%00",
];

const ENDS: [&str; 13] =
    ["", "/", "//", "\\", "%2F", "%5c", "/.", "/x%2f..", ";", ";x=1/", "%3Bx", "%20", "%00"];

/// Returns more than a thousand spellings that a server may take for `/login`.
pub(crate) fn candidates() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for end in ENDS {
        for start in STARTS {
            found.insert(format!("{start}login{end}"));
            found.insert(format!("{start}%6cogin{end}"));
        }
        found.insert(format!("/LOGIN{end}"));
        found.insert(format!("/%256cogin{end}"));
        // Node reads a target in another way if it has the byte A0. That is the last byte of this
        // query.
        found.insert(format!("/login{end}?\u{e0}"));
    }
    // The spellings with an additional character, and those with another character in one place.
    for at in 1..="/login".len() {
        let (before, after) = "/login".split_at(at);
        for rest in [after, after.get(1..).unwrap_or_default()] {
            for byte in 0..=u8::MAX {
                found.insert(format!("{before}%{byte:02x}{rest}"));
                if byte.is_ascii_graphic() {
                    found.insert(format!("{before}{}{rest}", char::from(byte)));
                }
            }
            // Characters that have a case in ASCII, look like a slash, or are trimmed.
            for character in ['\u{130}', '\u{131}', '\u{a0}', '\u{feff}', '\u{ff0f}', '\u{2215}'] {
                found.insert(format!("{before}{character}{rest}"));
            }
        }
    }
    found
}
