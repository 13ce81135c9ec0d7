//! Addresses of IPv6 that stand for clients of IPv4.
//!
//! Their /64 is no client: that of a translator or of a Teredo server has many clients, and one
//! client of 6to4 has 65,536 of them. A TCP connection from such an address needs the answers that
//! go to the IPv4 address inside, so a client chooses none but its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the key of a client behind a transition. `None` if the address is no such one.
pub(super) fn key_of(address: Ipv6Addr) -> Option<IpAddr> {
    let four =
        |high: u16, low: u16| Some(IpAddr::V4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))));
    match address.segments() {
        // NAT64 by the well-known prefix (RFC 6052, 2.1).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => four(high, low),
        // NAT64 by a prefix of 48 to 96 bits of one network (RFC 8215). The place of the IPv4
        // address depends on the length, which is not known. The whole address stands for the same
        // client.
        [0x64, 0xff9b, 1, ..] => Some(IpAddr::V6(address)),
        // 6to4 (RFC 3056, 2).
        [0x2002, high, low, ..] => four(high, low),
        // Teredo, whose bits are inverted (RFC 4380, 4).
        [0x2001, 0, .., high, low] => four(!high, !low),
        // IPv4-compatible (RFC 4291, 2.5.5.1), and IPv4-translated (RFC 2765, 2.1). 0.0.0.0/8 has
        // no client, and `::1` is there.
        [0, 0, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] if high > 0xff => four(high, low),
        _ => None,
    }
}
