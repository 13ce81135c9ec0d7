//! The networks of clients over a store.

use super::{Fleet, Replica, settings};
use crate::rules::shared_entry::SharedEntry;
use crate::rules::tree::Unit;
use crate::serve::decide::DecisionOptions;
use crate::serve::in_store::decide_shared;
use crate::serve::messages::{DescriptorEntry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest};
use crate::serve::shared::store_key;

impl Fleet {
    /// Asks a replica for a hit of an address, and returns the hits that are left.
    async fn left(&self, replica: usize, address: &str, unit: Option<Unit>) -> u32 {
        let entry = DescriptorEntry { key: "network".to_owned(), value: address.to_owned() };
        let limit = unit.map(|unit| RateLimitOverride { requests_per_unit: 100, unit: unit.wire() });
        let descriptor =
            RateLimitDescriptor { entries: vec![entry], limit, ..RateLimitDescriptor::default() };
        let request =
            RateLimitRequest { domain: "d".to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
        let Replica { counts, rules, shared } = &self.replicas[replica];
        let options = DecisionOptions::default();
        let decided = decide_shared(rules, counts, shared, &options, &request, counts.now()).await;
        decided.unwrap().statuses[0].limit_remaining
    }
}

#[tokio::test(start_paused = true)]
async fn a_network_has_one_count_in_the_store() {
    let fleet = Fleet::new(2, &settings());
    assert_eq!(fleet.left(0, "2001:db8::1", None).await, 99);
    assert_eq!(fleet.left(1, "2001:DB8::2", None).await, 98);
    assert_eq!(fleet.left(1, "2001:db8::/64", Some(Unit::Day)).await, 97);
    assert_eq!(fleet.left(0, "2001:db8:0:1::", None).await, 99);
    // An override in another unit has a count of its own, by the network as well.
    assert_eq!(fleet.left(0, "2001:db8::1", Some(Unit::Hour)).await, 99);
    assert_eq!(fleet.left(1, "2001:db8::2", Some(Unit::Hour)).await, 98);
}

/// A replica without the rule, and a restarted one, have the same text of the key.
#[test]
fn the_key_has_the_text_of_the_network() {
    let fleet_rules = "domain: d\ndescriptors: [{key: a, ipv6_prefix: 64, rate_limit: {unit: day}}]\n";
    let files = [("d.yaml".to_owned(), fleet_rules.to_owned())];
    let rules = super::load(&files, super::LoadOptions::default()).unwrap();
    let shared: &[Option<SharedEntry>] = &rules.limits().next().unwrap().shared;
    let key = |value: &str, shared| {
        let entries = [DescriptorEntry { key: "a".to_owned(), value: value.to_owned() }];
        store_key::of(String::new(), "d", &entries, shared)
    };
    assert_eq!(key("2001:DB8::1", shared), key("2001:db8::/64", &[]));
    assert_ne!(key("2001:DB8::1", &[]), key("2001:db8::/64", &[]));
}
