//! Counts in the store that an operator sets to 0.

use tollgate::AnyRule;

use super::known::Known;
use super::settings::Layout;
use super::{Counts, OF_TEXTS, SharedCounts, Want};
use crate::serve::counts::{Counted, UnixTime, Verb};
use crate::serve::limiters::MOST;
use crate::serve::loaded::Counter;

impl SharedCounts {
    /// Sets a count to 0, and forgets what this process knows of it. Returns it as it was, and as
    /// it is. `look` makes the want of a look.
    pub(in crate::serve) async fn clear<'w>(
        &self,
        look: impl Fn() -> Want<'w>,
        now: UnixTime,
    ) -> Result<[Counted; 2], String> {
        let away = || "the store does not answer, so nothing is cleared".to_owned();
        let before = self.look(look(), now).await.filter(|_| !self.is_away()).ok_or_else(away)?;
        let want = Want { verb: Verb::GiveBack, hits: MOST, ..look() };
        let is_back = match (want.counter, self.settings.layout) {
            (Counter::Unlimited, _) => false,
            (Counter::Window { unit, .. }, Layout::Envoy) => {
                let op = self.op_of(&want, *unit, now, Known::back(MOST, 0));
                let answers = self.buckets.call(op.map(|(op, _)| op).into_iter().collect()).await;
                answers.into_iter().flatten().next().is_some()
            }
            (Counter::Window { unit, requests, .. }, Layout::Tollgate) => {
                self.give_all_back(&want, Counts::Unit(*unit, (*requests).max(1))).await
            }
            (Counter::Text { limiter, .. }, _) => self.give_all_back(&want, Counts::Rule(limiter.rule)).await,
        };
        if !is_back {
            return Err(away());
        }
        let table = match want.counter {
            Counter::Window { unit, .. } => *unit as u32,
            _ => OF_TEXTS * want.place,
        };
        let id = (want.key, table);
        self.lent().remove(&id);
        self.with_known(id, Known::clear);
        let after = self.look(look(), now).await.ok_or_else(away)?;
        let slides = matches!(want.counter, Counter::Text { limiter, .. }
            if matches!(limiter.rule, AnyRule::Window(window) if window.sub_window().is_some()));
        match after.hits.after {
            left @ 1.. if slides => Err(format!(
                "the hits of the present sub-window are cleared alone: {left} are left in the window, \
                 and no call of a store clears those of earlier sub-windows"
            )),
            _ => Ok([before, after]),
        }
    }

    /// Returns the result of a want.
    pub(super) async fn look(&self, want: Want<'_>, now: UnixTime) -> Option<Counted> {
        let mut wants = [Some(want)];
        self.count_all(&mut wants, now).await;
        let [want] = wants;
        want?.counted
    }
}
