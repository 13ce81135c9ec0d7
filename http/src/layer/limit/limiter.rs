//! The seam between a layer and its limiters.

use std::any::Any;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{AnyRule, Clock, Denied, Granted, Plan, Rule, Stats, Tokens, Window};

/// A request for tokens of one bucket, as a layer names it to a [`LayerLimiter`].
#[derive(Debug)]
#[non_exhaustive]
pub struct LayerRequest<'a, K> {
    /// The key. `None` is the one bucket of all requests without a key.
    pub key: Option<&'a K>,
    /// The plan that [`LimitBy::plan`](crate::LimitBy::plan) chose. `None` is the limiter's own
    /// rule, as for all requests without a key.
    ///
    /// A key has one bucket under all plans: it keeps its tokens, up to the burst of the next plan.
    pub plan: Option<&'a LayerPlan>,
    /// The number of tokens.
    pub n: u64,
}

impl<K> Clone for LayerRequest<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for LayerRequest<'_, K> {}

/// The plan of a request at one limit of a layer.
///
/// It is a [`Plan`] of a limiter of `tollgate`. A limiter of another crate compiles no plans: its
/// plan is the quota itself.
///
/// # Examples
///
/// ```
/// use tollgate::{Quota, RateLimiter};
/// use tollgate_http::LayerPlan;
///
/// let limiter = RateLimiter::<u64>::new(Quota::per_second(10));
/// let plan = LayerPlan::from(limiter.plan(Quota::per_second(5))?);
/// assert_eq!(plan.rule(), Quota::per_second(5).into());
/// // For a limiter of another crate.
/// assert_eq!(LayerPlan::from(plan.rule()).rule(), plan.rule());
/// # Ok::<(), tollgate::InvalidRule>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerPlan(PlanKind);

#[derive(Clone, Copy, Debug, PartialEq)]
enum PlanKind {
    Quota(Plan),
    Window(Plan<Window>),
    Uncompiled(AnyRule),
}

impl LayerPlan {
    /// Returns the rule of the plan, as it was compiled. A later change of the limiter's rule does
    /// not show.
    #[must_use]
    pub fn rule(&self) -> AnyRule {
        match &self.0 {
            PlanKind::Quota(plan) => plan.rule().into(),
            PlanKind::Window(plan) => plan.rule().into(),
            PlanKind::Uncompiled(rule) => *rule,
        }
    }

    /// Returns the plan of a limiter of this rule, if it is one.
    #[inline]
    pub(crate) fn of<R: Rule>(&self) -> Option<&Plan<R>> {
        let plan: &dyn Any = match &self.0 {
            PlanKind::Quota(plan) => plan,
            PlanKind::Window(plan) => plan,
            PlanKind::Uncompiled(_) => return None,
        };
        plan.downcast_ref()
    }
}

impl From<Plan> for LayerPlan {
    fn from(plan: Plan) -> LayerPlan {
        LayerPlan(PlanKind::Quota(plan))
    }
}

impl From<Plan<Window>> for LayerPlan {
    fn from(plan: Plan<Window>) -> LayerPlan {
        LayerPlan(PlanKind::Window(plan))
    }
}

/// The plan of a limiter of another crate. A limiter of `tollgate` refuses it with
/// [`Reason::ForeignPlan`](tollgate::Reason::ForeignPlan).
impl From<AnyRule> for LayerPlan {
    fn from(rule: AnyRule) -> LayerPlan {
        LayerPlan(PlanKind::Uncompiled(rule))
    }
}

/// The answer of a [`LayerLimiter`] to a request.
pub enum Answer {
    /// The decision.
    Now(Result<Granted, Denied>),
    /// The decision once the future ends. A dropped future takes no tokens, or gives them back.
    Later(AnswerFuture),
    /// A question to which there is one answer for several limits of the request.
    Together(Question),
}

/// The decision of a limiter that takes time.
pub(crate) type AnswerFuture = Pin<Box<dyn Future<Output = Result<Granted, Denied>> + Send>>;

/// The decision of several limits that takes time: all grants, in the order of the questions, or
/// the index of a question and its refusal. A dropped future takes no tokens, or gives them back.
pub type AnswersFuture = Pin<Box<dyn Future<Output = Result<Vec<Granted>, (usize, Denied)>> + Send>>;

/// A question of a limiter to its store, for tokens that are not at hand.
///
/// The layer asks those of one type together, of the limits that it enforces. It asks none of them
/// if another limit that is not at hand has refused the request already.
pub struct Question {
    question: Box<dyn Any + Send + Sync>,
    /// Asks questions of the same type.
    ask: Arc<dyn Fn(Vec<Question>) -> AnswersFuture + Send + Sync>,
}

impl Question {
    /// Returns a question, and the way to ask several: it takes the tokens of all, or of none.
    #[must_use]
    pub fn new<Q: Send + Sync + 'static>(question: Q, ask: fn(Vec<Q>) -> AnswersFuture) -> Question {
        let ask = move |questions: Vec<Question>| {
            let own = questions.into_iter().map(|of| of.question.downcast::<Q>());
            ask(own.map(|own| *own.expect("the questions are of one type")).collect())
        };
        Question { question: Box::new(question), ask: Arc::new(ask) }
    }

    /// Returns whether another question is asked together with this one.
    pub(crate) fn goes_with(&self, other: &Question) -> bool {
        (*self.question).type_id() == (*other.question).type_id()
    }

    /// Asks questions that go with each other.
    pub(crate) fn ask(questions: Vec<Question>) -> AnswersFuture {
        let ask = questions.first().map(|first| first.ask.clone());
        ask.map_or_else(|| Box::pin(ready(Ok(Vec::new()))) as AnswersFuture, |ask| ask(questions))
    }

    /// Asks this question alone.
    pub(crate) fn ask_alone(self) -> AnswerFuture {
        let answers = Question::ask(vec![self]);
        Box::pin(async {
            let granted = answers.await.map_err(|(_, denied)| denied)?;
            Ok(granted.into_iter().next().expect("each question has an answer"))
        })
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").finish_non_exhaustive()
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Now(decision) => f.debug_tuple("Now").field(decision).finish(),
            Answer::Later(_) => f.debug_tuple("Later").finish_non_exhaustive(),
            Answer::Together(question) => f.debug_tuple("Together").field(question).finish(),
        }
    }
}

/// A limiter of a layer: one of this crate, one that a fleet shares through a store, or one of a
/// user.
///
/// A layer takes once for each request to which its limit applies. It gives granted tokens back if
/// another limit refuses, or if the request is dropped before the decision. [`AnyLimiter::of`]
/// makes a limiter for a layer of it, and has an example.
pub trait LayerLimiter<K>: Send + Sync + 'static {
    /// Returns the number of this limiter and its clones, such as the address of the state that
    /// they share. Of two limiters with one number, the layers count a request once.
    fn id(&self) -> usize;

    /// Returns the rule in force, of requests under this plan.
    fn rule(&self, plan: Option<&LayerPlan>) -> AnyRule;

    /// Returns the clock of this process, for bans and logs.
    fn clock(&self) -> Clock;

    /// Returns the counts of keys. A layer reports `keys`, `evicted` and those without room.
    fn stats(&self) -> Stats;

    /// Takes the tokens, all or none. A take of 0 tokens is granted.
    fn take(&self, request: LayerRequest<'_, K>) -> Answer;

    /// Gives back `n` tokens that were granted.
    fn refund(&self, request: LayerRequest<'_, K>);

    /// Takes `n` tokens that are spent already, on credit if need be.
    fn charge(&self, request: LayerRequest<'_, K>);

    /// Returns the tokens that are known to be there, and takes none.
    fn peek(&self, request: LayerRequest<'_, K>) -> Granted;

    /// Returns whether the key has a bucket of its own. A refusal by a bucket that other keys share
    /// does not count for a ban of the key.
    fn contains(&self, _key: &K) -> bool {
        true
    }

    /// Returns whether each answer is there at once, and [`with_tokens`](LayerLimiter::with_tokens)
    /// calls its closure.
    ///
    /// The limits of a layer that are at hand take together: all of them, or none. The others have
    /// answered before.
    fn is_at_hand(&self) -> bool {
        false
    }

    /// Calls `then` once with the request as one of several limits of [`all_of`](tollgate::all_of).
    ///
    /// A limiter that is not at hand does nothing, as by default. One at hand that does not call
    /// `then`, as for a plan that is not its own, refuses the request by
    /// [`take`](LayerLimiter::take).
    fn with_tokens(&self, _request: LayerRequest<'_, K>, _then: &mut dyn FnMut(&dyn Tokens)) {}
}

/// A timer of a runtime.
pub(crate) type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A function that makes timers.
pub(crate) type Sleep = Arc<dyn Fn(Duration) -> Timer + Send + Sync>;

/// A limiter whose requests can wait.
pub(crate) trait HasLine<K>: Send + Sync {
    /// Returns the wait for the tokens, of at most `max_wait`, by timers that `sleep` makes.
    fn wait(&self, request: LayerRequest<'_, K>, max_wait: Duration, sleep: Sleep) -> AnswerFuture;
}

/// A limiter for a layer: a [`RateLimiter`](tollgate::RateLimiter), shared in an `Arc` or not, or
/// any [`LayerLimiter`].
pub struct AnyLimiter<K> {
    pub(crate) limiter: Arc<dyn LayerLimiter<K>>,
    /// `None`: no request waits for its tokens.
    pub(crate) line: Option<Arc<dyn HasLine<K>>>,
}

impl<K> AnyLimiter<K> {
    /// Returns a limiter of a layer, which may be one of your own.
    ///
    /// A limit by a limiter that is not [at hand](LayerLimiter::is_at_hand) has all options of
    /// another, with these differences:
    ///
    /// * A [`DelayLayer`](crate::DelayLayer) does not wait for it.
    /// * It answers before the other limits decide, and at the same time as others of its kind, or
    ///   [together](Answer::Together) with them. A key that the limit has banned is not asked for.
    /// * Requests without a key that [share](crate::OnMissingKey::Share) a bucket have one of their
    ///   own.
    /// * A plan is a [`Quota`](tollgate::Quota), which the limiter gets as it is.
    ///
    /// # Examples
    ///
    /// A limiter on a store of one's own:
    ///
    /// ```
    /// use std::future::ready;
    /// use std::net::IpAddr;
    /// use tollgate_http::ClientIp;
    /// use tollgate_http::{
    ///     Answer, AnyLimiter, LayerLimiter, LayerPlan, LayerRequest, RateLimitLayer,
    /// };
    /// use tollgate::{AnyRule, Clock, Granted, Quota, RateLimiter, Stats};
    ///
    /// struct Store(RateLimiter<IpAddr>);
    ///
    /// impl LayerLimiter<IpAddr> for Store {
    ///     fn id(&self) -> usize {
    ///         std::ptr::from_ref(self).addr()
    ///     }
    ///     fn rule(&self, plan: Option<&LayerPlan>) -> AnyRule {
    ///         plan.map_or_else(|| self.0.rule().into(), LayerPlan::rule)
    ///     }
    ///     fn clock(&self) -> Clock {
    ///         Clock::new()
    ///     }
    ///     fn stats(&self) -> Stats {
    ///         self.0.stats()
    ///     }
    ///     fn take(&self, request: LayerRequest<'_, IpAddr>) -> Answer {
    ///         let key = request.key.expect("each request has an address");
    ///         // A call of a server, in earnest.
    ///         Answer::Later(Box::pin(ready(self.0.try_acquire_n(key, request.n))))
    ///     }
    ///     fn refund(&self, request: LayerRequest<'_, IpAddr>) {
    ///         request.key.into_iter().for_each(|key| self.0.refund(key, request.n));
    ///     }
    ///     fn charge(&self, request: LayerRequest<'_, IpAddr>) {
    ///         let hold = request.key.and_then(|key| self.0.key(key).n(0).hold().ok());
    ///         hold.into_iter().for_each(|hold| drop(hold.settle(request.n)));
    ///     }
    ///     fn peek(&self, request: LayerRequest<'_, IpAddr>) -> Granted {
    ///         let known = request.key.map(|key| self.0.peek(key));
    ///         known.map_or(Granted::from_parts(0, 0, std::time::Duration::ZERO), |known| {
    ///             Granted::from_parts(0, known.remaining(), known.reset_after())
    ///         })
    ///     }
    /// }
    ///
    /// let store = Store(RateLimiter::new(Quota::per_second(10)));
    /// let layer = RateLimitLayer::builder(AnyLimiter::of(store)).key(ClientIp::peer()).build();
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn of(limiter: impl LayerLimiter<K>) -> AnyLimiter<K> {
        AnyLimiter { limiter: Arc::new(limiter), line: None }
    }
}

impl<K> fmt::Debug for AnyLimiter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyLimiter").finish_non_exhaustive()
    }
}
