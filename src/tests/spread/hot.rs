//! A spread bucket: each call names the cell that it uses.

use std::time::Duration;

use super::between::part;
use crate::bucket::atomic::Bucket;
use crate::bucket::engine::{Done, Engine, Now};
use crate::bucket::lease::{LeaseCells, Spread};
use crate::bucket::live_terms::LiveTerms;
use crate::bucket::receipt::Receipt;
use crate::limiter::limit::TokenBucket;
use crate::rule::layout::{Layout, LayoutOptions};
use crate::rule::rate::Quota;
use crate::time::clock::{Clock, MockClock};
use crate::word::decision::{Denied, Granted};
use crate::word::verb::Take;

pub(super) const DEBT: u64 = 50;

pub(super) struct Hot {
    pub(super) bucket: Bucket,
    pub(super) engine: Engine,
    pub(super) cells: LeaseCells,
    pub(super) mock: MockClock,
    pub(super) quota: Quota,
    pub(super) clock: Clock,
}

impl Hot {
    pub(super) fn new(quota: Quota, cells: usize) -> Hot {
        Hot::on(Clock::mock(), quota, cells)
    }

    pub(super) fn on((clock, mock): (Clock, MockClock), quota: Quota, cells: usize) -> Hot {
        let room = LayoutOptions { max_debt: Some(DEBT), ..LayoutOptions::DEFAULT };
        let layout = Layout::of(quota.numbers(), room).expect("it is an ordinary quota");
        let engine = Engine::new(LiveTerms::new(quota, layout), clock.clone(), None);
        Hot { bucket: Bucket::new(), engine, cells: LeaseCells::new(cells), mock, quota, clock }
    }

    pub(super) fn spread(&self) -> Spread<'_> {
        Spread { bucket: &self.bucket, engine: &self.engine, cells: &self.cells }
    }

    pub(super) fn take(&self, own: usize, n: u64) -> Result<Granted, Denied> {
        self.spread().acquire(own, Now(&self.engine), n)
    }

    pub(super) fn run(&self, step: Take) -> Result<(Granted, Receipt), Denied> {
        let Done { outcome, reading, leased } = self.spread().run(Now(&self.engine), step);
        let mut receipt = Receipt::new(outcome, &reading, None);
        receipt.before += reading.refill.units(leased);
        step.decision((outcome, reading)).map(|granted| (granted, receipt))
    }

    pub(super) fn remaining(&self) -> u64 {
        let Done { outcome, reading, .. } = self.spread().look(Now(&self.engine), Take::Exactly(0));
        Granted::new(outcome, &reading).remaining()
    }

    /// Returns the word and the cells, as text.
    pub(super) fn words(&self) -> String {
        format!("{:?} {:?}", self.bucket, self.cells)
    }

    /// Returns a plain bucket on the same clock, with `parts` quarters of the burst.
    pub(super) fn plain(&self, parts: u64) -> TokenBucket {
        let burst = part(self.quota.capacity(), parts);
        let builder = TokenBucket::builder(self.quota.burst(burst)).clock(self.clock.clone());
        builder.max_debt(DEBT).unwrap().headroom(self.quota).unwrap().build()
    }

    pub(super) fn advance(&self, nanos: u64) {
        self.mock.advance(Duration::from_nanos(nanos));
    }

    /// Takes the tokens left in a cell, and one more. Returns the size of the lease that the cell
    /// has then.
    pub(super) fn refill(&self, own: usize) -> u64 {
        while self.cells.of(own).take(1).is_some() {}
        self.take(own, 1).expect("there are plenty");
        self.cells.of(own).lease_size()
    }

    /// Takes tokens at one instant until every cell has a lease.
    pub(super) fn heat(&self, cells: usize) {
        for own in 0..cells {
            while self.cells.of(own).lease_size() == 0 {
                self.take(own, 1).expect("there are plenty");
            }
        }
    }
}
