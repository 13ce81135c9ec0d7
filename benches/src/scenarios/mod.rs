//! The scenarios, and how thorough a run is.

mod about;
mod build;
mod clients;
mod effort;
mod flood;
mod judge;
mod levels;
mod line;
mod newcomers;
mod processes;
mod proxy;
mod room;
mod single;
mod throughput;

pub use about::{about, versions};
pub use clients::{Client, clients, table};
pub use effort::{Effort, say};
pub use flood::{evicted, flooded, swept};
pub use judge::{who_limits, whose_windows_limit};
pub use levels::tokens_over_time;
pub use line::transfers;
pub use newcomers::newcomers;
pub use processes::{memory, print_memory, print_start, starts};
pub use proxy::proxies;
pub use room::rooms;
pub use single::one_by_one;
pub use throughput::{forms, keyed, mixed, one_bucket, strings, windows};
