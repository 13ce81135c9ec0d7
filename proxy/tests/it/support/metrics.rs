//! The numbers that a proxy tells on its admin page.

use std::collections::BTreeMap;

use serde_json::Value;
use tollgate_testing::wire::Connection;

use super::{Proxy, until};

impl Proxy {
    pub(crate) fn metrics(&self) -> String {
        self.ask_admin("GET", "/metrics", "").body
    }

    /// Returns the sum of a metric over its labels that contain `part`.
    pub(crate) fn sum(&self, name: &str, part: &str) -> f64 {
        let metrics = self.metrics();
        let of = |line: &str| {
            let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.split_once("} ")?;
            labels.contains(part).then(|| value.parse::<f64>().expect("a number"))
        };
        let values: Vec<f64> = metrics.lines().filter_map(of).collect();
        assert!(!values.is_empty(), "no {name} with {part} in {metrics}");
        values.iter().sum()
    }

    /// Returns the value of a series, with its labels.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let metrics = self.metrics();
        let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in {metrics}")).parse().expect("a number")
    }

    /// Waits until a series has this value: a client may see the end of a connection before it is
    /// counted.
    pub(crate) fn await_metric(&self, series: &str, value: u64) {
        until(&format!("{series} {value}"), || self.metric(series) == value);
    }

    /// Returns the value of `tollgate_proxy_NAME_total`.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.metric(&format!("tollgate_proxy_{name}_total"))
    }

    pub(crate) fn await_count(&self, name: &str, value: u64) {
        self.await_metric(&format!("tollgate_proxy_{name}_total"), value);
    }

    /// Waits until this number of requests are under way.
    pub(crate) fn await_under_way(&self, value: u64) {
        self.await_metric("tollgate_proxy_requests_under_way", value);
    }

    /// Returns the number of decisions of a limit with this result.
    pub(crate) fn decided(&self, policy: &str, result: &str) -> u64 {
        self.metric(&format!("tollgate_decisions_total{{policy=\"{policy}\",result=\"{result}\"}}"))
    }

    /// Waits until these are the numbers of `tollgate_proxy_NAME_total`, and all others are 0.
    /// Changes of a limit do not count.
    pub(crate) fn assert_counts(&self, counts: &[(&str, u64)]) {
        let counts = BTreeMap::from_iter(counts.iter().map(|(name, number)| ((*name).to_owned(), *number)));
        let mut now = BTreeMap::new();
        until(&format!("{counts:?}"), || {
            now = numbers(&self.metrics());
            now == counts
        });
    }

    /// Opens the live page, of which each event is a chunk.
    pub(crate) fn events(&self) -> Connection {
        let mut client = self.admin();
        let head = client.ask(&format!("GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", self.admin));
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
        client
    }

    /// Returns the state of the proxy, which is the first event of a new connection.
    pub(crate) fn event(&self) -> Value {
        read_event(&mut self.events())
    }

    /// Returns the second event of a new connection, which is of some time.
    #[cfg(feature = "sqlite")]
    pub(crate) fn later_event(&self) -> Value {
        let mut events = self.events();
        read_event(&mut events);
        read_event(&mut events)
    }

    /// Adds up fields of the events until they are these numbers. None may be larger.
    pub(crate) fn await_events(events: &mut Connection, fields: &[(&str, u64)]) {
        let mut sums = vec![0; fields.len()];
        until(&format!("{fields:?}"), || {
            let event = read_event(events);
            for (sum, (name, most)) in sums.iter_mut().zip(fields) {
                *sum += event[name].as_u64().expect("a number");
                assert!(*sum <= *most, "{name} in {event}");
            }
            sums.iter().zip(fields).all(|(sum, field)| *sum == field.1)
        });
    }
}

fn numbers(metrics: &str) -> BTreeMap<String, u64> {
    let ours = metrics.lines().filter_map(|line| line.strip_prefix("tollgate_proxy_")?.split_once(' '));
    let mut numbers: BTreeMap<_, u64> = ours
        .map(|(name, number)| (name.trim_end_matches("_total").to_owned(), number.parse().expect("a number")))
        .collect();
    numbers.retain(|name, number| *number > 0 && name != "limit_changes");
    numbers
}

/// Reads an event of the live page.
pub(crate) fn read_event(events: &mut Connection) -> Value {
    let chunk = events.chunk();
    let data = chunk.strip_prefix("data: ").and_then(|rest| rest.strip_suffix("\n\n"));
    serde_json::from_str(data.unwrap_or_else(|| panic!("no event: {chunk:?}"))).expect("JSON")
}
