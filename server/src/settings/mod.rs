//! The text forms of settings that the servers share, and the sentences about mistakes in them.

pub(crate) mod fault;
pub(crate) mod file;
pub(crate) mod values;
