// promise: client-ip
//! Lines that a client forges.

use super::*;

/// Header lines of a client that opens and escapes quotes everywhere.
fn anything() -> impl Strategy<Value = Vec<String>> {
    let part = prop::sample::select(vec![
        "\"",
        "\"",
        "\"",
        "\\",
        ",",
        ", ",
        ";",
        "=",
        " ",
        "=\"",
        ",\"",
        "\",",
        ";\"",
        "\\\"",
        "for=6.6.6.6",
        "for=\"6.6.6.6",
        "for=10.0.0.9",
        "by=\"",
        "x",
        "\u{e9}",
        "for=\"6.6.6.6\"",
        "for=",
    ]);
    let line = prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat());
    prop::collection::vec(line, 0..3)
}

/// An element in some form, and whether it is on a line of its own.
fn element(address: IpAddr) -> impl Strategy<Value = (String, bool)> {
    let node = match address {
        IpAddr::V4(_) => vec![address.to_string(), format!("\"{address}\""), format!("\"{address}:4711\"")],
        IpAddr::V6(_) => {
            vec![format!("\"[{address}]\""), format!("\"[{address}]:4711\""), format!("\"\\[{address}\\]\"")]
        }
    };
    let other = prop::sample::select(vec![
        "",
        "proto=https",
        "by=\"a,b;for=7.7.7.7\"",
        "host=\"\\\", for=7.7.7.7;x=\\\"\"",
        "secret=\"\\\\\"",
        "by=\"\"",
        "host=\"=\\\"\u{e9}\"",
    ]);
    let semicolon = prop::sample::select(vec![";", "; ", " ;"]);
    let joined = (other.clone(), prop::sample::select(node), other, semicolon)
        .prop_map(|(before, node, after, semicolon)| [before, &format!("For={node}"), after].join(semicolon));
    (joined, any::<bool>())
}

/// A client outside of 10.0.0.0/8, and the elements of one to three proxies within it. The
/// outermost proxy comes first.
fn chain() -> impl Strategy<Value = (IpAddr, Vec<(String, bool)>)> {
    let client = prop_oneof![
        (0..=255_u8).prop_map(|last| IpAddr::from([203, 0, 113, last])),
        any::<u16>().prop_map(|last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last])),
    ];
    (client, 0..3_u8).prop_flat_map(|(client, more)| {
        let hops = (0..more).map(|hop| IpAddr::from([10, 0, 0, hop]));
        (Just(client), std::iter::once(client).chain(hops).map(element).collect::<Vec<_>>())
    })
}

proptest! {
    #![proptest_config(cases(20_000))]

    /// The client sends any text, and each proxy appends its element. The client is the address
    /// that the outermost proxy saw.
    #[test]
    fn no_text_of_a_client_hides_an_element_of_a_proxy(mut lines in anything(), (address, elements) in chain()) {
        for (element, own_line) in &elements {
            match lines.last_mut() {
                Some(line) if !own_line => *line = format!("{line}, {element}"),
                _ => lines.push(element.clone()),
            }
        }
        let lines: Vec<_> = lines.iter().map(|line| ("forwarded", line.as_str())).collect();
        let trusted = forwarded(Trust::by(|address| matches!(address, IpAddr::V4(address) if address.octets()[0] == 10)));
        prop_assert_eq!(client(&trusted, "10.0.0.9", &lines), address.to_string(), "{:?}", lines);
        let hops = forwarded(Trust::hops(elements.len()));
        prop_assert_eq!(client(&hops, "10.0.0.9", &lines), address.to_string(), "{:?}", lines);
    }
}
