//! Networks that count as one client.

use crate::support::{Proxy, Reloaded};

const IPV4: [([u8; 4], u16); 4] =
    [([127, 0, 1, 1], 200), ([127, 0, 1, 200], 429), ([127, 0, 2, 1], 200), ([127, 0, 1, 1], 429)];

#[test]
fn addresses_of_an_ipv4_network_share_a_bucket() {
    let proxy = Proxy::start("--limit 1/h --ipv4-prefix 24");
    for (address, status) in IPV4 {
        let reply = proxy.connect_from(address).get("/");
        assert_eq!(reply.status, status, "{address:?}");
        // The upstream learns the address of the client itself.
        let own = address.map(|part| part.to_string()).join(".");
        assert!(status == 429 || reply.body.contains(&format!("x-forwarded-for: {own}\n")), "{reply:?}");
    }
    let proxy = Proxy::start("--limit 1/h");
    for (address, status) in [([127, 0, 1, 1], 200), ([127, 0, 1, 2], 200), ([127, 0, 1, 1], 429)] {
        assert_eq!(proxy.connect_from(address).get("/").status, status, "{address:?}");
    }
}

#[test]
fn addresses_of_an_ipv6_network_share_a_bucket() {
    let of_64 = [("2001:db8:0:1::1", 200), ("2001:db8:0:1:ffff::2", 429), ("2001:db8:0:2::1", 200)];
    let of_48 = [("2001:db8:0:1::1", 200), ("2001:db8:0:2::1", 429), ("2001:db8:1::1", 200)];
    for (options, clients) in [("", of_64), ("--ipv6-prefix 48", of_48)] {
        let proxy = Proxy::start(&format!("--limit 1/h --trust-proxy 127.0.0.1 {options}"));
        let mut peer = proxy.connect();
        for (client, status) in clients {
            let reply = peer.get_with("/", &format!("X-Forwarded-For: {client}\r\n"));
            assert_eq!(reply.status, status, "{client} {options:?}");
        }
    }
}

#[test]
fn a_reload_changes_the_prefixes() {
    let proxy = Reloaded::start("limit = \"1/h burst 1\"\n");
    for last in [1, 2] {
        assert_eq!(proxy.connect_from([127, 0, 1, last]).get("/").status, 200);
    }
    let lines = proxy.read("limit = \"1/h burst 1\"\nipv4_prefix = 24\n");
    assert!(lines.iter().any(|line| line == "ipv4_prefix: 24, was 32"), "{lines:?}");
    for (last, status) in [(3, 200), (4, 429), (1, 429)] {
        assert_eq!(proxy.connect_from([127, 0, 1, last]).get("/").status, status, "{last}");
    }
}
