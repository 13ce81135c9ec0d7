//! Keys as bytes, for a saved state.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// A key that is saved with its limiter, as bytes.
///
/// Numbers, addresses, strings, slices of bytes, and pairs of these are such keys. A type of your
/// own writes a form that it reads back: its parts, or the bytes of any format of `serde`.
///
/// # Examples
///
/// ```
/// use tollgate::{KeyBytes, Quota, RateLimiter};
///
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// struct Customer(u32);
///
/// impl KeyBytes for Customer {
///     fn write(&self, bytes: &mut Vec<u8>) {
///         self.0.write(bytes);
///     }
///
///     fn read(bytes: &[u8]) -> Option<Customer> {
///         u32::read(bytes).map(Customer)
///     }
/// }
///
/// let limiter = RateLimiter::<Customer>::new(Quota::per_hour(5));
/// assert!(limiter.try_acquire(&Customer(7)).is_ok());
/// let bytes = limiter.save();
///
/// let restarted = RateLimiter::<Customer>::new(Quota::per_hour(5));
/// restarted.restore(&bytes)?;
/// assert_eq!(restarted.peek(&Customer(7)).remaining(), 4);
/// # Ok::<(), tollgate::NotRestored>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a key of type `{Self}` has no form in bytes",
    note = "implement `KeyBytes` for a type of your own around it"
)]
pub trait KeyBytes: Sized {
    /// Appends the key to `bytes`.
    fn write(&self, bytes: &mut Vec<u8>);

    /// Returns the key that [`write`](KeyBytes::write) wrote as `bytes`; `None` for any other
    /// bytes. It does not panic.
    fn read(bytes: &[u8]) -> Option<Self>;
}

macro_rules! by_number {
    ($($number:ty),*) => {$(
        impl KeyBytes for $number {
            fn write(&self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }

            fn read(bytes: &[u8]) -> Option<$number> {
                Some(<$number>::from_le_bytes(bytes.try_into().ok()?))
            }
        }
    )*};
}

by_number!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

macro_rules! by_text {
    ($($text:ty),*) => {$(
        impl KeyBytes for $text {
            fn write(&self, bytes: &mut Vec<u8>) {
                bytes.extend(self.as_bytes());
            }

            fn read(bytes: &[u8]) -> Option<$text> {
                Some(str::from_utf8(bytes).ok()?.into())
            }
        }
    )*};
}

by_text!(String, Box<str>, Arc<str>);

macro_rules! by_bytes {
    ($($owned:ty),*) => {$(
        impl KeyBytes for $owned {
            fn write(&self, bytes: &mut Vec<u8>) {
                bytes.extend(&self[..]);
            }

            fn read(bytes: &[u8]) -> Option<$owned> {
                Some(bytes.into())
            }
        }
    )*};
}

by_bytes!(Vec<u8>, Box<[u8]>, Arc<[u8]>);

impl<const N: usize> KeyBytes for [u8; N] {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self);
    }

    fn read(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }
}

impl KeyBytes for Ipv4Addr {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.octets().write(bytes);
    }

    fn read(bytes: &[u8]) -> Option<Ipv4Addr> {
        <[u8; 4]>::read(bytes).map(Ipv4Addr::from)
    }
}

impl KeyBytes for Ipv6Addr {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.octets().write(bytes);
    }

    fn read(bytes: &[u8]) -> Option<Ipv6Addr> {
        <[u8; 16]>::read(bytes).map(Ipv6Addr::from)
    }
}

/// The lengths of the two kinds differ.
impl KeyBytes for IpAddr {
    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            IpAddr::V4(address) => address.write(bytes),
            IpAddr::V6(address) => address.write(bytes),
        }
    }

    fn read(bytes: &[u8]) -> Option<IpAddr> {
        Ipv4Addr::read(bytes).map(IpAddr::V4).or_else(|| Ipv6Addr::read(bytes).map(IpAddr::V6))
    }
}

/// The first key has its length in front, in 4 bytes.
impl<A: KeyBytes, B: KeyBytes> KeyBytes for (A, B) {
    fn write(&self, bytes: &mut Vec<u8>) {
        let at = bytes.len();
        0_u32.write(bytes);
        self.0.write(bytes);
        // A first key of 4 GiB or more is read back as none.
        let len = u32::try_from(bytes.len() - at - 4).unwrap_or(u32::MAX);
        bytes[at..at + 4].copy_from_slice(&len.to_le_bytes());
        self.1.write(bytes);
    }

    fn read(bytes: &[u8]) -> Option<(A, B)> {
        let (len, keys) = bytes.split_first_chunk()?;
        let len = Some(u32::from_le_bytes(*len)).filter(|len| *len < u32::MAX)?;
        let (one, two) = keys.split_at_checked(usize::try_from(len).ok()?)?;
        Some((A::read(one)?, B::read(two)?))
    }
}
