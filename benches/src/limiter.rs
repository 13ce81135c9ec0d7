//! The trait that every contender implements.

use std::hint::black_box;

use tollgate::Quota;

/// The purpose of a limiter.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Quota of each bucket.
    pub quota: Quota,
    /// Number of keys that will come. A limiter that can makes room for them at once.
    pub keys: usize,
}

/// A bucket for each key, all of one quota, shared by threads. One bucket alone has the key `()`.
pub trait Limiter<K>: Send + Sync {
    /// Makes a limiter without keys. The bucket of a key starts full.
    fn new(setup: Setup) -> Self
    where
        Self: Sized;

    /// Takes a token of the key's bucket, and returns whether there was one. It is inlined into the
    /// timed loop, as far as the contender's own functions allow it.
    fn try_acquire(&self, key: &K) -> bool;

    /// Takes a token for each of `keys` in turn, and returns how many there were.
    ///
    /// This is the timed loop. A contender that can do some work once for many decisions overrides
    /// the default.
    fn count_granted(&self, keys: &[K]) -> u64 {
        // The black box keeps the limiter's fields from being loaded once for all decisions.
        keys.iter().map(|key| u64::from(black_box(self).try_acquire(key))).sum()
    }

    /// Forgets the keys whose buckets are full. Returns false if the limiter cannot.
    fn evict_idle(&self) -> bool {
        false
    }

    /// Returns the number of keys held, 0 if the limiter cannot tell.
    fn keys_held(&self) -> usize {
        0
    }

    /// Returns whether the limiter makes room for new keys by itself, within the number of its
    /// setup.
    fn is_bounded(&self) -> bool {
        false
    }
}

/// A limiter and its name in reports.
pub struct Contender<K> {
    /// Name, with the difference to plain use.
    pub name: &'static str,
    /// Function that makes a limiter.
    pub make: fn(Setup) -> Box<dyn Limiter<K>>,
    /// Reason why it breaks the law, if it does, and by how much.
    pub breaks: Option<&'static str>,
}

impl<K: 'static> Contender<K> {
    /// Makes a contender of a type.
    pub fn new<L: Limiter<K> + 'static>(name: &'static str) -> Self {
        Contender { name, make: |setup| Box::new(OwnLines(L::new(setup))), breaks: None }
    }

    /// Marks a contender that is known to break the law.
    pub fn breaks(self, why: &'static str) -> Self {
        Contender { breaks: Some(why), ..self }
    }
}

/// A limiter off its neighbours' cache lines: 2 of them, as processors fetch lines in pairs.
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
