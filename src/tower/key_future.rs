//! Keys that take time to find, such as by a look at a database.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Extensions;

use crate::http::Head;

/// The search for the key of one request, which notes the key among the request's extensions.
pub(crate) type KeyFuture = Pin<Box<dyn Future<Output = FoundKey> + Send>>;

/// Begins the search for the key of a request.
pub(crate) type FindKey = Box<dyn Fn(Head<'_>) -> KeyFuture + Send + Sync>;

/// The key that a source has found, for the source with this number.
pub(crate) struct FoundKey {
    source: u64,
    key: Arc<dyn Any + Send + Sync>,
}

/// The keys of a request that were searched for. An extension of the request.
#[derive(Clone, Default)]
struct FoundKeys(Vec<(u64, Arc<dyn Any + Send + Sync>)>);

/// Returns the two halves of a source: the search, and the look for the result.
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
    let search = move |head: Head<'_>| -> KeyFuture {
        let find = find(head);
        Box::pin(async move { FoundKey { source, key: Arc::new(find.await) } })
    };
    let look = move |head: Head<'_>| {
        let FoundKeys(keys) = head.extensions.get()?;
        let (_, key) = keys.iter().rev().find(|(of, _)| *of == source)?;
        key.downcast_ref::<Option<K>>()?.clone()
    };
    (Box::new(search), look)
}

impl FoundKey {
    /// Notes the key for the source that looks for it.
    pub(crate) fn note(self, extensions: &mut Extensions) {
        extensions.get_or_insert_default::<FoundKeys>().0.push((self.source, self.key));
    }
}
