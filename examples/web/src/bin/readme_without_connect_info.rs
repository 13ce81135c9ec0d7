//! The program of README.md with a mistake: it does not note the clients' addresses.

include!(concat!(env!("OUT_DIR"), "/readme_without_connect_info.rs"));
