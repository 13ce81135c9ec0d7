//! Settings shared by the builders of windows, and the engine of a word that counts.

use std::fmt;

use crate::bucket::engine::Engine;
use crate::bucket::live_terms::LiveTerms;
use crate::limiter::observer::{DecisionHook, HookFn};
use crate::quota::gate::Gate;
use crate::quota::layout::Layout;
use crate::quota::window::Window;
use crate::quota::window_error::InvalidWindow;
use crate::quota::window_layout::WindowLayout;
use crate::sync::const_fn;
use crate::time::clock::Clock;

const_fn! {
    /// Returns the engine of a word that counts a window, or places.
    pub(crate) const fn engine_of(layout: WindowLayout, clock: Clock) -> Engine {
        let WindowLayout { widths, numbers } = layout;
        Engine::new(LiveTerms::of(numbers, Gate::Counted, Layout { widths, debt: 0 }), clock, None)
    }
}

#[derive(Clone)]
pub(crate) struct WindowSettings {
    pub(crate) window: Window,
    pub(crate) clock: Clock,
    pub(crate) shadow: bool,
    pub(crate) hook: Option<HookFn>,
}

impl WindowSettings {
    pub(crate) fn new(window: Window) -> WindowSettings {
        WindowSettings { window, clock: Clock::new(), shadow: false, hook: None }
    }

    pub(crate) fn headroom(self, limit: u64) -> Result<WindowSettings, InvalidWindow> {
        Ok(WindowSettings { window: self.window.headroom(limit)?, ..self })
    }

    pub(crate) fn finish(self) -> (Window, Engine, DecisionHook) {
        let clock = match self.window.anchor() {
            Some(anchor) => self.clock.in_unix_time(anchor),
            None => self.clock,
        };
        clock.calibrate();
        (self.window, engine_of(self.window.held_layout(), clock), DecisionHook::new(self.shadow, self.hook))
    }
}

impl fmt::Debug for WindowSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowSettings")
            .field("window", &format_args!("{}", self.window))
            .field("clock", &self.clock)
            .field("shadow", &self.shadow)
            .field("hook", &self.hook.is_some())
            .finish_non_exhaustive()
    }
}
