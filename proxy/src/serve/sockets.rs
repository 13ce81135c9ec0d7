//! The share of each side in the sockets that the process may open.

use crate::config::settings::{IN_FLIGHT, Settings};
use tollgate_common::net::files::open_files_limit;

/// The number of sockets that the process may open.
pub(crate) struct Sockets {
    limit: usize,
    /// Sockets of one connection to an upstream.
    each_upstream: usize,
}

impl Sockets {
    /// Raises the limit on open files as far as the system allows. `admin` sockets of it are not
    /// shared.
    pub(crate) fn new(admin: usize, each_upstream: usize) -> Sockets {
        Sockets { limit: open_files_limit().saturating_sub(admin), each_upstream }
    }

    /// Returns the numbers of connections with clients and of requests under way for which there is
    /// room. No number of clients can take the descriptors that connections to upstreams need.
    pub(crate) fn share(&self, in_flight: usize) -> (usize, usize) {
        // stdio, epoll, signals and two listeners are 13; the rest is for sockets that are being
        // closed.
        const OWN: usize = 16;
        // A client may be idle for long, and a request may not.
        let for_upstreams = self.limit.saturating_sub(OWN) / 4 / self.each_upstream;
        let upstream = for_upstreams.clamp(4, in_flight.max(4));
        let clients = self.limit.saturating_sub(OWN + upstream * self.each_upstream);
        (clients.max(1), upstream.min(in_flight))
    }

    /// Returns the settings with the number of requests under way lowered to the room that there
    /// is. A number that was asked for is logged then.
    pub(crate) fn bounded(&self, settings: &Settings) -> Settings {
        let (in_flight, mut bounded) = (settings.bounds.in_flight, settings.clone());
        (_, bounded.bounds.in_flight) = self.share(in_flight);
        if bounded.bounds.in_flight < in_flight && in_flight != IN_FLIGHT {
            let line = "the limit on open files leaves room for fewer requests under way";
            tracing::warn!(in_flight, bounded = bounded.bounds.in_flight, "{line}");
        }
        bounded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_get_their_part_and_clients_the_rest() {
        for (limit, each_upstream, in_flight, shares) in [
            (1_024, 1, 256, (756, 252)),
            (2_000, 1, 256, (1_728, 256)),
            (2_000, 2, 1_000, (1_488, 248)),
            (0, 1, 256, (1, 4)),
            (1_024, 1, 2, (1_004, 2)),
        ] {
            assert_eq!(Sockets { limit, each_upstream }.share(in_flight), shares, "{limit}");
        }
    }
}
