//! Who looks on as decisions are made: a hook, and shadow mode.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted};

pub(crate) type Hook = Arc<dyn Fn(&Result<Granted, Denied>) + Send + Sync>;

/// A limiter that nobody looks at has none: one test of a pointer in the hot path.
pub(crate) struct Observer {
    shadow: bool,
    hook: Option<Hook>,
    /// What shadow mode has granted of what would have been denied.
    overruled: AtomicU64,
}

impl Observer {
    pub(crate) fn new(shadow: bool, hook: Option<Hook>) -> Option<Box<Observer>> {
        (shadow || hook.is_some()).then(|| Box::new(Observer { shadow, hook, overruled: AtomicU64::new(0) }))
    }

    /// Shows a decision on `n` tokens to the hook, and overrules it in shadow mode.
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

/// What a limiter has beside its rules.
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

    /// As [`observe`](Extras::observe), for who takes what is there: `decision` is that on the first token.
    pub(crate) fn observe_up_to(
        &self,
        n: u64,
        granted: Granted,
        decision: Result<Granted, Denied>,
    ) -> Granted {
        match &self.observer {
            // Less than was asked for would have slowed the caller down.
            Some(observer) if observer.shadow && granted.tokens() < n => {
                observer.overrule(decision);
                Granted::anyway(n, granted.remaining())
            }
            Some(observer) => observer.see(n, decision).unwrap_or(granted),
            None => granted,
        }
    }

    /// A look that decides only if it refuses.
    pub(crate) fn preview(&self, n: u64, decision: Result<Granted, Denied>) -> Result<(), Denied> {
        match decision {
            // In shadow mode it is the take that is overruled, and counted.
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
