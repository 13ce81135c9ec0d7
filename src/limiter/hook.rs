//! Decision hook and shadow mode.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::word::decision::{Denied, Granted};

/// A function that sees decisions.
pub(crate) type HookFn = Arc<dyn Fn(&Result<Granted, Denied>) + Send + Sync>;

/// The hook and the shadow mode of a limiter.
///
/// `None` without both: one pointer test on the hot path.
pub(crate) struct DecisionHook(Option<Box<Observer>>);

struct Observer {
    shadow: bool,
    function: Option<HookFn>,
    /// Decisions granted by shadow mode that would have been refusals.
    overruled: AtomicU64,
}

impl Observer {
    /// Shows a decision on `n` tokens to the hook, and overrules a refusal in shadow mode.
    ///
    /// The decision is where its caller has it: a copy is 20 instructions.
    #[inline]
    fn see(&self, n: u64, decision: &mut Result<Granted, Denied>) {
        match decision {
            Err(denied) if self.shadow => *decision = Ok(self.overrule(n, denied.remaining(), *decision)),
            decision => self.show(decision),
        }
    }

    /// Shows a decision to the hook, counts it as overruled, and grants all `n` tokens.
    #[cold]
    fn overrule(&self, n: u64, remaining: u64, decision: Result<Granted, Denied>) -> Granted {
        self.show(&decision);
        self.overruled.fetch_add(1, Ordering::Relaxed);
        Granted::anyway(n, remaining)
    }

    fn show(&self, decision: &Result<Granted, Denied>) {
        if let Some(function) = &self.function {
            function(decision);
        }
    }
}

/// Calls a function when it is dropped, also by a panic, unless it is disarmed.
pub(crate) struct OnDrop<F: Fn()>(pub(crate) F);

impl<F: Fn()> OnDrop<F> {
    pub(crate) fn disarm(self) {
        mem::forget(self);
    }
}

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl DecisionHook {
    pub(crate) const NONE: DecisionHook = DecisionHook(None);

    pub(crate) fn new(shadow: bool, function: Option<HookFn>) -> DecisionHook {
        let sees = shadow || function.is_some();
        DecisionHook(sees.then(|| Box::new(Observer { shadow, function, overruled: AtomicU64::new(0) })))
    }

    pub(crate) const fn is_none(&self) -> bool {
        self.0.is_none()
    }

    #[inline]
    pub(crate) fn observe(&self, n: u64, decision: Result<Granted, Denied>) -> Result<Granted, Denied> {
        let mut decision = decision;
        self.see(n, &mut decision);
        decision
    }

    /// Like [`observe`](Self::observe), where the caller has the decision.
    #[inline]
    pub(crate) fn see(&self, n: u64, decision: &mut Result<Granted, Denied>) {
        if let Some(observer) = &self.0 {
            observer.see(n, decision);
        }
    }

    /// Shows a grant to the hook. Calls `undo` if the function panics.
    pub(crate) fn observe_or(&self, granted: &Granted, undo: impl Fn()) {
        if let Some(observer) = &self.0 {
            let undo = OnDrop(undo);
            observer.show(&Ok(*granted));
            undo.disarm();
        }
    }

    /// Like [`observe`](Self::observe), for a take of up to `n` tokens.
    ///
    /// `decision` is the decision on the first token.
    pub(crate) fn observe_up_to(
        &self,
        n: u64,
        granted: Granted,
        decision: Result<Granted, Denied>,
    ) -> Granted {
        match &self.0 {
            // Fewer than `n` tokens would have slowed the caller down.
            Some(observer) if observer.shadow && granted.tokens() < n => {
                observer.overrule(n, granted.remaining(), decision)
            }
            Some(observer) => {
                // A refusal of the first token is a grant of none.
                let mut decision = decision;
                observer.see(n, &mut decision);
                decision.unwrap_or(granted)
            }
            None => granted,
        }
    }

    /// Returns the decision of a look, which the hook sees only if it is a refusal.
    pub(crate) fn preview(&self, n: u64, decision: Result<Granted, Denied>) -> Result<(), Denied> {
        match decision {
            Err(_) if !self.is_shadow() => self.observe(n, decision).map(drop),
            // In shadow mode the take that follows is overruled and counted, not the look.
            _ => Ok(()),
        }
    }

    pub(crate) fn is_shadow(&self) -> bool {
        self.0.as_ref().is_some_and(|observer| observer.shadow)
    }

    pub(crate) fn overruled(&self) -> u64 {
        self.0.as_ref().map_or(0, |observer| observer.overruled.load(Ordering::Relaxed))
    }
}
