//! `tollgate-proxy`: limits, forwarding, draining, options and the admin page.

mod admin;
mod draining;
mod forwarding;
mod limiting;
mod options;
mod routes;
