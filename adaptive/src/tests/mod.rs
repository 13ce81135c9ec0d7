//! Tests of private items: the word, the controllers, and the models.

#[cfg(not(any(loom, shuttle)))]
mod control;
#[cfg(not(any(loom, shuttle)))]
mod inflight;
#[cfg(any(loom, shuttle))]
mod models;
