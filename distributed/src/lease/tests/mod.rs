//! Leases against sums of their grants, and their clock under loom.

#[cfg(not(loom))]
mod leases;
#[cfg(loom)]
mod models;
