// promise: client-ip
//! The client's address, by trusted proxies and headers, row by row.

mod forged;

use std::net::{IpAddr, SocketAddr};

use http::Request;
use http::header::HeaderName;
use proptest::prelude::*;
use tollgate_http::{ClientIp, ClientIpStats, Head, HopList, KeyFrom, Trust};

use tollgate_testing::cases;

/// The peer's address, as in axum's `ConnectInfo`.
#[derive(Clone)]
struct Peer(SocketAddr);

fn by_peer() -> ClientIp {
    ClientIp::peer_from(|peer: &Peer| peer.0.ip())
}

/// Returns the client behind proxies that append to `X-Forwarded-For`.
fn xff(trust: Trust) -> ClientIp {
    by_peer().behind(HopList::XForwardedFor, trust)
}

/// Returns the client behind proxies that append to `Forwarded`.
fn forwarded(trust: Trust) -> ClientIp {
    by_peer().behind(HopList::Forwarded, trust)
}

/// The trusted proxies: 10.0.0.0/8 and a network of version 6.
#[cfg(feature = "ipnet")]
fn nets() -> Vec<ipnet::IpNet> {
    ["10.0.0.0/8", "2001:db8:aa::/48"].map(|net| net.parse().unwrap()).to_vec()
}

fn request(peer: &str, lines: &[(&str, &[u8])]) -> Request<()> {
    let mut request = Request::new(());
    if !peer.is_empty() {
        request.extensions_mut().insert(Peer(SocketAddr::new(peer.parse().unwrap(), 4711)));
    }
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().append(name, http::HeaderValue::from_bytes(value).unwrap());
    }
    request
}

/// Returns the client's whole address.
fn client(by: &ClientIp, peer: &str, lines: &[(&str, &str)]) -> String {
    let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let address = by.address(Head::from(&request(peer, &lines)));
    address.map_or("none".to_owned(), |address| address.to_string())
}

const XFF: &str = "x-forwarded-for";

#[test]
fn without_more_headers_are_ignored() {
    let lines = [(XFF, "203.0.113.9"), ("forwarded", "for=203.0.113.9"), ("x-real-ip", "203.0.113.9")];
    assert_eq!(client(&by_peer(), "198.51.100.7", &lines), "198.51.100.7");
    assert_eq!(client(&by_peer(), "::ffff:198.51.100.7", &lines), "198.51.100.7");
    assert_eq!(client(&by_peer(), "", &lines), "none");
    let mut request = Request::new(());
    request.extensions_mut().insert(IpAddr::from([192, 0, 2, 1]));
    assert_eq!(ClientIp::peer().address(Head::from(&request)), Some(IpAddr::from([192, 0, 2, 1])));
}

#[cfg(feature = "ipnet")]
#[test]
fn from_the_peer_leftwards_the_first_that_is_not_trusted() {
    let by = xff(Trust::networks(nets()).unwrap());
    for (peer, lines, expected) in [
        // No list: the peer.
        ("10.0.0.1", &[][..], "10.0.0.1"),
        ("10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", &["203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        // The elements on the left are written by the client.
        ("10.0.0.1", &["1.1.1.1, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        // Two lines are one list.
        ("10.0.0.1", &["1.1.1.1, 203.0.113.9", "10.0.0.2"], "203.0.113.9"),
        ("10.0.0.1", &["203.0.113.9", "198.51.100.1, 10.0.0.2"], "198.51.100.1"),
        // All elements are proxies: the outermost is the client.
        ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        // An element without an address ends the walk.
        ("10.0.0.1", &["203.0.113.9, unknown"], "10.0.0.1"),
        ("10.0.0.1", &["203.0.113.9, _hidden, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", &["203.0.113.9, , 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", &["203.0.113.9,"], "10.0.0.1"),
        ("10.0.0.1", &[""], "10.0.0.1"),
        ("10.0.0.1", &["203.0.113.9, 010.0.0.2"], "10.0.0.1"),
        ("10.0.0.1", &["203.0.113.9, fe80::1%eth0"], "10.0.0.1"),
        ("10.0.0.1", &["203.0.113.9, [fe80::1%1]:80"], "10.0.0.1"),
        ("10.0.0.1", &["203.0.113.9, 10.0.0.2:99999"], "10.0.0.1"),
        // Elements with ports and brackets.
        ("10.0.0.1", &["203.0.113.9:4711"], "203.0.113.9"),
        ("10.0.0.1", &["[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
        ("10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.1", &["203.0.113.9,\t10.0.0.2:80 "], "203.0.113.9"),
        // A mapped address is the address of version 4 in it, for proxies as well.
        ("::ffff:10.0.0.1", &["::ffff:203.0.113.9, ::ffff:10.0.0.2"], "203.0.113.9"),
        ("2001:db8:aa::1", &["203.0.113.9"], "203.0.113.9"),
        // The peer is not trusted, so its headers do not count.
        ("198.51.100.7", &["203.0.113.9"], "198.51.100.7"),
        ("198.51.100.7", &["203.0.113.9, 10.0.0.2"], "198.51.100.7"),
        ("198.51.100.7", &[], "198.51.100.7"),
        ("", &["203.0.113.9"], "none"),
        // Quotes have no meaning here.
        ("10.0.0.1", &["203.0.113.9, \"10.0.0.2, 10.0.0.3"], "10.0.0.3"),
    ] {
        let lines: Vec<_> = lines.iter().map(|line| (XFF, *line)).collect();
        assert_eq!(client(&by, peer, &lines), expected, "{peer} {lines:?}");
    }
    let ClientIpStats { no_peer, forwarded_from_untrusted, too_few_hops, unreadable, .. } = by.stats();
    assert_eq!((no_peer, forwarded_from_untrusted, too_few_hops, unreadable), (1, 2, 0, 10));
    // The other header does not count.
    assert_eq!(client(&by, "10.0.0.1", &[("forwarded", "for=203.0.113.9")]), "10.0.0.1");
}

#[test]
fn the_nth_hop_from_the_right() {
    let one = xff(Trust::hops(1));
    let two = xff(Trust::hops(2));
    for (list, first, second) in [
        ("203.0.113.9, 198.51.100.1", "198.51.100.1", "203.0.113.9"),
        ("1.1.1.1, 203.0.113.9, 198.51.100.1", "198.51.100.1", "203.0.113.9"),
        // Fewer elements than proxies: the peer.
        ("203.0.113.9", "203.0.113.9", "192.0.2.1"),
        // An unreadable element: the last address before it.
        ("203.0.113.9, unknown", "192.0.2.1", "192.0.2.1"),
        ("unknown, 198.51.100.1", "198.51.100.1", "198.51.100.1"),
    ] {
        assert_eq!(client(&one, "192.0.2.1", &[(XFF, list)]), first, "{list}");
        assert_eq!(client(&two, "192.0.2.1", &[(XFF, list)]), second, "{list}");
    }
    assert_eq!((one.stats().too_few_hops, two.stats().too_few_hops), (0, 1));
    assert_eq!((one.stats().unreadable, two.stats().unreadable), (1, 2));
    assert_eq!(client(&one, "192.0.2.1", &[]), "192.0.2.1");
    // A socket without addresses.
    assert_eq!(client(&one, "", &[(XFF, "203.0.113.9")]), "203.0.113.9");
    assert_eq!(client(&xff(Trust::hops(0)), "192.0.2.1", &[(XFF, "203.0.113.9")]), "192.0.2.1");
}

/// A CDN comes in front of the proxy. By the number of hops all its clients are one edge of it, and
/// no stat tells. By networks each client stays itself.
#[test]
fn networks_are_right_at_any_number_of_proxies() {
    let (hops, networks) = (xff(Trust::hops(1)), xff(Trust::networks(nets()).unwrap()));
    for (behind, edge) in
        [("", None), (", 10.0.0.7", Some("10.0.0.7")), (", 10.0.0.7, 10.0.0.8", Some("10.0.0.8"))]
    {
        for last in 1..=100 {
            let address = format!("203.0.113.{last}");
            let list = format!("{address}{behind}");
            assert_eq!(client(&networks, "10.0.0.1", &[(XFF, &list)]), address);
            assert_eq!(client(&hops, "10.0.0.1", &[(XFF, &list)]), edge.unwrap_or(&address));
        }
    }
    assert_eq!(hops.stats(), ClientIpStats::default());
}

#[test]
fn the_forms_of_forwarded() {
    let by = forwarded(Trust::hops(1));
    for (value, expected) in [
        ("for=203.0.113.9", "203.0.113.9"),
        ("For=203.0.113.9;proto=http;by=10.0.0.1", "203.0.113.9"),
        ("proto=http; for=203.0.113.9", "203.0.113.9"),
        ("for=\"203.0.113.9:4711\"", "203.0.113.9"),
        ("for=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
        ("for=\"[2001:db8:cafe::17]\"", "2001:db8:cafe::17"),
        ("for=\"\\[2001:db8::1\\]\"", "2001:db8::1"),
        // Separators within quotes do not separate.
        ("for=1.1.1.1;by=\"a,b;for=9.9.9.9\", for=203.0.113.9;host=\"x,y;for=2.2.2.2\"", "203.0.113.9"),
        // An escaped quote ends nothing, and outside of quotes nothing is escaped.
        ("for=1.1.1.1, for=203.0.113.9;by=\"a\\\",b\"", "203.0.113.9"),
        ("for=1.1.1.1;by=a\\, for=203.0.113.9", "203.0.113.9"),
        ("for=unknown", "192.0.2.1"),
        ("for=_hidden", "192.0.2.1"),
        ("for=\"203.0.113.9", "192.0.2.1"),
        ("for=\"203.0.113.9\"x", "192.0.2.1"),
        ("for=203.0.113.9;for=1.1.1.1", "192.0.2.1"),
        ("proto=http", "192.0.2.1"),
        ("", "192.0.2.1"),
    ] {
        assert_eq!(client(&by, "192.0.2.1", &[("forwarded", value)]), expected, "{value}");
    }
    assert_eq!(client(&by, "192.0.2.1", &[(XFF, "203.0.113.9")]), "192.0.2.1");
}

#[test]
fn a_client_cannot_choose_its_key() {
    let hop = forwarded(Trust::hops(1));
    let trusted = forwarded(Trust::by(|address| address == IpAddr::from([192, 0, 2, 1])));
    for theirs in [
        "for=6.6.6.6;by=\"",
        "for=6.6.6.6;\"",
        "for=6.6.6.6;\"a\"=\"",
        "for=6.6.6.6;by=\"\\",
        "for=\"6.6.6.6\";by=\"a\", by=\"",
        "\"",
        "for=\"6.6.6.6",
        "for=6.6.6.6;by=\"a=",
        "for=6.6.6.6;",
        ",,,",
        "",
    ] {
        for ours in [
            "for=203.0.113.9",
            "for=\"203.0.113.9\"",
            "for=\"203.0.113.9:4711\";by=\"a,b\"",
            "by=\"a;for=7.7.7.7\";for=203.0.113.9",
            "host=\"a\\\", for=7.7.7.7;b=\\\"c\";for=203.0.113.9",
        ] {
            let (one, spaced) = (format!("{theirs},{ours}"), format!("{theirs} \t, {ours} "));
            for lines in [
                &[("forwarded", one.as_str())][..],
                &[("forwarded", &spaced)],
                &[("forwarded", theirs), ("forwarded", ours)],
            ] {
                assert_eq!(client(&hop, "192.0.2.1", lines), "203.0.113.9", "{lines:?}");
                assert_eq!(client(&trusted, "192.0.2.1", lines), "203.0.113.9", "{lines:?}");
            }
        }
    }
}

#[test]
fn a_pair_that_is_none_ends_the_walk() {
    let by = forwarded(Trust::hops(2));
    for (pair, expected) in [
        ("for=1.1.1.1", "1.1.1.1"),
        ("for=1.1.1.1;a-b.c!#$%&'*+^_`|~9=d", "1.1.1.1"),
        ("for=1.1.1.1;by=\"\t \u{e9} \\\u{e9}\\\\\"", "1.1.1.1"),
        ("for=1.1.1.1;by=\"\"", "1.1.1.1"),
        // Pairs may be empty, and some proxies write spaces around semicolons.
        (";;for=1.1.1.1;", "1.1.1.1"),
        ("proto=http ;\tfor=1.1.1.1 ; by=x", "1.1.1.1"),
        ("for=1.1.1.1;by", "203.0.113.9"),
        ("for=1.1.1.1;by=", "203.0.113.9"),
        ("for=1.1.1.1;=x", "203.0.113.9"),
        ("for=1.1.1.1;=", "203.0.113.9"),
        ("for=1.1.1.1;b(y=x", "203.0.113.9"),
        ("for=1.1.1.1;b y=x", "203.0.113.9"),
        ("for=1.1.1.1;\"by\"=x", "203.0.113.9"),
        ("for=1.1.1.1;b\u{e9}=x", "203.0.113.9"),
        ("for=1.1.1.1;by=a:b", "203.0.113.9"),
        ("for=1.1.1.1;by= x", "203.0.113.9"),
        ("for =1.1.1.1", "203.0.113.9"),
        ("for=1.1.1.1;by=\"a\"b\"", "203.0.113.9"),
        ("for=1.1.1.1;by=\"a\\\\\"b\"", "203.0.113.9"),
        ("for=1.1.1.1;by=\"a\\\"", "203.0.113.9"),
        ("for=1.1.1.1;by=\"a\"x", "203.0.113.9"),
        ("for=1.1.1.1 by=x", "203.0.113.9"),
        ("for=1.1.1.1;for=1.1.1.1", "203.0.113.9"),
        // A node that is no token stands in quotes.
        ("for=1.1.1.1:80", "203.0.113.9"),
        ("for=[2001:db8::1]", "203.0.113.9"),
        ("for=\"\u{e9}\"", "203.0.113.9"),
    ] {
        let line = format!("for=6.6.6.6, {pair} , for=203.0.113.9");
        assert_eq!(client(&by, "192.0.2.1", &[("forwarded", &line)]), expected, "{line}");
        let lines = [("forwarded", "for=6.6.6.6"), ("forwarded", pair), ("forwarded", "for=203.0.113.9")];
        assert_eq!(client(&by, "192.0.2.1", &lines), expected, "{lines:?}");
    }
}

#[cfg(feature = "ipnet")]
#[test]
fn trusted_proxies_by_forwarded() {
    let by = forwarded(Trust::networks(nets()).unwrap());
    let lines = [("forwarded", "for=1.1.1.1, for=203.0.113.9"), ("forwarded", "for=\"[2001:db8:aa::7]:1\"")];
    assert_eq!(client(&by, "10.0.0.1", &lines), "203.0.113.9");
    assert_eq!(client(&by, "192.0.2.1", &lines), "192.0.2.1");
    assert_eq!(by.stats().forwarded_from_untrusted, 1);
}

#[test]
fn a_single_header_is_there_once() {
    let by = by_peer().header(HeaderName::from_static("cf-connecting-ip"));
    let name = "cf-connecting-ip";
    assert_eq!(client(&by, "192.0.2.1", &[(name, "203.0.113.9")]), "203.0.113.9");
    assert_eq!(client(&by, "192.0.2.1", &[(name, "203.0.113.9"), (name, "203.0.113.9")]), "203.0.113.9");
    assert_eq!(client(&by, "192.0.2.1", &[(name, "203.0.113.9"), (name, "1.1.1.1")]), "none");
    assert_eq!(client(&by, "192.0.2.1", &[(name, "203.0.113.9, 1.1.1.1")]), "none");
    // Azure's gateway writes the port of the connection.
    for text in ["203.0.113.9:50123", "203.0.113.9:50124", " 203.0.113.9 ", "::ffff:203.0.113.9"] {
        assert_eq!(client(&by, "192.0.2.1", &[(name, text)]), "203.0.113.9", "{text}");
    }
    for text in ["2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:5678"] {
        assert_eq!(client(&by, "192.0.2.1", &[(name, text)]), "2001:db8::1", "{text}");
    }
    assert_eq!(client(&by, "192.0.2.1", &[]), "none");
    assert_eq!(by.stats().unreadable, 2);
}

#[test]
fn garbage_is_nobody() {
    let by = xff(Trust::hops(1));
    for garbage in [&b"\xff\xfe"[..], b"203.0.113.9\xc3\xa9", &[b'1'; 100_000]] {
        let request = request("192.0.2.1", &[(XFF, garbage)]);
        assert_eq!(by.address(Head::from(&request)), Some(IpAddr::from([192, 0, 2, 1])));
    }
    let many = vec![(XFF, &b"203.0.113.9"[..]); 10_000];
    assert_eq!(by.address(Head::from(&request("192.0.2.1", &many))), Some(IpAddr::from([203, 0, 113, 9])));
}

#[test]
fn keys_are_canonical_and_those_of_version_6_are_networks() {
    let key = |by: &ClientIp, peer: &str| by.key_from(Head::from(&request(peer, &[]))).unwrap().to_string();
    let by = by_peer();
    assert_eq!(key(&by, "::ffff:1.2.3.4"), key(&by, "1.2.3.4"));
    assert_ne!(key(&by, "::ffff:9.9.9.9"), key(&by, "::ffff:1.2.3.4"));
    assert_eq!(key(&by, "2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    assert_eq!(key(&by, "::1"), "::");
    let wide = by_peer().ipv6_prefix(56).unwrap();
    assert_eq!(key(&wide, "2001:db8:1:2ff:3:4:5:6"), "2001:db8:1:200::");
    assert_eq!(key(&wide, "1.2.3.4"), "1.2.3.4");
    for bits in [0, 31, 65, 128, 255] {
        let error = by_peer().ipv6_prefix(bits).unwrap_err().to_string();
        assert_eq!(error, format!("a prefix of {bits} bits is out of the bounds of 32 and 64"));
    }
}

#[test]
fn a_client_behind_a_transition_has_one_key_of_its_own() {
    let key = |by: &ClientIp, peer: &str| by.key_from(Head::from(&request(peer, &[]))).unwrap().to_string();
    for by in [by_peer(), by_peer().ipv6_prefix(32).unwrap(), xff(Trust::hops(1))] {
        for (address, expected) in [
            // NAT64, by the well-known prefix.
            ("64:ff9b::102:304", "1.2.3.4"),
            ("64:ff9b::c633:6407", "198.51.100.7"),
            // NAT64, by a prefix of one network: its length, and so the place of the address
            // inside, is not known.
            ("64:ff9b:1::102:304", "64:ff9b:1::102:304"),
            ("64:ff9b:1::102:305", "64:ff9b:1::102:305"),
            ("64:ff9b:1:fffe::102:304", "64:ff9b:1:fffe::102:304"),
            ("64:ff9b:1:102:3:400::", "64:ff9b:1:102:3:400::"),
            ("64:ff9b:1:102:3:500::", "64:ff9b:1:102:3:500::"),
            // 6to4: one client has 65,536 networks.
            ("2002:102:304::1", "1.2.3.4"),
            ("2002:102:304:ffff::1", "1.2.3.4"),
            ("2002:102:304:1:2:3:4:5", "1.2.3.4"),
            ("2002:102:305::1", "1.2.3.5"),
            // Teredo: the clients of one server share a /64. Port and server are the client's
            // choice.
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "192.0.2.45"),
            ("2001:0:4136:e378:0:1:3fff:fdd2", "192.0.2.45"),
            ("2001:0:53aa:64c:8000:63bf:3fff:fdd2", "192.0.2.45"),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd3", "192.0.2.44"),
            // IPv4-compatible, IPv4-translated and IPv4-mapped.
            ("::1.2.3.4", "1.2.3.4"),
            ("::1.2.3.5", "1.2.3.5"),
            ("::ffff:0:1.2.3.4", "1.2.3.4"),
            ("::ffff:1.2.3.4", "1.2.3.4"),
        ] {
            assert_eq!(key(&by, address), expected, "{address}");
            assert_eq!(by.group(address.parse().unwrap()).to_string(), expected, "{address}");
        }
    }
    // These are no transition: one client has the /64.
    for (address, expected) in [
        ("64:ff9a::102:304", "64:ff9a::"),
        ("64:ff9b:2::102:304", "64:ff9b:2::"),
        ("64:ff9b:0:1::102:304", "64:ff9b:0:1::"),
        ("2001:1:4136:e378:8000:63bf:3fff:fdd2", "2001:1:4136:e378::"),
        ("2003:102:304::1", "2003:102:304::"),
        ("::", "::"),
        ("::1", "::"),
        ("::ff:ffff", "::"),
        ("::fffe:0:1.2.3.4", "::"),
        ("0:0:0:1::1.2.3.4", "0:0:0:1::"),
    ] {
        assert_eq!(key(&by_peer(), address), expected, "{address}");
    }
}

#[test]
fn an_address_of_a_transition_is_no_trusted_one_for_the_address_inside() {
    let by = xff(Trust::by(|address| matches!(address, IpAddr::V4(four) if four.is_private())));
    for peer in ["2002:a00:1::1", "64:ff9b::a00:1", "2001:0:4136:e378:8000:63bf:f5ff:fffe", "::10.0.0.1"] {
        let head = request(peer, &[(XFF, b"203.0.113.9")]);
        // It is the client, by the address inside: the list is ignored.
        assert_eq!(by.key_from(Head::from(&head)), Some(IpAddr::from([10, 0, 0, 1])), "{peer}");
        assert_eq!(by.address(Head::from(&head)), Some(peer.parse().unwrap()), "{peer}");
    }
}

#[test]
fn a_peer_that_the_server_keeps_apart_is_the_same_peer() {
    let lines: &[(&str, &[u8])] = &[("x-forwarded-for", b"2001:db8:1:2:3::9, 203.0.113.9")];
    for peer in ["::ffff:192.0.2.1", "2001:db8::7", ""] {
        let (request, apart) = (request(peer, lines), peer.parse::<IpAddr>().ok());
        for by in [by_peer(), xff(Trust::hops(1)), xff(Trust::hops(2)), xff(Trust::hops(3))] {
            assert_eq!(
                by.key_of(apart, request.headers()),
                by.key_from(Head::from(&request)),
                "{peer} {by:?}"
            );
        }
    }
}

#[test]
fn a_server_may_have_noted_that_there_is_no_peer() {
    let by = ClientIp::peer_from(|peer: &Option<IpAddr>| *peer);
    let mut request = Request::new(());
    for peer in [None, Some(IpAddr::from([192, 0, 2, 1]))] {
        request.extensions_mut().insert(peer);
        assert_eq!(by.key_from(Head::from(&request)), peer);
    }
}
