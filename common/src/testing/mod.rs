//! What the tests of both programs share.

mod ended;
mod files;
pub mod frames;
mod http2;
mod running;
mod tls;
mod waiting;

pub use ended::{Ended, run, words};
pub use files::Folder;
pub use frames::Frames;
pub use http2::{Http2, call, get, next};
pub use running::{Running, address_after};
pub use tls::{Authority, Certificate, certificate, open_any};
pub use waiting::{block_on, spawn, until};
