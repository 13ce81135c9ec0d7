//! A bucket alone on its cache line.

use std::ops::Deref;

use crate::bucket::atomic::Bucket;
use crate::sync::const_fn;

/// A bucket, and 120 bytes that nothing uses. The next field is not on the same line, nor on the
/// one that a processor fetches beside it.
///
/// crossbeam's `CachePadded` is aligned to 128 bytes, and would round the size of all types around
/// it.
#[repr(C, align(64))]
pub(crate) struct PaddedBucket {
    bucket: Bucket,
    _unused: [u64; 15],
}

impl PaddedBucket {
    const_fn! {
        pub(crate) const fn new() -> PaddedBucket {
            PaddedBucket { bucket: Bucket::new(), _unused: [0; 15] }
        }
    }
}

impl Deref for PaddedBucket {
    type Target = Bucket;

    #[inline(always)]
    fn deref(&self) -> &Bucket {
        &self.bucket
    }
}
