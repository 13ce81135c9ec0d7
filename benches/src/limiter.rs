//! What every contender implements.

use std::hint::black_box;

use tollgate::Quota;

/// What a limiter is made for.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Of each bucket.
    pub quota: Quota,
    /// So many keys will come: whoever can makes room for them at once.
    pub keys: usize,
}

/// A bucket for each key, all of one quota, shared by threads. One bucket alone has the key `()`.
pub trait Limiter<K>: Send + Sync {
    /// Without any keys yet. A key's bucket starts full.
    fn new(setup: Setup) -> Self
    where
        Self: Sized;

    /// Takes a token of the key's bucket, if there is one. To be inlined into the timed loop, as far as the contender's own
    /// functions allow it.
    fn try_acquire(&self, key: &K) -> bool;

    /// Takes a token for each of `keys` in turn; how many there were.
    ///
    /// This is the loop that is timed. A contender that can do something once for many decisions overrides it.
    fn count_granted(&self, keys: &[K]) -> u64 {
        // The black box keeps what the limiter holds from being loaded once for all decisions.
        keys.iter().map(|key| u64::from(black_box(self).try_acquire(key))).sum()
    }

    /// Forgets the keys whose buckets are full. False if it has no way to.
    fn evict_idle(&self) -> bool {
        false
    }

    /// Keys that are held. 0 if it cannot tell.
    fn keys_held(&self) -> usize {
        0
    }

    /// Whether it makes room for new keys by itself, so that it holds as many as it was set up for at most.
    fn is_bounded(&self) -> bool {
        false
    }
}

/// A limiter and its name in reports.
pub struct Contender<K> {
    /// With what differs from its plain use.
    pub name: &'static str,
    /// Makes one.
    pub make: fn(Setup) -> Box<dyn Limiter<K>>,
    /// Why it breaks the law, if it does, and by how much.
    pub breaks: Option<&'static str>,
}

impl<K: 'static> Contender<K> {
    /// A contender by its type.
    #[must_use]
    pub fn new<L: Limiter<K> + 'static>(name: &'static str) -> Self {
        Contender { name, make: |setup| Box::new(OwnLines(L::new(setup))), breaks: None }
    }

    /// One that is known not to keep the law.
    #[must_use]
    pub fn breaks(self, why: &'static str) -> Self {
        Contender { breaks: Some(why), ..self }
    }
}

/// Keeps a limiter off its neighbours' cache lines: 2 of them, as processors fetch lines in pairs.
#[repr(align(128))]
struct OwnLines<L>(L);

impl<K, L: Limiter<K>> Limiter<K> for OwnLines<L> {
    fn new(setup: Setup) -> Self {
        OwnLines(L::new(setup))
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        self.0.try_acquire(key)
    }

    fn count_granted(&self, keys: &[K]) -> u64 {
        self.0.count_granted(keys)
    }

    fn evict_idle(&self) -> bool {
        self.0.evict_idle()
    }

    fn keys_held(&self) -> usize {
        self.0.keys_held()
    }

    fn is_bounded(&self) -> bool {
        self.0.is_bounded()
    }
}
