#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::rate_limits::decide_on;

fuzz_target!(|bytes: &[u8]| decide_on(bytes));
