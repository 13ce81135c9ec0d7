//! Windows of keys beside windows that are spelled out, at steps that a source of numbers chooses.

#![allow(dead_code, reason = "not every user of the reference drives windows")]

use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use tollgate::{Clock, InvalidRule, MockClock, RateLimiter, Reason, Window, WindowCounter, all_of};
use tollgate_testing::reference::windows::{Kind, Spelled};

use super::face::Face;
use super::subject::Decision;

/// Keys of a limiter.
const KEYS: u64 = 4;
/// A source of numbers, each below a bound.
pub(crate) type Choose<'a> = &'a mut dyn FnMut(u64) -> u64;

pub(crate) const KINDS: [Kind; 4] = [Kind::FirstUse, Kind::Aligned, Kind::Sliding(0), Kind::Weighted];

/// The crate's windows: one, or one a key in a map or a table.
type Windows = Face<Window, BuildHasherDefault<DefaultHasher>>;

pub(crate) fn window(kind: Kind, limit: u64, period: u64) -> Result<Window, InvalidRule> {
    let window = Window::try_per(limit, Duration::from_nanos(period))?;
    match kind {
        Kind::FirstUse => Ok(window),
        Kind::Aligned => window.try_utc_offset(0),
        Kind::Sliding(_) => window.granularity(Duration::MAX),
        Kind::Weighted => window.try_weighted(),
    }
}

/// Returns the number of sub-windows, by the public length of one.
fn subs(window: Window) -> u64 {
    let sub = window.sub_window().expect("it slides").as_nanos() as u64;
    (window.period().as_nanos() as u64).div_ceil(sub)
}

/// Windows, their clock, and the windows that they should be.
pub(crate) struct Walk {
    face: Windows,
    mock: MockClock,
    kind: Kind,
    made: Window,
    spelled: Vec<Spelled>,
    now: u64,
    period: u64,
    limit: u64,
    top: u64,
    /// The last reading that is exact.
    last: u64,
    /// Whether limits change and tokens come back: then no law holds of the log.
    changes: bool,
}

impl Walk {
    /// Chooses a window; `None` if no word holds it.
    pub(crate) fn new(choose: Choose<'_>, kind: Kind, changes: bool) -> Option<Walk> {
        let most = [3, 20, 100, 1_000, 1 << 20][choose(5) as usize];
        // 2^16 ticks or parts of a window are exact to the nanosecond up to a reading of 2^47.
        let parts = matches!(kind, Kind::FirstUse | Kind::Weighted);
        let (exact, last) = if parts { (1 << 37, 1 << 47) } else { (1 << 45, 1 << 54) };
        let longest = [1_000, 1 << 30, exact][choose(3) as usize];
        let (limit, period) = (1 + choose(most), 1_000_000 + choose(longest));
        let top = if changes { limit + choose(limit + 5) } else { limit };
        let (Ok(made), Ok(with_room)) = (window(kind, limit, period), window(kind, top, period)) else {
            // A large limit in a short period.
            assert!(limit > 1_000 && period < 1 << 31);
            return None;
        };
        let kind = if let Kind::Sliding(_) = kind { Kind::Sliding(subs(with_room)) } else { kind };
        let (clock, mock) = Clock::mock();
        let room = "the word has room for the window alone";
        let keyed = || {
            let builder = RateLimiter::<u64, _>::builder(made).hasher(BuildHasherDefault::default());
            builder.headroom(with_room).expect(room).clock(clock.clone())
        };
        let face = match choose(4) {
            0 => Face::key(keyed().max_keys(KEYS as usize).build()),
            1 => Face::key(keyed().max_keys(64).inline().unwrap().build()),
            _ => {
                let builder = WindowCounter::builder(made).headroom(with_room).expect(room);
                Face::alone(builder.clock(clock.clone()).build())
            }
        };
        let keys = if let Face::Key(..) = face { KEYS } else { 1 };
        let spelled = (0..keys).map(|_| Spelled::new(limit, period, kind)).collect();
        Some(Walk { face, mock, kind, made, spelled, now: 0, period, limit, top, last, changes })
    }

    fn advance(&mut self, nanos: u64) {
        self.mock.advance(Duration::from_nanos(nanos));
        self.now += nanos;
    }

    /// Takes one step, and looks at a key.
    pub(crate) fn step(&mut self, choose: Choose<'_>) {
        let by = match choose(16) {
            0..7 => 0,
            7..9 => choose(self.period / 8),
            9..11 => self.period - self.now % self.period - choose(2),
            11..13 => choose(self.period),
            13..15 => 2 * self.period + choose(self.period),
            // The range of a stamp is 64 periods at the least.
            _ => choose(6_400 * self.period),
        };
        if self.now + by < self.last {
            self.advance(by);
        }
        let key = choose(self.spelled.len() as u64);
        match choose(18) {
            0 => {
                let n = choose(self.limit + 2);
                let taken = self.face.up_to_of(key, (n, 0), None).tokens();
                let spelled = &mut self.spelled[key as usize];
                assert_eq!(taken, n.min(spelled.remaining(self.now)));
                spelled.count_in(self.now, taken);
            }
            1 => self.take_of_two(key, choose),
            2 => self.evict(),
            kind @ 3..8 if self.changes => self.change(key, kind, choose),
            8 => self.take_above(key, choose),
            _ => {
                let most = if choose(3) == 0 { self.limit + 1 } else { 1 + self.limit / 8 };
                self.take(key, 1 + choose(most), choose);
            }
        }
        self.look(key);
    }

    /// Takes `n` tokens of both. Compares the decision, the wait and the tokens left.
    fn take(&mut self, key: u64, n: u64, choose: Choose<'_>) {
        let decision = self.face.take_of(key, n, None, choose(8));
        if self.agrees(key, n, decision) {
            return;
        }
        let Some(wait) = decision.err().and_then(|denied| denied.retry_after()) else { return };
        if choose(4) == 0 {
            self.advance(wait.as_nanos() as u64 - 1);
            assert!(self.face.take_of(key, n, None, choose(8)).is_err());
            self.advance(1);
            let decision = self.face.take_of(key, n, None, choose(8));
            assert!(self.agrees(key, n, decision), "{n} after {wait:?}");
        }
    }

    /// Takes tokens above a part of the limit.
    fn take_above(&mut self, key: u64, choose: Choose<'_>) {
        let (n, percent) = (1 + choose(1 + self.limit / 4), choose(102) as u8);
        let kept = (self.spelled[key as usize].limit * u64::from(percent)).div_ceil(100);
        let decision = self.face.above_of(key, (n, percent), None, choose(8));
        self.agrees_above(key, (n, kept), decision);
    }

    /// Compares a decision, and counts it. Returns whether it is a grant.
    fn agrees(&mut self, key: u64, n: u64, decision: Decision) -> bool {
        self.agrees_above(key, (n, 0), decision)
    }

    /// Compares a decision on a take that leaves `kept` tokens, as [`agrees`](Walk::agrees) does.
    fn agrees_above(&mut self, key: u64, (n, kept): (u64, u64), decision: Decision) -> bool {
        let now = self.now;
        let spelled = &mut self.spelled[key as usize];
        let need = n + kept;
        match decision {
            Ok(granted) => {
                assert!(spelled.grants(now, need), "{n} above {kept} of {spelled:?} at {now}");
                spelled.count_in(now, n);
                assert_eq!(granted.remaining(), spelled.remaining(now), "{spelled:?} at {now}");
                self.reset_is_exact(key, granted.reset_after());
                return true;
            }
            Err(denied) if denied.reason() == Reason::TooMany => assert!(need > spelled.limit),
            Err(denied) => {
                assert!(!spelled.grants(now, need), "{n} above {kept} of {spelled:?} at {now}");
                assert_eq!(denied.remaining(), spelled.remaining(now));
                let wait = denied.retry_after().expect("the tokens come").as_nanos() as u64;
                assert!(spelled.grants(now + wait, need), "{need} of {spelled:?} at {now} + {wait}");
                assert!(!spelled.grants(now + wait - 1, need), "{need} of {spelled:?} at {now} + {wait} - 1");
            }
        }
        false
    }

    fn take_of_two(&mut self, key: u64, choose: Choose<'_>) {
        let other = (key + 1) % KEYS;
        let n = [1 + choose(self.limit), 1 + choose(1 + self.limit / 2)];
        let Face::Key(limiter, _) = &self.face else { return };
        let asks = (limiter.key(&key).n(n[0]), limiter.key(&other).n(n[1]));
        let granted = all_of(asks).try_acquire().is_ok();
        let both = [(key, n[0]), (other, n[1])];
        assert_eq!(granted, both.iter().all(|(key, n)| self.spelled[*key as usize].grants(self.now, *n)));
        for (key, n) in both.into_iter().filter(|_| granted) {
            self.spelled[key as usize].count_in(self.now, n);
        }
    }

    fn evict(&self) {
        if let Face::Key(limiter, _) = &self.face {
            limiter.evict_idle();
        }
    }

    /// Gives tokens back, or changes a limit.
    fn change(&mut self, key: u64, kind: u64, choose: Choose<'_>) {
        let now = self.now;
        let spelled = &mut self.spelled[key as usize];
        match kind {
            3 => {
                let n = 1 + choose(self.limit);
                self.face.refund_of(key, n, None);
                spelled.refund(now, n);
            }
            4 => {
                let limit = 1 + choose(self.top);
                assert!(self.face.set_rule(self.made.with_limit(limit).expect("it is a smaller one")));
                for spelled in &mut self.spelled {
                    spelled.limit = limit;
                }
            }
            5 => {
                let estimate = 1 + choose(self.limit);
                let held = spelled.grants(now, estimate);
                let left = self.top.saturating_sub(spelled.used(now).div_ceil(1 << 16));
                let cost = (choose(4) > 0).then(|| choose(left.max(estimate) + 1));
                let hold = self.face.hold_of(key, estimate, None);
                assert_eq!(hold.is_ok(), held, "{estimate} of {spelled:?} at {now}");
                if let Ok(hold) = hold {
                    // A hold that is dropped stays charged.
                    let rest = cost.map_or(0, |cost| hold.settle(cost));
                    assert_eq!(rest, 0, "the word has room for {cost:?}");
                    spelled.count_in(now, estimate);
                    let cost = cost.unwrap_or(estimate);
                    spelled.refund(now, estimate.saturating_sub(cost));
                    spelled.count_in(now, cost.saturating_sub(estimate));
                }
            }
            6 => {
                let Face::Key(limiter, _) = &self.face else { return };
                let (limit, n) = (1 + choose(self.top), 1 + choose(self.limit));
                let window = self.made.with_limit(limit).expect("it is a smaller one");
                let cap = limiter.plan(window).expect("there is headroom");
                let decision = self.face.take_of(key, n, Some(&cap), choose(8));
                let in_force = std::mem::replace(&mut spelled.limit, limit);
                self.agrees(key, n, decision);
                self.spelled[key as usize].limit = in_force;
            }
            _ => {
                let Face::Key(limiter, _) = &self.face else { return };
                if choose(4) == 0 {
                    limiter.clear();
                    self.spelled.iter_mut().for_each(Spelled::forget);
                } else {
                    limiter.remove(&key);
                    spelled.forget();
                }
            }
        }
    }

    fn look(&self, key: u64) {
        let (look, spelled) = (self.face.peek_of(key, None), &self.spelled[key as usize]);
        assert_eq!(look.remaining(), spelled.remaining(self.now), "{spelled:?} at {}", self.now);
        self.reset_is_exact(key, look.reset_after());
        if !self.changes {
            self.holds_its_law(spelled);
        }
    }

    fn reset_is_exact(&self, key: u64, reset: Duration) {
        let (spelled, full) = (&self.spelled[key as usize], self.now + reset.as_nanos() as u64);
        assert_eq!(spelled.used(full), 0, "{spelled:?} at {} until {full}", self.now);
        assert!(reset.is_zero() || spelled.used(full - 1) > 0, "{spelled:?} until {full}");
    }

    /// Checks the laws of the table in the docs on the log of all grants.
    fn holds_its_law(&self, spelled: &Spelled) {
        let Walk { now, period, .. } = self;
        match self.kind {
            Kind::Sliding(_) => assert!(spelled.granted_in(*period, *now) <= spelled.limit),
            Kind::Aligned | Kind::Weighted => {
                assert!(spelled.granted_in(now % period + 1, *now) <= spelled.limit);
            }
            Kind::FirstUse => assert!(spelled.granted_in(*period, *now) < 2 * spelled.limit),
        }
    }
}
