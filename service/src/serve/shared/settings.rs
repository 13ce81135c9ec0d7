//! The settings of the store.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{AnyRule, Quota};
use tollgate_distributed::{AnyStore, CountSpec, OnOutage, Spec};

use super::service_store::ServiceStore;
use crate::rules::error::Finding;
use crate::rules::tree::{Amount, RuleLimit, Rules};
use crate::serve::counts::Algorithm;

/// The engines, each with whether this program has it.
const ENGINES: [(&str, bool); 4] = [
    ("sqlite", cfg!(feature = "sqlite")),
    ("redis", cfg!(feature = "redis")),
    ("postgres", cfg!(feature = "postgres")),
    ("mysql", cfg!(feature = "mysql")),
];
const FORM: &str =
    "expected sqlite:PATH, redis://HOST, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE";

/// The keys of the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Layout {
    #[default]
    Tollgate,
    /// Those of envoyproxy/ratelimit, in a Redis.
    Envoy,
}

impl Layout {
    /// The names of the settings.
    pub(in crate::serve) const NAMES: [(&str, Layout); 2] =
        [("tollgate", Layout::Tollgate), ("envoy", Layout::Envoy)];
}

/// The URL of a store. Its text may have a password, so it is shown without.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoreUrl(String);

/// The store that replicas share.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoreSettings {
    /// `None`: the counts are in this process.
    pub(crate) url: Option<StoreUrl>,
    /// Replicas of one name share their counts.
    pub(in crate::serve) name: String,
    pub(in crate::serve) layout: Layout,
    /// The time for which tokens of busy keys are taken ahead; zero for none.
    pub(in crate::serve) lease: Duration,
    pub(in crate::serve) deadline: Duration,
    pub(in crate::serve) on_outage: OnOutage,
    /// A key that is over its limit is refused without a call.
    pub(in crate::serve) caches_over: bool,
    /// The Redis of windows of a second, in the layout of envoyproxy/ratelimit.
    pub(in crate::serve) per_second: Option<StoreUrl>,
    /// The begin of each key, and the longest time that a key outlives its window, in that layout.
    pub(in crate::serve) prefix: String,
    pub(in crate::serve) jitter: Duration,
    /// The bytes of the keys that are known to be over their limits, in that layout.
    pub(in crate::serve) cache_bytes: Option<u64>,
    /// Each variable that is set and has no effect, with the reason.
    pub(in crate::serve) notes: Vec<String>,
}

impl Default for StoreSettings {
    fn default() -> StoreSettings {
        StoreSettings {
            url: None,
            name: String::new(),
            layout: Layout::default(),
            lease: Duration::ZERO,
            deadline: Duration::ZERO,
            on_outage: OnOutage::Local { share: 1.0 },
            caches_over: true,
            per_second: None,
            prefix: String::new(),
            jitter: Duration::ZERO,
            cache_bytes: None,
            notes: Vec::new(),
        }
    }
}

impl StoreUrl {
    /// Returns a URL, whose file is relative to a folder. Its mistake has no part of it but its
    /// engine.
    pub(in crate::serve) fn read(text: &str, folder: &Path) -> Result<StoreUrl, String> {
        let (scheme, rest) = text.split_once(':').ok_or(FORM)?;
        let engine = match scheme {
            "postgresql" => "postgres",
            "mariadb" => "mysql",
            "unix" => "redis",
            redis if redis.starts_with("redis") => "redis",
            other => other,
        };
        let (engine, is_there) = ENGINES.into_iter().find(|(name, _)| *name == engine).ok_or(FORM)?;
        if !is_there {
            return Err(format!("this program was built without {engine}: `--features {engine}` adds it"));
        }
        let rest_of_it = if engine == "sqlite" { Some(rest) } else { rest.strip_prefix("//") };
        if rest_of_it.is_none_or(|rest_of_it| rest_of_it.is_empty() || rest_of_it.contains('\0')) {
            return Err(FORM.to_owned());
        }
        match engine {
            "sqlite" if rest.starts_with(':') => Ok(StoreUrl(text.to_owned())),
            "sqlite" => Ok(StoreUrl(format!("sqlite:{}", folder.join(rest).display()))),
            // No server is asked.
            _ => StoreUrl(text.to_owned()).open().map(|_| StoreUrl(text.to_owned())),
        }
    }

    /// Opens the store. The error has its cause alone, since the URL may have a password.
    fn open(&self) -> Result<AnyStore, String> {
        AnyStore::open(&self.0)
            .map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))
    }

    fn is_redis(&self) -> bool {
        self.0.starts_with("redis") || self.0.starts_with("unix")
    }
}

impl fmt::Display for StoreUrl {
    /// Writes the URL without the user, the password and the options.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        let rest = rest.split('?').next().unwrap_or_default();
        let shown = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        if scheme.is_empty() { f.write_str(shown) } else { write!(f, "{scheme}://{shown}") }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StoreSettings {
    /// Returns whether tokens of busy keys are leased.
    pub(super) fn leases(&self) -> bool {
        self.layout == Layout::Tollgate && !self.lease.is_zero()
    }

    /// Returns a line about the store, if there is one.
    pub(in crate::serve) fn told(&self) -> Option<String> {
        let (url, name) = (self.url.as_ref()?, &self.name);
        Some(match self.layout {
            Layout::Envoy => format!("counts in {url}, by the keys of envoyproxy/ratelimit"),
            Layout::Tollgate if self.leases() => {
                format!("counts in {url}, of the name {name}, with leases of {:?}", self.lease)
            }
            Layout::Tollgate => format!("counts in {url}, of the name {name}, by a call for each request"),
        })
    }

    /// Opens the store. A server that does not answer is no error.
    pub(super) fn open(&self) -> Result<ServiceStore, String> {
        let url = self.url.as_ref().ok_or("there is no store")?;
        let cannot = |why: String| format!("cannot open the store {url}: {why}");
        let store = url.open().map_err(cannot)?;
        match self.layout {
            Layout::Tollgate => Ok(ServiceStore::Any(store)),
            Layout::Envoy => self.open_envoy(store).map_err(cannot),
        }
    }

    #[cfg(feature = "redis")]
    fn open_envoy(&self, store: AnyStore) -> Result<ServiceStore, String> {
        let redis = |store| match store {
            AnyStore::Redis(redis) => Ok(redis),
            _ => Err(ENVOY_IS_REDIS.to_owned()),
        };
        let counts = tollgate_distributed::IncrStore::new(redis(store)?);
        let counts = counts.prefix(self.prefix.clone()).jitter(self.jitter);
        Ok(ServiceStore::Incr(match &self.per_second {
            Some(url) => counts.per_second(&redis(url.open()?)?),
            None => counts,
        }))
    }

    #[cfg(not(feature = "redis"))]
    fn open_envoy(&self, _: AnyStore) -> Result<ServiceStore, String> {
        Err(ENVOY_IS_REDIS.to_owned())
    }

    /// Checks the settings together.
    pub(in crate::serve) fn check(&self) -> Result<(), String> {
        match &self.url {
            Some(url) if self.layout == Layout::Envoy && !url.is_redis() => {
                Err(format!("{ENVOY_IS_REDIS}, and the store is {url}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the limits that the store cannot count.
    pub(crate) fn not_shared(&self, rules: &Rules, algorithm: Algorithm) -> Vec<Finding> {
        if self.url.is_none() {
            return Vec::new();
        }
        let why = |limit: &RuleLimit| {
            match (&limit.amount, self.layout) {
            (_, Layout::Envoy) if limit.place > 0 => {
                Some("the layout of envoyproxy/ratelimit has one count of a descriptor, and no `limits`".to_owned())
            }
            (Amount::Unlimited, _) => None,
            (_, Layout::Envoy) if limit.networks().next().is_some() => Some(
                "the layout of envoyproxy/ratelimit has the values as they are, and no `ipv4_prefix` or `ipv6_prefix`"
                    .to_owned(),
            ),
            (Amount::Window { .. }, Layout::Tollgate) => None,
            (Amount::Window { .. }, Layout::Envoy) => (algorithm == Algorithm::TokenBucket)
                .then(|| "the layout of envoyproxy/ratelimit has no token buckets".to_owned()),
            (Amount::Text(..), Layout::Envoy) => Some(
                "the layout of envoyproxy/ratelimit counts `unit` and `requests_per_unit` alone, and no `limit`"
                    .to_owned(),
            ),
            (Amount::Windows { .. }, Layout::Envoy) => Some(
                "the layout of envoyproxy/ratelimit has windows of one unit, and no `unit_multiplier`".to_owned(),
            ),
            (Amount::Text(_, rule) | Amount::Windows { window: rule, .. }, Layout::Tollgate) => {
                let bucket = limit.amount.bucket().filter(|_| algorithm == Algorithm::TokenBucket);
                counted(bucket.unwrap_or(*rule), self.leases())
            }
        }
        };
        let finding = |limit: &Arc<RuleLimit>| {
            Some(Finding { at: limit.at.clone(), what: format!("no store counts it: {}", why(limit)?) })
        };
        rules.limits().filter_map(finding).collect()
    }
}

const ENVOY_IS_REDIS: &str = "the layout of envoyproxy/ratelimit is one of Redis";

/// Returns the reason why a store cannot count a rule.
fn counted(rule: AnyRule, is_leased: bool) -> Option<String> {
    let counted = match rule {
        // The store is not asked.
        AnyRule::Quota(Quota::UNLIMITED | Quota::BLOCKED) => Ok(()),
        AnyRule::Quota(quota) => {
            // Leases are at most half of the burst.
            let debt = if is_leased { quota.capacity() / 2 } else { 0 };
            Spec::new(quota, debt).map(drop)
        }
        // It does not depend on the time.
        AnyRule::Window(window) => CountSpec::new(window, Duration::ZERO).map(drop),
    };
    counted.err().map(|why| why.to_string())
}
