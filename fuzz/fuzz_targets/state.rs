#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::state::restore;

fuzz_target!(|bytes: &[u8]| restore(bytes));
