// promise: layer
//! Networks whose clients are exempt.

use tollgate_http::{HopList, InvalidNetwork, Trust};

use super::*;
use tollgate_testing::Random;

fn nets(texts: &[&str]) -> Vec<ipnet::IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn a_network_exempts_its_addresses_in_either_form() {
    let exempt = || {
        let networks = nets(&["10.0.0.0/8", "192.0.2.7/32", "2001:db8:1::/48", "fd00::/8"]);
        Exempt::networks(ClientIp::peer(), networks).unwrap()
    };
    for (peer, expected) in [
        ("10.0.0.0", true),
        ("10.255.255.255", true),
        ("::ffff:10.1.2.3", true),
        ("192.0.2.7", true),
        ("::ffff:192.0.2.7", true),
        ("2001:db8:1::", true),
        ("2001:db8:1:ffff:ffff:ffff:ffff:ffff", true),
        ("fd12::1", true),
        ("9.255.255.255", false),
        ("11.0.0.0", false),
        ("192.0.2.6", false),
        ("192.0.2.8", false),
        ("::ffff:11.0.0.1", false),
        ("::10.1.2.3", false),
        ("64:ff9b::10.1.2.3", false),
        ("2002:a01:203::1", false),
        ("::ffff:0:10.1.2.3", false),
        ("2001:db8::1", false),
        ("2001:db8:2::1", false),
        ("fe80::1", false),
        ("::1", false),
        ("127.0.0.1", false),
    ] {
        assert_eq!(exempt().applies(Head::from(&from(peer, "/"))), expected, "{peer}");
        let layer = one_an_hour().exempt(exempt()).build();
        let mut service = layer.layer(Echo::default());
        let twice = [(); 2].map(|()| status(&call(&mut service, from(peer, "/"))));
        assert_eq!(twice, [200, if expected { 200 } else { 429 }], "{peer}");
        assert_eq!(layer.stats().exempt, if expected { 2 } else { 0 }, "{peer}");
    }
    // A socket's address is one, too. Without an address no network is that of the client.
    let mut request = Request::new(());
    assert!(!exempt().applies(Head::from(&request)));
    request.extensions_mut().insert("[::ffff:10.1.2.3]:443".parse::<std::net::SocketAddr>().unwrap());
    assert!(exempt().applies(Head::from(&request)));
}

#[test]
fn a_network_of_no_client_or_of_all_is_an_error_that_names_it() {
    for (net, text) in [
        ("0.0.0.0/0", "the network 0.0.0.0/0 has every address of its version: name some networks alone"),
        ("::/0", "the network ::/0 has every address of its version: name some networks alone"),
        (
            "203.0.113.9/0",
            "the network 203.0.113.9/0 has every address of its version: name some networks alone",
        ),
        (
            "::ffff:0.0.0.0/96",
            "the network ::ffff:0.0.0.0/96 has every address of its version: name some networks alone",
        ),
        (
            "::ffff:10.0.0.0/104",
            "the network ::ffff:10.0.0.0/104 has no address, as these are canonical: name 10.0.0.0/8",
        ),
        (
            "::ffff:192.0.2.1/128",
            "the network ::ffff:192.0.2.1/128 has no address, as these are canonical: name 192.0.2.1/32",
        ),
        ("10.1.2.3/8", "the network 10.1.2.3/8 has bits after its prefix: name 10.0.0.0/8"),
        ("2001:db8::1/32", "the network 2001:db8::1/32 has bits after its prefix: name 2001:db8::/32"),
    ] {
        let both = || nets(&["192.0.2.0/24", net]);
        let error = |result: Result<(), InvalidNetwork>| result.unwrap_err().to_string();
        assert_eq!(error(Exempt::networks(ClientIp::peer(), both()).map(drop)), text);
        assert_eq!(error(Trust::networks(both()).map(drop)), text);
    }
    for net in ["0.0.0.0/1", "10.0.0.0/8", "192.0.2.1/32", "::/1", "::1/128", "::ffff:0:0:0/96", "fd00::/8"] {
        assert!(Trust::networks(nets(&[net])).is_ok(), "{net}");
    }
    assert!(Trust::networks(nets(&[])).is_ok());
}

#[test]
fn all_networks_exempt_no_request_without_an_address() {
    let halves = || nets(&["0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"]);
    let all = Exempt::networks(ClientIp::peer(), halves()).unwrap();
    assert!(!all.applies(Head::from(&Request::new(()))));
    assert!(all.applies(Head::from(&from(A, "/"))) && all.applies(Head::from(&from("::1", "/"))));
    let header = ClientIp::peer().header(http::HeaderName::from_static("cf-connecting-ip"));
    let all = Exempt::networks(header, halves()).unwrap();
    assert!(!all.applies(Head::from(&from(A, "/"))));
}

/// Elements that a client outside may send to a proxy that appends the client's address.
const FORGED: [&str; 18] = [
    "10.1.2.3",
    "10.0.0.1",
    "::ffff:10.1.2.3",
    "[::ffff:10.1.2.3]:80",
    "127.0.0.1",
    "unknown",
    "_hidden",
    "",
    " ",
    ",",
    ", ,10.1.2.3",
    "\"",
    "\"10.1.2.3",
    "10.1.2.3\"",
    "for=10.1.2.3",
    "for=\"10.1.2.3",
    "\\\"",
    "203.0.113.9",
];

/// Returns some lines of a client.
fn forged(random: &mut Random) -> Vec<String> {
    let pick = |random: &mut Random| FORGED[random.below(FORGED.len() as u64) as usize];
    let line = |random: &mut Random| -> String {
        let elements: Vec<_> = (0..random.below(4)).map(|_| pick(random)).collect();
        elements.join(if random.below(2) == 0 { ", " } else { "," })
    };
    (0..random.below(3)).map(|_| line(random)).collect()
}

#[test]
fn no_header_of_a_client_outside_exempts_it() {
    let (proxies, office) = (["10.0.0.0/16"], ["10.1.0.0/16", "10.0.0.0/16"]);
    let mut random = Random(22);
    for (name, wrapped) in [("x-forwarded-for", false), ("forwarded", true)] {
        let by = |name: &str| match name {
            "forwarded" => {
                ClientIp::peer().behind(HopList::Forwarded, Trust::networks(nets(&proxies)).unwrap())
            }
            _ => ClientIp::peer().behind(HopList::XForwardedFor, Trust::networks(nets(&proxies)).unwrap()),
        };
        let limiter = limiter::<IpAddr>(Quota::per_hour(1_000_000));
        let exempt = Exempt::networks(by(name), nets(&office)).unwrap();
        let layer = RateLimitLayer::builder(limiter).key(by(name)).exempt(exempt).build();
        let mut service = layer.layer(Echo::default());
        let (mut inside, mut outside) = (0, 0);
        for _ in 0..4_000 {
            let lines = forged(&mut random);
            let client = ["203.0.113.9", "2001:db8::9", "10.1.2.3"][random.below(3) as usize];
            let is_inside = client == "10.1.2.3";
            // Directly, or by one or two proxies that append in the same line or in a new one.
            let proxies = random.below(3);
            let (mut peer, mut lines) = (client.to_owned(), lines);
            for proxy in 0..proxies {
                let node = match (wrapped, peer.contains(':')) {
                    (false, _) => peer.clone(),
                    (true, false) => format!("for={peer}"),
                    (true, true) => format!("for=\"[{peer}]\""),
                };
                match lines.last_mut() {
                    Some(last) if random.below(2) == 0 => *last = format!("{last}, {node}"),
                    _ => lines.push(node),
                }
                peer = format!("10.0.0.{}", proxy + 1);
            }
            let mut request = from(&peer, "/");
            for line in &lines {
                request.headers_mut().append(name, line.parse().unwrap());
            }
            // Headers that this layer does not read.
            for other in ["x-real-ip", "client-ip", "x-client-ip", "true-client-ip", "via"] {
                request.headers_mut().insert(other, "10.1.2.3".parse().unwrap());
            }
            let before = layer.stats().exempt;
            let response = call(&mut service, request);
            let exempt = noted(&response) == Some(Noted { granted: None, exceeded: false });
            assert_eq!(exempt, is_inside, "{client} by {proxies} proxies: {lines:?}");
            assert_eq!(layer.stats().exempt - before, u64::from(is_inside), "{client}: {lines:?}");
            inside += u32::from(is_inside);
            outside += u32::from(!is_inside);
        }
        assert!(inside > 1_000 && outside > 2_000, "{inside} {outside}");
    }
}

#[test]
fn the_address_of_an_exempt_client_is_not_cut_to_a_prefix() {
    // A key is the /64, an exempt address is one.
    let one = Exempt::networks(ClientIp::peer(), nets(&["2001:db8::7/128"])).unwrap();
    let layer = one_an_hour().exempt(one).build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |peer| status(&call(&mut service, from(peer, "/")));
    assert_eq!(
        ["2001:db8::7", "2001:db8::7", "2001:db8::8", "2001:db8::9"].map(&mut asks),
        [200, 200, 200, 429]
    );
    assert_eq!(asks("2001:db8::7"), 200);
    assert_eq!(layer.stats().exempt, 3);
}
