//! A request at one limit: its key, the role of the limit, and the tokens that are lent.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;

use super::limiter::{LayerPlan, LayerRequest, Question};
use tollgate::{Denied, Granted};

/// The answer of a limiter that is not at hand.
pub(crate) enum Asked {
    Now(LentAnswer),
    Later(LentFuture),
    /// A question, and the refund of the tokens that it is granted.
    Together(Question, Refund),
}

/// The decision of a limiter that takes time.
pub(crate) type LentFuture = Pin<Box<dyn Future<Output = LentAnswer> + Send>>;

/// The decision of a limiter, with the tokens that it granted.
pub(crate) type LentAnswer = (Result<Granted, Denied>, Option<Lent>);

/// The search for a key: an `Option<K>`.
pub(crate) type SearchFuture = Pin<Box<dyn Future<Output = Box<dyn Any + Send + Sync>> + Send>>;

/// A request at one limit.
pub(crate) struct Part<'s> {
    pub(crate) role: Role,
    bucket: AnyBucket<'s>,
    /// The parts of few requests.
    rare: Option<Box<Rare>>,
}

#[derive(Default)]
struct Rare {
    /// The result of the search for the key.
    found: Option<Box<dyn Any + Send + Sync>>,
    /// The answer of a limiter that is not at hand.
    answer: Option<Result<Granted, Denied>>,
    /// The tokens of the answer, until the request is granted.
    lent: Option<Lent>,
}

/// The part of a limit in the decision.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The limit does not apply.
    Absent,
    Enforced,
    /// The limit decides, and its refusal is not applied.
    Shadow,
    /// A limit in shadow mode has granted its tokens.
    ShadowGranted,
}

/// A [`BucketOf`] the keys of a limit.
enum AnyBucket<'s> {
    Stack(&'s mut (dyn Any + Send + Sync)),
    Heap(Box<dyn Any + Send + Sync>),
}

/// The bucket of a request at one limit.
#[derive(Clone)]
pub(crate) struct BucketOf<K> {
    pub(crate) key: Option<K>,
    pub(crate) plan: Option<LayerPlan>,
}

impl<K> BucketOf<K> {
    #[inline(always)]
    pub(crate) fn empty() -> BucketOf<K> {
        BucketOf { key: None, plan: None }
    }

    pub(crate) fn request(&self, n: u64) -> LayerRequest<'_, K> {
        LayerRequest { key: self.key.as_ref(), plan: self.plan.as_ref(), n }
    }
}

/// Gives tokens back.
pub(crate) type Refund = Box<dyn FnOnce() + Send + Sync>;

/// Tokens that a limiter has granted before the other limits decide. A drop gives them back.
pub(crate) struct Lent(Option<Refund>);

impl Lent {
    pub(crate) fn new(refund: Refund) -> Lent {
        Lent(Some(refund))
    }

    /// Spends the tokens.
    pub(crate) fn spend(mut self) {
        self.0 = None;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(refund) = self.0.take() {
            refund();
        }
    }
}

impl<'s> Part<'s> {
    /// Returns the part of a request whose bucket is on the stack.
    #[inline(always)]
    pub(crate) fn on_stack(bucket: &'s mut (dyn Any + Send + Sync)) -> Part<'s> {
        Part::new(AnyBucket::Stack(bucket))
    }

    #[inline(always)]
    fn new(bucket: AnyBucket<'s>) -> Part<'s> {
        Part { role: Role::Absent, bucket, rare: None }
    }

    pub(crate) fn on_heap(bucket: Box<dyn Any + Send + Sync>) -> Part<'s> {
        Part::new(AnyBucket::Heap(bucket))
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Notes the answer of the limiter.
    pub(crate) fn answered(&mut self, (decision, lent): LentAnswer) {
        let rare = self.rare();
        (rare.answer, rare.lent) = (Some(decision), lent);
    }

    /// Returns the answer of the limiter, if it is there.
    #[inline(always)]
    pub(crate) fn answer(&self) -> Option<Result<Granted, Denied>> {
        self.rare.as_ref()?.answer
    }

    /// Notes the result of the search.
    pub(crate) fn set_found(&mut self, found: Box<dyn Any + Send + Sync>) {
        self.rare().found = Some(found);
    }

    /// Takes the result of the search.
    pub(crate) fn found(&mut self) -> Option<Box<dyn Any + Send + Sync>> {
        self.rare.as_mut()?.found.take()
    }

    /// Takes the tokens that are lent.
    pub(crate) fn lent(&mut self) -> Option<Lent> {
        self.rare.as_mut()?.lent.take()
    }

    #[inline(always)]
    pub(crate) fn bucket<K: 'static>(&self) -> &BucketOf<K> {
        let any: &(dyn Any + Send + Sync) = match &self.bucket {
            AnyBucket::Stack(bucket) => *bucket,
            AnyBucket::Heap(bucket) => &**bucket,
        };
        any.downcast_ref().expect(ITS_OWN)
    }

    #[inline(always)]
    pub(crate) fn bucket_mut<K: 'static>(&mut self) -> &mut BucketOf<K> {
        let any: &mut (dyn Any + Send + Sync) = match &mut self.bucket {
            AnyBucket::Stack(bucket) => *bucket,
            AnyBucket::Heap(bucket) => &mut **bucket,
        };
        any.downcast_mut().expect(ITS_OWN)
    }
}

const ITS_OWN: &str = "the limit made the part";
