//! `tollgate replay`: the refusals that limits would have made on an access log.

pub(crate) mod command;
mod lines;
mod logs;
mod order;
mod report;
mod run;
mod tally;
mod timeline;

#[cfg(test)]
mod tests;
