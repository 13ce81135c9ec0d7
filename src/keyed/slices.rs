//! Owned keys that are looked up by a slice: a string, a path, or elements.
//!
//! One implementation over `ToOwned` would leave no room for these: a later `std` might give a
//! slice another owned form.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::keyed::key::ToKey;

macro_rules! by_slice {
    ($slice:ty: $($key:ty),*) => {$(
        impl ToKey<$key> for $slice {
            fn to_key(&self) -> $key {
                self.into()
            }
        }
    )*};
}

by_slice!(str: String, Arc<str>, Box<str>, Rc<str>);
by_slice!(Path: PathBuf, Arc<Path>, Box<Path>, Rc<Path>);
by_slice!(OsStr: OsString, Arc<OsStr>, Box<OsStr>, Rc<OsStr>);
by_slice!(CStr: CString, Arc<CStr>, Box<CStr>, Rc<CStr>);

macro_rules! by_elements {
    ($($key:ty),*) => {$(
        impl<T: Clone + Hash + Eq> ToKey<$key> for [T] {
            fn to_key(&self) -> $key {
                self.into()
            }
        }
    )*};
}

by_elements!(Vec<T>, Arc<[T]>, Box<[T]>, Rc<[T]>);
