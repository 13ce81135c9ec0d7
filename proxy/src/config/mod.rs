//! The settings of the proxy, from a file and from options.

mod build;
mod checks;
pub(crate) mod describe;
pub(crate) mod exempt;
mod file;
pub(crate) mod options;
mod origins;
pub(crate) mod rows;
pub(crate) mod settings;
pub(crate) mod store;
pub(crate) mod upstream;
mod values;
