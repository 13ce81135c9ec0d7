//! Options of the store of MariaDB.

use std::time::Duration;

/// Options of a [`MySqlStore`](crate::MySqlStore).
#[derive(Clone, Debug)]
pub struct MySqlOptions {
    /// The connections; 0 counts as 1. Each decides one batch at a time. The default is 4.
    pub connections: usize,
    /// The longest time to connect and to set the session up. The default is 2 s.
    pub connect_timeout: Duration,
    /// The longest time of a batch, after which the store gives the connection up and the effect is
    /// unknown. The default is 3 s. A wait for one lock takes at most 1 s.
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
