//! The work of a request's limits before they decide: keys that take time to find, such as by a
//! look at a database, and questions to limiters.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::Extensions;

use crate::http::Head;
use crate::limiter::reply::Reply;

/// The work of one limit for one request.
pub(crate) type SearchFuture = Pin<Box<dyn Future<Output = Found> + Send>>;

/// The end of the work of one limit.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) key: Option<FoundKey>,
    pub(crate) reply: Option<Reply>,
}

/// Begins the search for the key of a request.
pub(crate) type FindKey = Box<dyn Fn(Head<'_>) -> SearchFuture + Send + Sync>;

/// The key that a source has found, for the source with this number.
pub(crate) struct FoundKey {
    source: u64,
    key: Arc<dyn Any + Send + Sync>,
}

/// The keys of a request that were searched for. An extension of the request.
#[derive(Clone, Default)]
struct FoundKeys(Vec<(u64, Arc<dyn Any + Send + Sync>)>);

/// Returns a key source in two parts: the search for a request's key, and a lookup of its result.
///
/// The result is kept in the request's extensions. The lookup returns `None` if the search has
/// found no key, or has not ended.
pub(crate) fn halves<K, F>(
    find: impl Fn(Head<'_>) -> F + Send + Sync + 'static,
) -> (FindKey, impl Fn(Head<'_>) -> Option<K> + Send + Sync + 'static)
where
    K: Clone + Send + Sync + 'static,
    F: Future<Output = Option<K>> + Send + 'static,
{
    // Tells sources apart.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let source = NEXT.fetch_add(1, Ordering::Relaxed);
    let search = move |head: Head<'_>| -> SearchFuture {
        let find = find(head);
        Box::pin(async move {
            let key = FoundKey { source, key: Arc::new(find.await) };
            Found { key: Some(key), reply: None }
        })
    };
    let look = move |head: Head<'_>| {
        let FoundKeys(keys) = head.extensions.get()?;
        keys.iter().rev().find(|(of, _)| *of == source)?.1.downcast_ref::<Option<K>>()?.clone()
    };
    (Box::new(search), look)
}

impl FoundKey {
    /// Returns the key, unless the request has none.
    pub(crate) fn key<K: Clone + 'static>(&self) -> Option<K> {
        self.key.downcast_ref::<Option<K>>()?.clone()
    }

    /// Notes the key for the source that looks for it.
    fn note(self, extensions: &mut Extensions) {
        extensions.get_or_insert_default::<FoundKeys>().0.push((self.source, self.key));
    }
}

/// The work of all limits for one request.
pub(crate) struct Searches {
    /// The limits that are not done, by their place in the layer.
    under_way: Vec<(usize, SearchFuture)>,
    pub(crate) replies: Replies,
}

/// The replies to a request.
pub(crate) struct Replies {
    /// The cost of the request, if a limiter was asked for it.
    pub(crate) cost: Option<u64>,
    /// Each with the place of its limit in the layer.
    replies: Vec<(usize, Arc<Reply>)>,
}

impl Searches {
    pub(crate) fn new(cost: Option<u64>, searches: impl Iterator<Item = (usize, SearchFuture)>) -> Searches {
        Searches { under_way: searches.collect(), replies: Replies { cost, replies: Vec::new() } }
    }

    /// Goes on with all of the work, and notes the keys that are found.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>, extensions: &mut Extensions) -> Poll<()> {
        let Searches { under_way, replies } = self;
        under_way.retain_mut(|(place, search)| {
            let Poll::Ready(found) = search.as_mut().poll(context) else { return true };
            if let Some(key) = found.key {
                key.note(extensions);
            }
            replies.replies.extend(found.reply.map(|reply| (*place, Arc::new(reply))));
            false
        });
        if under_way.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Replies {
    /// Returns the reply to the limit at a place.
    pub(crate) fn of(&self, place: usize) -> Option<Arc<Reply>> {
        self.replies.iter().find(|(of, _)| *of == place).map(|(_, reply)| reply.clone())
    }
}
