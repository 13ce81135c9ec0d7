//! The layer: one limit and a request's part at it, the decision of all limits, and the service.

pub(crate) mod decide;
pub(crate) mod limit;
pub(crate) mod service;
