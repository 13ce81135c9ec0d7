#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::quota_text::Case;

fuzz_target!(|case: Case| case.run());
