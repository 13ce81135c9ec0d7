//! Quotas, the clock and the answers of the reference.

use std::cell::RefCell;
use std::panic::{UnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use proptest::prelude::*;
use tollgate::Quota;
use tollgate_testing::quota_numbers;
use tollgate_testing::reference::Unit;
pub(crate) use tollgate_testing::{
    DAY, HOUR, Plain, QUOTAS, Random, SECOND, Twin, cases, ns, quota_text, size,
};

pub(crate) use crate::reference::answers::answer;
pub(crate) use crate::reference::time::Time;
pub(crate) use tollgate_testing::reference::steps::nanos;

pub(crate) fn unit_of(quota: Quota) -> Unit {
    Unit::choose(quota.tokens(), nanos(quota.period()), quota.capacity()).expect("a quota has a unit")
}

/// Returns the nanoseconds of `ticks` ticks, rounded up.
pub(crate) fn ticks(quota: Quota, ticks: u64) -> u64 {
    let unit = unit_of(quota);
    let span = (u128::from(nanos(quota.period())) * u128::from(ticks)) << unit.scale;
    u64::try_from(span.div_ceil(u128::from(quota.tokens()) << unit.fraction)).expect("a few ticks are short")
}

/// Returns the time to fill an empty bucket, rounded up.
pub(crate) fn fill(quota: Quota) -> u64 {
    let span = u128::from(nanos(quota.period())) * u128::from(quota.capacity());
    u64::try_from(span.div_ceil(u128::from(quota.tokens()))).expect("a bucket fills within 2^62 ns")
}

/// Returns any quota that can be held, over all magnitudes.
pub(crate) fn quotas() -> impl Strategy<Value = Quota> {
    quota_numbers().prop_filter_map("cannot be held", |numbers| quota_text(numbers).parse().ok())
}

/// Returns the text of the panic that `build` ends in.
pub(crate) fn panic_of<T>(build: impl FnOnce() -> T + UnwindSafe) -> String {
    let panic = catch_unwind(build).err().expect("it panics");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().expect("a panic has a text")).to_owned(),
    }
}

/// Returns the file that a panic names as its place.
pub(crate) fn file_of_panic(call: impl FnOnce() + UnwindSafe) -> String {
    thread_local! {
        static FILE: RefCell<String> = const { RefCell::new(String::new()) };
    }
    static NOTES: Once = Once::new();
    NOTES.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            let file = panic.location().map(|place| place.file().to_owned()).unwrap_or_default();
            FILE.with(|noted| noted.replace(file));
            before(panic);
        }));
    });
    catch_unwind(call).expect_err("it panics");
    FILE.with(RefCell::take)
}
