//! The decision of a layer on a request: the list of its [stages](stages).

pub(crate) mod account;
pub(crate) mod after;
pub(crate) mod decision;
pub(crate) mod line;
pub(crate) mod order;
pub(crate) mod passed;
pub(crate) mod request;
pub(crate) mod settle;
pub(crate) mod stages;
pub(crate) mod state;
