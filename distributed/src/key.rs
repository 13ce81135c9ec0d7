//! Keys as bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ring::digest::{SHA256, digest};

use crate::store::op::MAX_KEY;

/// The start of a digest in place of a key.
const DIGEST: &[u8] = b"sha256:";

/// A key that has one form in every process of the fleet.
///
/// A limiter stores the key as its name, a `:` and these bytes. If these are more than
/// [`MAX_KEY`](crate::MAX_KEY) bytes together, or if the key begins with `sha256:`, it stores
/// `name:sha256:` and the SHA-256 of the key's bytes in hexadecimal digits.
///
/// # Examples
///
/// ```
/// use tollgate_distributed::StoreKey;
///
/// struct Tenant(u32);
///
/// impl StoreKey for Tenant {
///     fn write(&self, bytes: &mut Vec<u8>) {
///         bytes.extend_from_slice(format!("t{}", self.0).as_bytes());
///     }
/// }
/// ```
pub trait StoreKey {
    /// Appends the bytes of the key. Different keys must append different bytes: else they share a
    /// bucket.
    fn write(&self, bytes: &mut Vec<u8>);
}

/// Implements [`StoreKey`] by the bytes of the key.
macro_rules! bytes {
    ($($key:ty)*) => {$(
        impl StoreKey for $key {
            fn write(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(self.as_ref());
            }
        }
    )*};
}
bytes!([u8] Vec<u8> str String);

/// The one key of a limiter with a single bucket.
impl StoreKey for () {
    fn write(&self, _: &mut Vec<u8>) {}
}

/// Implements [`StoreKey`] by the text form of the key.
macro_rules! text {
    ($($key:ty)*) => {$(
        impl StoreKey for $key {
            fn write(&self, bytes: &mut Vec<u8>) {
                self.to_string().write(bytes);
            }
        }
    )*};
}
text!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize IpAddr Ipv4Addr Ipv6Addr);

impl<K: StoreKey + ?Sized> StoreKey for &K {
    fn write(&self, bytes: &mut Vec<u8>) {
        (**self).write(bytes);
    }
}

/// Returns a key in the form of a store: the name, `:` and the key, or the bare name without a key.
///
/// Invariant: different keys have different forms, because a key that begins as a digest does is
/// stored as its own digest. A name has no `:`.
pub(crate) fn stored<Q: StoreKey + ?Sized>(name: &str, key: Option<&Q>) -> Vec<u8> {
    let Some(key) = key else { return name.into() };
    let mut bytes = Vec::new();
    key.write(&mut bytes);
    if name.len() + 1 + bytes.len() > MAX_KEY || bytes.starts_with(DIGEST) {
        let digest = digest(&SHA256, &bytes);
        bytes = DIGEST.to_vec();
        bytes.extend(digest.as_ref().iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
    }
    [name.as_bytes(), b":", &bytes].concat()
}
