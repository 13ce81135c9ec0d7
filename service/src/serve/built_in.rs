//! The limits of a service that is given none: for a first look.

use std::net::SocketAddr;

use super::options::ServeOptions;
use super::settings::ServeSettings;

/// The name of the limits in errors, in place of a path.
pub(super) const NAME: &str = "the built-in limits";
/// Five requests a minute for each user.
pub(super) const LIMITS: &str = "domain: demo
descriptors:
- key: user
  rate_limit: {unit: minute, requests_per_unit: 5}
";

/// Returns whether the built-in limits are served: neither a path nor a control plane nor a file of
/// settings nor a variable of the configuration is given, and the folder of the variables' defaults
/// is not there.
pub(super) fn is_served(options: &ServeOptions, settings: &ServeSettings, has_variable: bool) -> bool {
    let waits = settings.needs_domain || settings.starts_without;
    options.paths.is_empty()
        && !settings.xds.is_used
        && options.config.is_none()
        && !has_variable
        && !waits
        && !settings.paths.iter().any(|path| path.exists())
}

/// Returns the commands to type next, for an address of HTTP.
pub(super) fn commands(http: SocketAddr) -> [String; 4] {
    let ask = |user: &str, hits: &str| {
        format!(
            "curl -i -d '{{\"domain\": \"demo\", \"descriptors\": [{{\"entries\": [{{\"key\": \"user\", \
             \"value\": \"{user}\"}}]{hits}}}]}}' http://{http}/json"
        )
    };
    [
        "no PATH is given: these are built-in limits, 5 requests a minute for each user".to_owned(),
        format!("  a request: {}", ask("ada", "")),
        format!("  a refusal: {}", ask("bob", ", \"hitsAddend\": 6")),
        "  your limits: tollgate serve PATH, of YAML such as service/examples/edge.yaml".to_owned(),
    ]
}
