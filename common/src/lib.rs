//! What the rate limit service and the proxy of tollgate share: listeners with bounds, TLS, the
//! forms of settings, readings of a path, and files of state.
//!
//! The crate is not published: it has no promise beyond the two programs of this repository.
#![allow(
    clippy::new_without_default,
    clippy::should_implement_trait,
    missing_docs,
    reason = "its only users are the programs of this repository"
)]

#[cfg(not(unix))]
compile_error!("the programs run on Unix only: they listen on Unix sockets and obey signals of Unix");

pub mod admin;
pub mod log;
pub mod net;
pub mod output;
pub mod past;
pub mod paths;
pub mod process;
pub mod settings;
pub mod state_file;
#[cfg(feature = "testing")]
pub mod testing;
