//! The request: its head, its key, the address of its client, and whether it is exempt.

pub(crate) mod check;
pub(crate) mod client_ip;
pub(crate) mod digest;
pub(crate) mod exempt;
pub(crate) mod forwarded;
pub(crate) mod key;
pub(crate) mod value;
