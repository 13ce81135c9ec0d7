#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::store::Case;

fuzz_target!(|case: Case| case.run());
