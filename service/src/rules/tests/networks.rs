//! Values that are addresses, counted by their networks.

use super::load_files;
use crate::rules::explain::explain;
use crate::rules::shared_entry::SharedEntry;

/// Returns the value in the key of a count, under a rule with these fields.
fn counted(fields: &str, value: &str) -> String {
    let text = format!("domain: d\ndescriptors: [{{key: k, {fields}rate_limit: {{unlimited: true}}}}]\n");
    let loaded = load_files(&[("a.yaml", &text)]);
    assert!(loaded.errors.is_empty());
    let limit = loaded.rules.limits().next().unwrap();
    SharedEntry::value(limit.shared.first(), value).into_owned()
}

#[test]
fn an_address_is_its_network_and_another_value_is_its_text() {
    let both = "ipv4_prefix: 24, ipv6_prefix: 64, ";
    for (fields, value, wanted) in [
        (both, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        (both, "2001:DB8:0001:2::", "2001:db8:1:2::/64"),
        (both, "2001:db8:1:2::/64", "2001:db8:1:2::/64"),
        (both, "2001:db8:1:2:3::/80", "2001:db8:1:2::/64"),
        (both, "2001:db8:1:2::/48", "2001:db8:1::/48"),
        (both, "192.0.2.77", "192.0.2.0/24"),
        (both, "192.0.2.77/32", "192.0.2.0/24"),
        (both, "::ffff:192.0.2.77", "192.0.2.0/24"),
        (both, "::FFFF:c000:24d", "192.0.2.0/24"),
        (both, "::ffff:192.0.2.0/120", "192.0.2.0/24"),
        (both, "::ffff:192.0.2.0/100", "192.0.0.0/4"),
        (both, "::ffff:192.0.2.0/95", "::/64"),
        (both, "10.0.0.0/8", "10.0.0.0/8"),
        (both, "10.0.0.1/8", "10.0.0.0/8"),
        (both, "0.0.0.0/0", "0.0.0.0/0"),
        // The part of a family without a prefix is the whole address.
        ("ipv6_prefix: 56, ", "192.0.2.77", "192.0.2.77"),
        ("ipv6_prefix: 56, ", "192.0.2.77/32", "192.0.2.77"),
        ("ipv6_prefix: 56, ", "::ffff:192.0.2.77", "192.0.2.77"),
        ("ipv6_prefix: 56, ", "2001:db8:1:2ff::", "2001:db8:1:200::/56"),
        ("ipv4_prefix: 0, ", "192.0.2.77", "0.0.0.0/0"),
        ("ipv4_prefix: 0, ", "2001:DB8::01", "2001:db8::1"),
        ("ipv6_prefix: 128, ", "2001:DB8::01/128", "2001:db8::1"),
        ("ipv6_prefix: 0, ", "2001:db8::1", "::/0"),
        // None is an address.
        (both, "", ""),
        (both, "ann", "ann"),
        (both, "192.0.2.077", "192.0.2.077"),
        (both, "192.0.2.1/33", "192.0.2.1/33"),
        (both, "192.0.2.1/", "192.0.2.1/"),
        (both, "2001:db8::1/129", "2001:db8::1/129"),
        (both, "[2001:db8::1]:443", "[2001:db8::1]:443"),
        (both, "fe80::1%eth0", "fe80::1%eth0"),
        (both, " 192.0.2.1", " 192.0.2.1"),
        // Without the option.
        ("", "2001:DB8::01", "2001:DB8::01"),
        ("value: '*', ", "192.0.2.1", "192.0.2.1"),
    ] {
        assert_eq!(counted(fields, value), wanted, "{fields}{value}");
        assert_eq!(counted(fields, wanted), wanted, "{fields}{value}");
    }
}

/// The rule is found by the text, and each level has its own option.
#[test]
fn the_way_tells_the_network() {
    let text = "domain: d\ndescriptors:\n- {key: k, value: '10.*', ipv4_prefix: 16, descriptors: [\
        {key: l, rate_limit: {unit: day, requests_per_unit: 5}}]}\n";
    let loaded = load_files(&[("a.yaml", text)]);
    let entries = [("k", "10.1.2.3"), ("l", "10.1.2.3")];
    let entries = vec![entries.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec()];
    let told = explain(&loaded.rules, "d", &entries, &[]);
    assert!(told.contains("k: wildcard \"10.*\""), "{told}");
    assert!(told.contains("counted by (k=10.1.0.0/16),(l=10.1.2.3),"), "{told}");
    let notes: Vec<_> = loaded.notes.iter().map(|note| note.to_string()).collect();
    assert_eq!(notes, ["a.yaml:3:40: 'ipv4_prefix' is of tollgate: envoyproxy/ratelimit refuses the file"]);
}
