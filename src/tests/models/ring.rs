// promise: one-bucket, bounded
//! The ring of tickets, beside a stand-in for the map: each entry has a ticket.

use std::sync::Arc;

use super::checker::thread;
use super::explore;
use crate::keyed::id::EntryId;
use crate::keyed::ring::{ClockRing, Probe};
use crate::sync::{AtomicU64, Ordering};

/// Hash of the first key. The other key has the next one.
const FIRST: u32 = 10;

/// A thread that claims the ticket sees the map as the last owner of the ticket left it. Otherwise
/// there would be two entries, which is over the bound.
#[test]
fn a_ticket_has_one_entry() {
    explore("a ring of one, two keys", || {
        let ring = Arc::new(ClockRing::new(1));
        let entries = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let threads = [0, 1].map(|key| {
            let (ring, entries) = (Arc::clone(&ring), Arc::clone(&entries));
            thread::spawn(move || {
                let entry = |hash: u32| &entries[(hash - FIRST) as usize];
                let look = |tag: EntryId| match entry(tag.hash).load(Ordering::Acquire) {
                    0 => Probe::Gone,
                    _ => Probe::Stays { due: 0 },
                };
                if let Ok(mut ticket) = ring.admit(0, look) {
                    let tag = ticket.admits(FIRST + key);
                    entry(tag.hash).store(1, Ordering::Release);
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(entries.iter().filter(|entry| entry.load(Ordering::Acquire) == 1).count(), 1);
    });
}
