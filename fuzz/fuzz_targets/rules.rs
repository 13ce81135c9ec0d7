#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::rate_limits::read_rules;

fuzz_target!(|bytes: &[u8]| read_rules(bytes));
