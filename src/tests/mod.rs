//! Tests of private items: the pure step, the compiled terms, and the models.

#[path = "../../tests/reference/mod.rs"]
mod reference;

#[cfg(loom)]
mod loom;
#[cfg(not(loom))]
mod state;
#[cfg(not(loom))]
mod terms;
