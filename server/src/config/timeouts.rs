//! The time-outs by their names.

use std::str::FromStr;
use std::time::Duration;

use super::fault::nearest;
use super::settings::Timeouts;
use super::values::Time;

/// The time-outs by name, each with a sentence.
pub(super) fn timeouts(of: &mut Timeouts) -> [(&'static str, &mut Duration, &'static str); 10] {
    [
        ("request_head", &mut of.request_head, "for each request head, a TLS handshake, a PROXY header"),
        ("keep_alive", &mut of.keep_alive, "between two requests of a connection"),
        ("request_body", &mut of.request_body, "for a part of a request's body, or all parts that are late"),
        ("whole_body", &mut of.whole_body, "for a whole body, of a request or of a response"),
        ("queue", &mut of.queue, "for a place among the requests in flight"),
        ("connect", &mut of.connect, "for a connection to the upstream"),
        ("response_head", &mut of.response_head, "from the end of a request to the head of its response"),
        ("response_body", &mut of.response_body, "between two parts of a response's body"),
        ("slow_reader", &mut of.slow_reader, "for a client that does not read its response"),
        ("tunnel", &mut of.tunnel, "without a byte from the upstream in an upgraded connection"),
    ]
}

/// Sets a time-out by its name.
pub(super) fn set_timeout(of: &mut Timeouts, wanted: &str, time: Duration) -> Result<(), String> {
    let mut fields = timeouts(of);
    let names = fields.each_ref().map(|(name, ..)| *name);
    let field = fields.iter_mut().find(|(name, ..)| *name == wanted);
    let (_, field, _) = field.ok_or_else(|| match nearest(wanted, &names) {
        Some(name) => format!("{wanted:?} is no time-out, did you mean {name:?}?"),
        None => format!("{wanted:?} is no time-out; there are {}", names.join(", ")),
    })?;
    **field = time;
    Ok(())
}

/// A time-out as an option has it: `NAME=DURATION`.
#[derive(Clone, Debug)]
pub(super) struct Timeout {
    pub(super) name: String,
    pub(super) time: Duration,
}

impl FromStr for Timeout {
    type Err = String;

    fn from_str(text: &str) -> Result<Timeout, String> {
        let (name, time) = text.split_once('=').ok_or("expected NAME=DURATION such as connect=5s")?;
        let Time(time) = time.parse::<Time<1>>()?;
        Ok(Timeout { name: name.to_owned(), time })
    }
}
