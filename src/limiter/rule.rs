//! The rules of a limiter: what a bucket's word counts, how it is built, and how it is changed.

use std::fmt;

use crate::bucket::engine::Engine;
use crate::bucket::live_terms::{Change, LiveTerms};
use crate::keyed::keyspace::Keyspace;
use crate::keyed::overflow::WhenFull;
use crate::rule::error::InvalidRule;
use crate::rule::gate::Gate;
use crate::rule::layout::{Layout, LayoutOptions, QuotaError, RawQuota};
use crate::rule::places::Places;
use crate::rule::rate::Quota;
use crate::rule::window::Window;
use crate::rule::window_layout::WindowLayout;
use crate::sync::const_fn;
use crate::time::clock::Clock;
use crate::word::by_refill::{BUCKETS, PLACES, WINDOWS};
use crate::word::plan::PlanTerms;
use crate::word::terms::Terms;

/// The rule of a limiter: a [`Quota`], a [`Window`] or [`Places`]. Other crates cannot implement
/// it.
///
/// A limiter is generic in its rule: [`RateLimiter<K, Quota>`](crate::RateLimiter) has a token
/// bucket for each key, `RateLimiter<K, Window>` a window, and `RateLimiter<K, Places>` a count of
/// requests in flight. [`AnyRule`](crate::AnyRule) is a quota or a window, as a file of settings
/// says.
///
/// # Examples
///
/// ```
/// use tollgate::{Limit, Rule, Quota, Window};
///
/// fn drain<R: Rule>(limit: &Limit<R>) -> u64 {
///     (0..).take_while(|_| limit.try_acquire().is_ok()).count() as u64
/// }
///
/// assert_eq!(drain(&Limit::builder(Quota::per_hour(7)).build()), 7);
/// assert_eq!(drain(&Limit::builder(Window::per_hour(7)).build()), 7);
/// ```
#[expect(private_bounds, reason = "sealed")]
pub trait Rule: Arithmetic {}

impl Rule for Places {}
impl Rule for Quota {}
impl Rule for Window {}

/// The part of a rule that no other crate sees.
pub(crate) trait Arithmetic:
    Copy + PartialEq + fmt::Debug + fmt::Display + Send + Sync + 'static
{
    /// The kinds of words among which an attempt selects.
    const WORDS: u8;
    /// The policy for new keys that find no room, unless a builder sets another one.
    const WHEN_FULL: WhenFull = WhenFull::Share;
    /// The part of the rule that its words do not have.
    type Built: Copy + fmt::Debug + Send + Sync;
    /// The room of the words, beside the rule itself.
    type Room: Clone + fmt::Debug;

    fn room(self) -> Self::Room;

    /// Makes room for a rule that is set later.
    fn make_headroom(&mut self, room: &mut Self::Room, later: Self) -> Result<(), InvalidRule>;

    /// Makes room for plans. The result does not depend on the order of the options.
    fn make_room_for(&mut self, room: &mut Self::Room, plans: &[Self]) -> Result<(), InvalidRule>;

    /// Returns the engine of the words. A new bucket starts with `initial` tokens, if not full.
    fn engine(self, room: Self::Room, clock: Clock, initial: Option<u64>) -> (Self::Built, Engine);

    /// Returns the rule in force.
    fn in_force(built: Self::Built, source: &LiveTerms) -> Self;

    /// Checks that the words can hold the rule.
    fn check(self, built: Self::Built, source: &LiveTerms) -> Result<(), InvalidRule>;

    /// Puts the rule into force, if the words can hold it.
    fn set(self, built: Self::Built, engine: &Engine) -> Result<Change, InvalidRule>;

    /// Compiles the rule as a plan on top of the one in force.
    fn compile<K>(self, built: Self::Built, keyspace: &Keyspace<K>) -> Result<PlanTerms, InvalidRule>;

    /// Returns the rule in force for keys under a plan of the same limiter.
    fn under(built: Self::Built, plan: &PlanTerms, source: &LiveTerms) -> Self;
}

/// The room of the words of buckets.
#[derive(Clone, Debug)]
pub(crate) struct QuotaRoom {
    pub(crate) options: LayoutOptions,
    /// Layout chosen for the quota, the options and the plans.
    layout: Layout,
    /// The numbers by which buckets count.
    counted_by: RawQuota,
}

impl QuotaRoom {
    /// Sets the options, and chooses a layout for them.
    pub(crate) fn set(&mut self, quota: Quota, options: LayoutOptions) -> Result<(), QuotaError> {
        self.options = options;
        self.lay_out(quota, options)
    }

    fn lay_out(&mut self, quota: Quota, options: LayoutOptions) -> Result<(), QuotaError> {
        self.counted_by = counted_by(quota, options);
        self.layout = Layout::of(self.counted_by, options)?;
        Ok(())
    }

    /// Checks that the words hold plans.
    fn hold(&self, plans: &[Quota]) -> Result<(), QuotaError> {
        let terms = Terms::in_layout(self.counted_by, self.layout);
        let own = Quota::of_numbers(self.counted_by);
        plans.iter().try_for_each(|plan| PlanTerms::compile(0, *plan, own, &terms, None).map(drop))
    }
}

/// Returns the numbers by which buckets count: those of the quota, if it is a rate, else those that
/// it is to have room for.
fn counted_by(quota: Quota, options: LayoutOptions) -> RawQuota {
    match (quota.gate(), options.headroom) {
        (Gate::Open | Gate::Shut, Some(head)) => head,
        _ => quota.numbers_or_usual(),
    }
}

impl Arithmetic for Quota {
    const WORDS: u8 = BUCKETS;
    type Built = ();
    type Room = QuotaRoom;

    fn room(self) -> QuotaRoom {
        let (layout, counted_by) = (self.layout(), self.numbers_or_usual());
        QuotaRoom { options: LayoutOptions::DEFAULT, layout, counted_by }
    }

    fn make_headroom(&mut self, room: &mut QuotaRoom, later: Quota) -> Result<(), InvalidRule> {
        if later.gate() == Gate::Counted {
            let headroom = room.options.headroom.into_iter().fold(later.numbers(), RawQuota::widest);
            let headroom = Some(headroom);
            room.set(*self, LayoutOptions { headroom, ..room.options })?;
        }
        Ok(())
    }

    fn make_room_for(&mut self, room: &mut QuotaRoom, plans: &[Quota]) -> Result<(), InvalidRule> {
        room.lay_out(*self, room.options)?;
        if room.hold(plans).is_ok() {
            return Ok(());
        }
        let rates = plans.iter().filter(|plan| plan.gate() == Gate::Counted).map(Quota::numbers);
        let headroom = rates.chain(room.options.headroom).reduce(RawQuota::widest);
        room.lay_out(*self, LayoutOptions { headroom, ..room.options })?;
        Ok(room.hold(plans)?)
    }

    fn engine(self, room: QuotaRoom, clock: Clock, initial: Option<u64>) -> ((), Engine) {
        let source = LiveTerms::of(room.counted_by, self.gate(), room.layout);
        ((), Engine::new(source, clock, initial))
    }

    fn in_force((): (), source: &LiveTerms) -> Quota {
        source.quota()
    }

    fn check(self, (): (), source: &LiveTerms) -> Result<(), InvalidRule> {
        match self.gate() {
            Gate::Counted => Ok(source.layout().check(self.numbers())?),
            Gate::Open | Gate::Shut => Ok(()),
        }
    }

    fn set(self, (): (), engine: &Engine) -> Result<Change, InvalidRule> {
        Ok(engine.source.set(self, &engine.clock)?)
    }

    fn compile<K>(self, (): (), keyspace: &Keyspace<K>) -> Result<PlanTerms, InvalidRule> {
        keyspace.plan(self)
    }

    fn under((): (), plan: &PlanTerms, source: &LiveTerms) -> Quota {
        match source.quota() {
            Quota::BLOCKED => Quota::BLOCKED,
            _ => plan.in_force(source.counted_by()),
        }
    }
}

impl Arithmetic for Window {
    const WORDS: u8 = WINDOWS;
    /// The window as it was built.
    type Built = Window;
    /// A window has its own room.
    type Room = ();

    fn room(self) {}

    fn make_headroom(&mut self, (): &mut (), later: Window) -> Result<(), InvalidRule> {
        *self = self.headroom(later.limit_of(*self)?)?;
        Ok(())
    }

    fn make_room_for(&mut self, (): &mut (), plans: &[Window]) -> Result<(), InvalidRule> {
        plans.iter().try_for_each(|plan| self.make_headroom(&mut (), *plan))
    }

    fn engine(self, (): (), clock: Clock, initial: Option<u64>) -> (Window, Engine) {
        let clock = match self.anchor() {
            Some(anchor) => clock.in_unix_time(anchor),
            None => clock,
        };
        (self, engine_of(self.held_layout(), clock, initial))
    }

    fn in_force(built: Window, source: &LiveTerms) -> Window {
        built.limited_to(source.limit())
    }

    fn check(self, built: Window, source: &LiveTerms) -> Result<(), InvalidRule> {
        match self.limit_of(built)? {
            0 => Ok(()),
            limit => Ok(source.counts().check(limit)?),
        }
    }

    fn set(self, built: Window, engine: &Engine) -> Result<Change, InvalidRule> {
        match self.limit_of(built)? {
            0 => engine.source.block(&engine.clock),
            limit => engine.source.set_limit(limit, &engine.clock)?,
        }
        Ok(Change::Other)
    }

    fn compile<K>(self, built: Window, keyspace: &Keyspace<K>) -> Result<PlanTerms, InvalidRule> {
        keyspace.cap(self.limit_of(built)?)
    }

    fn under(built: Window, plan: &PlanTerms, _: &LiveTerms) -> Window {
        built.limited_to(plan.capacity)
    }
}

impl Arithmetic for Places {
    const WORDS: u8 = PLACES;
    /// A place of a bucket that keys share would belong to another key.
    const WHEN_FULL: WhenFull = WhenFull::Deny;
    type Built = ();
    /// Each word has room for the largest limit.
    type Room = ();

    fn room(self) {}

    fn make_headroom(&mut self, (): &mut (), _: Places) -> Result<(), InvalidRule> {
        Ok(())
    }

    fn make_room_for(&mut self, (): &mut (), _: &[Places]) -> Result<(), InvalidRule> {
        Ok(())
    }

    /// No decision depends on the time: the clock stands.
    fn engine(self, (): (), _: Clock, initial: Option<u64>) -> ((), Engine) {
        let (stands, _) = Clock::mock();
        let engine = engine_of(WindowLayout::places(self.limit().max(1)), stands, initial);
        if self == Places::BLOCKED {
            // A limit like any other, so that plans and counts go on.
            engine.source.put_limit(0, &engine.clock);
        }
        ((), engine)
    }

    fn in_force((): (), source: &LiveTerms) -> Places {
        Places::of_limit(source.limit())
    }

    fn check(self, (): (), _: &LiveTerms) -> Result<(), InvalidRule> {
        Ok(())
    }

    fn set(self, (): (), engine: &Engine) -> Result<Change, InvalidRule> {
        engine.source.put_limit(self.limit().into(), &engine.clock);
        Ok(Change::Other)
    }

    fn compile<K>(self, (): (), keyspace: &Keyspace<K>) -> Result<PlanTerms, InvalidRule> {
        keyspace.cap(self.limit().into())
    }

    fn under((): (), plan: &PlanTerms, _: &LiveTerms) -> Places {
        Places::of_limit(plan.capacity)
    }
}

const_fn! {
    /// Returns the engine of a word that counts a window, or places.
    pub(crate) const fn engine_of(layout: WindowLayout, clock: Clock, initial: Option<u64>) -> Engine {
        let WindowLayout { widths, numbers } = layout;
        let gate = if numbers.burst == 0 { Gate::Shut } else { Gate::Counted };
        Engine::new(LiveTerms::of(numbers, gate, Layout { widths, debt: 0 }), clock, initial)
    }
}

/// Another rule for some of the keys, compiled for one limiter by
/// [`RateLimiter::plan`](crate::RateLimiter::plan).
///
/// A plan is a plain value and `Copy`: nothing is registered. A key is under the plan that a call
/// [names](crate::Ask::under), and keeps its tokens from plan to plan. Tokens earned since the
/// key's last use count at the plan of the present call.
///
/// Under a quota a key keeps the tokens that are *left*: an empty bucket under one plan is empty
/// under all, and an upgraded customer fills up at the new rate. A plan of windows is another limit
/// on the same count of *used* tokens: an upgraded customer has the difference at once.
///
/// # Of a quota
///
/// A plan counts in ticks of the limiter. It is right to one tick and to one unit of its own, a
/// small fraction of a token.
///
/// A plan is a ratio to the quota that was in force when the plan was made. A later
/// [`set_rule`](crate::RateLimiter::set_rule) changes its rate in proportion; its burst stays.
/// [`rule_under`](crate::RateLimiter::rule_under) returns the quota in force.
///
/// A plan made after a change counts from that change on. The time before the change earns nothing
/// under the plan, also at a clock reading that is behind the change.
///
/// # Of a window
///
/// A later [`set_rule`](crate::RateLimiter::set_rule) does not change the limit of a plan.
///
/// # Examples
///
/// ```
/// use tollgate::{RateLimiter, Window};
///
/// let day = Window::per_day(10);
/// let daily = RateLimiter::<String, _>::builder(day).headroom(day.with_limit(1_000)?)?.build();
/// let gold = daily.plan(day.with_limit(1_000)?)?;
/// assert!(daily.key("ada").n(10).try_acquire().is_ok());
/// assert_eq!(daily.key("ada").under(&gold).peek().remaining(), 990);
/// assert_eq!(gold.rule().limit(), 1_000);
/// # Ok::<(), tollgate::InvalidRule>(())
/// ```
#[derive(Clone, Copy, PartialEq)]
pub struct Plan<R: Rule = Quota> {
    pub(crate) terms: PlanTerms,
    pub(super) rule: R,
}

impl<R: Rule> Plan<R> {
    /// Returns the rule that the plan was made of.
    #[must_use]
    pub fn rule(&self) -> R {
        self.rule
    }
}

impl<R: Rule> fmt::Debug for Plan<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Plan").field(&format_args!("{}", self.rule)).finish()
    }
}
