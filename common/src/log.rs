//! The log on stderr.

use std::io;
use std::sync::LazyLock;

use tollgate::{Quota, RateLimiter};
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{DynFilterFn, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

type Lines = Box<dyn Layer<Registry> + Send + Sync>;

/// The log, with a format that can be changed.
pub struct LogHandle(reload::Handle<Lines, Registry>);

impl LogHandle {
    /// Starts to write each event of the process, from the level on, to stderr.
    pub fn start(json: bool, level: Level) -> LogHandle {
        let (lines, handle) = reload::Layer::new(lines(json));
        // The lines of other crates below `INFO` are frames of HTTP/2.
        let others = if level == Level::TRACE { level } else { level.min(Level::INFO) };
        let filter = Targets::new().with_default(others).with_target("tollgate", level);
        tracing_subscriber::registry().with(lines).with(DynFilterFn::new(is_logged)).with(filter).init();
        LogHandle(handle)
    }

    #[cfg(feature = "testing")]
    pub fn of_tests() -> LogHandle {
        LogHandle(reload::Layer::new(lines(false)).1)
    }

    pub fn set_format(&self, json: bool) {
        // The call fails only if the log is gone, and the log lives as long as the process.
        let _ = self.0.reload(lines(json));
    }
}

/// Returns whether an event is written. A dead upstream fails each request, so each line of the
/// code that warns is bounded. `/metrics` counts all failures.
fn is_logged<S>(event: &Metadata<'_>, _: &Context<'_, S>) -> bool {
    static WARNINGS: LazyLock<RateLimiter<Identifier>> =
        LazyLock::new(|| RateLimiter::new(Quota::per_second(5).burst(10)));
    *event.level() != Level::WARN || WARNINGS.try_acquire(&event.callsite()).is_ok()
}

fn lines(json: bool) -> Lines {
    // A field of the access log is named `target`. The target of the event would be a second one.
    let lines = fmt::layer().with_writer(io::stderr).with_target(false);
    if json { lines.json().flatten_event(true).boxed() } else { lines.with_ansi(false).boxed() }
}
