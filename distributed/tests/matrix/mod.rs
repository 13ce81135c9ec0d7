//! The cells of the crossed matrix, their load and their law, on any store.

pub(crate) mod cell;
pub(crate) mod granted;
pub(crate) mod ideal;
pub(crate) mod law;
pub(crate) mod load;
pub(crate) mod random;
pub(crate) mod windows;
