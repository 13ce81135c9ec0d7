//! Feature `http`: keys of [`Bytes`], which are looked up by their slice.

use bytes::Bytes;

use crate::keyed::key::ToKey;

impl ToKey<Bytes> for [u8] {
    fn to_key(&self) -> Bytes {
        Bytes::copy_from_slice(self)
    }
}
