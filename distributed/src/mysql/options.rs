//! Options of the store of MariaDB.

use std::time::Duration;

/// Options of a [`MySqlStore`](crate::MySqlStore).
#[derive(Clone, Debug)]
pub struct MySqlOptions {
    /// The connections: at least 1. Each decides one batch after another. The default is 4.
    pub connections: usize,
    /// How long a connection may take to be made and set up. The default is 2 s.
    pub connect_timeout: Duration,
    /// How long a batch may take until its connection is given up. The default is 3 s: each lock is
    /// waited for up to a second.
    pub call_timeout: Duration,
}

impl Default for MySqlOptions {
    fn default() -> MySqlOptions {
        MySqlOptions {
            connections: 4,
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(3),
        }
    }
}
