//! The settings of the proxy, from a file and from options.

mod checks;
pub(crate) mod describe;
mod exempt;
mod fault;
mod file;
mod given;
pub(crate) mod options;
mod placed;
pub(crate) mod settings;
pub(crate) mod shared;
mod store;
#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod tests;
mod timeouts;
mod values;
