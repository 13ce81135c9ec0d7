//! The program of README.md.

include!(concat!(env!("OUT_DIR"), "/readme.rs"));
