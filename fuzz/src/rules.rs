//! The files of the server's rules, without its tests.
#![allow(dead_code, reason = "the server uses the rest")]

#[path = "../../server/src/rules/doubts.rs"]
mod doubts;
#[path = "../../server/src/rules/fault.rs"]
pub(crate) mod fault;
#[path = "../../server/src/rules/fields.rs"]
mod fields;
#[path = "../../server/src/rules/load.rs"]
pub(crate) mod load;
#[path = "../../server/src/rules/metadata.rs"]
mod metadata;
#[path = "../../server/src/rules/pattern.rs"]
mod pattern;
#[path = "../../server/src/rules/tree.rs"]
pub(crate) mod tree;
#[path = "../../server/src/rules/warnings.rs"]
mod warnings;
#[path = "../../server/src/rules/yaml.rs"]
mod yaml;
