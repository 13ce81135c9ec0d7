//! A wildcard: a text in which each `*` stands for any characters, also for none.

/// A pattern with at least one `*`, as its parts between the stars.
#[derive(Debug)]
pub(super) struct Pattern {
    text: Box<str>,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Pattern {
        Pattern { text: text.into() }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether a text matches.
    pub(super) fn matches(&self, text: &str) -> bool {
        glob(self.text.as_bytes(), text.len(), |index| text.as_bytes()[index])
    }

    /// Returns whether `key_value` matches, without building it.
    pub(super) fn matches_joined(&self, key: &str, value: &str) -> bool {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        glob(self.text.as_bytes(), key.len() + 1 + value.len(), |index| match index.checked_sub(key.len()) {
            None => key[index],
            Some(0) => b'_',
            Some(index) => value[index - 1],
        })
    }
}

/// Returns whether `length` bytes match. The time is at most the product of both lengths: only the
/// last star is tried again, since an earlier one that took more would leave less to the rest.
fn glob(pattern: &[u8], length: usize, byte: impl Fn(usize) -> u8) -> bool {
    let (mut at, mut index) = (0, 0);
    let mut star = None;
    while index < length {
        match (pattern.get(at), star) {
            (Some(b'*'), _) => {
                at += 1;
                star = Some((at, index));
            }
            (Some(&wanted), _) if wanted == byte(index) => {
                at += 1;
                index += 1;
            }
            (_, Some((after, from))) => {
                at = after;
                index = from + 1;
                star = Some((after, from + 1));
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|&rest| rest == b'*')
}
