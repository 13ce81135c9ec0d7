//! `tollgate-distributed` on real servers, beside other shared limits that do the same work.
//!
//! * [`Limit`](limit::Limit) is the trait of all [`contenders`], which have a file each.
//! * [`load`] runs tasks that ask four limiters, each with a connection of its own, as four
//!   processes would: as fast as they are answered, or at a rate.
//! * [`scenarios`] measure with it: stores, an outage, and decisions without a call.
//! * [`simulation`] runs fleets of the limiter itself in virtual time. Its load is that of the
//!   tests.
//! * [`report`] writes the numbers as CSV. `scripts/tables` prints a part of a file as a table, and
//!   `scripts/plot` draws.
//!
//! All contenders of a case are loaded in turn, in each of many rounds, in another order each time:
//! other load of the machine falls on all of them. Ratios are taken in each round.

pub mod contenders;
pub mod limit;
pub mod load;
pub mod processor_time;
pub mod report;
pub mod scenarios;
pub mod servers;
pub mod simulation;
