//! Settings shared by the builders of windows.

use std::fmt;

use crate::bucket::engine::Engine;
use crate::bucket::live_terms::LiveTerms;
use crate::limiter::observer::{DecisionHook, HookFn};
use crate::quota::layout::Layout;
use crate::quota::window::Window;
use crate::quota::window_error::InvalidWindow;
use crate::quota::window_layout::WindowLayout;
use crate::sync::const_fn;
use crate::time::clock::Clock;

/// The layout of a word for a window and its headroom.
#[derive(Clone, Copy)]
pub(crate) struct WindowRoom(WindowLayout);

impl WindowRoom {
    pub(crate) const fn of(window: Window) -> WindowRoom {
        match window.layout(window.limit()) {
            Ok(layout) => WindowRoom(layout),
            Err(_) => panic!("each window was checked when it was made"),
        }
    }

    const_fn! {
        pub(crate) const fn engine(self, clock: Clock) -> Engine {
            let WindowLayout { widths, numbers } = self.0;
            Engine::new(LiveTerms::of(numbers, Layout { widths, debt: 0 }), clock, None)
        }
    }
}

#[derive(Clone)]
pub(crate) struct WindowSettings {
    pub(crate) window: Window,
    pub(crate) room: WindowRoom,
    pub(crate) clock: Clock,
    pub(crate) shadow: bool,
    pub(crate) hook: Option<HookFn>,
}

impl WindowSettings {
    pub(crate) fn new(window: Window) -> WindowSettings {
        let room = WindowRoom::of(window);
        WindowSettings { window, room, clock: Clock::new(), shadow: false, hook: None }
    }

    pub(crate) fn headroom(self, limit: u64) -> Result<WindowSettings, InvalidWindow> {
        let room = WindowRoom(self.window.layout(limit.max(self.window.limit()))?);
        Ok(WindowSettings { room, ..self })
    }

    pub(crate) fn finish(self) -> (Window, Engine, DecisionHook) {
        let clock = match self.window.anchor() {
            Some(anchor) => self.clock.in_unix_time(anchor),
            None => self.clock,
        };
        clock.calibrate();
        (self.window, self.room.engine(clock), DecisionHook::new(self.shadow, self.hook))
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
