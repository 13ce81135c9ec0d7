//! The start text: the address of the proxy, and commands that show it at work.

use tollgate::AnyRule;

use crate::config::rows::client;
use crate::config::settings::{Settings, Upstream};
use tollgate_common::settings::values::Address;

/// Returns the lines of the start text.
pub(crate) fn introduction(settings: &Settings, at: &Address, demo: &Upstream) -> Vec<String> {
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    let (target, shown) = match at {
        Address::Tcp(address) => (format!("{scheme}://{address}"), format!("{scheme}://{address}")),
        Address::Unix(_) => (format!("{scheme}://localhost"), at.to_string()),
    };
    let (first, curl) = (first_line(settings, &shown, demo), curl(settings));
    let mut lines = vec![first, format!("  a request:  {curl} -i {target}/")];
    if let Some(rule) = settings.limit.filter(|_| !settings.shadow) {
        lines.push(match requests_for_a_refusal(rule) {
            Some(requests) => {
                let statuses = "-Zs -o /dev/null -w '%{http_code}\\n'";
                format!("  a refusal:  {curl} {statuses} '{target}/?[1-{requests}]' | sort | uniq -c")
            }
            None => {
                "  a refusal:  curl is slower than this limit; start with --limit '5/s burst 10'".to_owned()
            }
        });
    }
    lines
}

fn first_line(settings: &Settings, at: &str, demo: &Upstream) -> String {
    let upstreams: Vec<String> = match &*settings.upstreams {
        [] => vec![demo.to_string()],
        upstreams => upstreams.iter().map(ToString::to_string).collect(),
    };
    let key = client(&settings.key);
    let limit = settings.limit.map_or("no limit".to_owned(), |rule| format!("{rule} for {key}"));
    let shadow = if settings.shadow { " in shadow mode" } else { "" };
    let shared =
        settings.store.as_ref().map(|store| format!(", shared by {}", store.url)).unwrap_or_default();
    format!("tollgate-proxy on {at} to {}, {limit}{shared}{shadow}", upstreams.join(", "))
}

/// Returns the command `curl` with the options that it needs to reach the proxy.
fn curl(settings: &Settings) -> String {
    let mut curl = "curl".to_owned();
    if let Address::Unix(path) = &settings.listen {
        curl += &format!(" --unix-socket '{}'", path.display());
    }
    if settings.tls.is_some() {
        curl += " -k";
    }
    if settings.proxy_protocol {
        curl += " --haproxy-protocol";
    }
    curl
}

/// Returns the number of requests of one client after which some are refused, or `None` if `curl`
/// is too slow for that.
fn requests_for_a_refusal(rule: AnyRule) -> Option<u64> {
    // `curl` sends some thousand requests a second.
    const MOST: u64 = 500;
    let a_second = rule.tokens() as f64 / rule.period().as_secs_f64();
    (a_second <= MOST as f64 && rule.capacity() <= 20 * MOST).then(|| {
        // The rate is at most `MOST`, so the sum fits.
        2 * (rule.capacity() + a_second.ceil() as u64)
    })
}
