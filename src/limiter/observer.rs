//! Decision hook and shadow mode.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted};

pub(crate) type Hook = Arc<dyn Fn(&Result<Granted, Denied>) + Send + Sync>;

/// The hook and the shadow mode of a limiter.
///
/// A limiter without both has no observer: one pointer test on the hot path.
pub(crate) struct Observer {
    shadow: bool,
    hook: Option<Hook>,
    /// Decisions granted by shadow mode that would have been refusals.
    overruled: AtomicU64,
}

impl Observer {
    pub(crate) fn new(shadow: bool, hook: Option<Hook>) -> Option<Box<Observer>> {
        (shadow || hook.is_some()).then(|| Box::new(Observer { shadow, hook, overruled: AtomicU64::new(0) }))
    }

    /// Shows a decision on `n` tokens to the hook, and overrules a refusal in shadow mode.
    #[cold]
    fn see(&self, n: u64, decision: Result<Granted, Denied>) -> Result<Granted, Denied> {
        match decision {
            Err(denied) if self.shadow => {
                self.overrule(decision);
                Ok(Granted::anyway(n, denied.remaining()))
            }
            decision => {
                self.show(&decision);
                decision
            }
        }
    }

    fn overrule(&self, decision: Result<Granted, Denied>) {
        self.show(&decision);
        self.overruled.fetch_add(1, Ordering::Relaxed);
    }

    fn show(&self, decision: &Result<Granted, Denied>) {
        if let Some(hook) = &self.hook {
            hook(decision);
        }
    }
}

/// The settings of a limiter that are not rules.
#[derive(Debug)]
pub(crate) struct Extras {
    pub(crate) observer: Option<Box<Observer>>,
    pub(crate) jitter: Jitter,
}

impl Extras {
    pub(crate) const NONE: Extras = Extras { observer: None, jitter: Jitter::NONE };

    #[inline]
    pub(crate) fn observe(&self, n: u64, decision: Result<Granted, Denied>) -> Result<Granted, Denied> {
        match &self.observer {
            None => decision,
            Some(observer) => observer.see(n, decision),
        }
    }

    /// Like [`observe`](Extras::observe), for a take of up to `n` tokens.
    ///
    /// `decision` is the decision on the first token.
    pub(crate) fn observe_up_to(
        &self,
        n: u64,
        granted: Granted,
        decision: Result<Granted, Denied>,
    ) -> Granted {
        match &self.observer {
            // Fewer than `n` tokens would have slowed the caller down.
            Some(observer) if observer.shadow && granted.tokens() < n => {
                observer.overrule(decision);
                Granted::anyway(n, granted.remaining())
            }
            Some(observer) => observer.see(n, decision).unwrap_or(granted),
            None => granted,
        }
    }

    /// Returns the decision of a look, which the hook sees only if it is a refusal.
    pub(crate) fn preview(&self, n: u64, decision: Result<Granted, Denied>) -> Result<(), Denied> {
        match decision {
            // In shadow mode the take that follows is overruled and counted, not the look.
            Err(_) if self.is_shadow() => Ok(()),
            Err(_) => self.observe(n, decision).map(drop),
            Ok(_) => Ok(()),
        }
    }

    pub(crate) fn is_shadow(&self) -> bool {
        self.observer.as_ref().is_some_and(|observer| observer.shadow)
    }

    pub(crate) fn overruled(&self) -> u64 {
        self.observer.as_ref().map_or(0, |observer| observer.overruled.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("shadow", &self.shadow)
            .field("hook", &self.hook.is_some())
            .finish_non_exhaustive()
    }
}
