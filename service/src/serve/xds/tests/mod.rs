//! Tests of the client beside a control plane of the tests: in virtual time over pipes, and over
//! sockets where these are the matter.

mod control_plane;
mod faults;
pub(in crate::serve) mod from_yaml;
mod load;
mod sockets;
mod updates;
