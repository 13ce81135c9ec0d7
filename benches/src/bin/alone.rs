//! One contender in a process of its own, for `performance`, with an allocator that counts.

use std::env;

use tollgate_benches::scenarios;

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["start", name] => scenarios::print_start(name),
        ["memory", name, kind, keys] => {
            scenarios::print_memory(name, kind, keys.parse().expect("a number of keys"), count);
        }
        _ => panic!("start NAME, or memory NAME KIND KEYS"),
    }
}

/// Returns the bytes that were asked for and not given back, and the number of allocations.
fn count(act: &mut dyn FnMut()) -> (u64, u64) {
    let info = allocation_counter::measure(act);
    (u64::try_from(info.bytes_current).unwrap_or(0), info.count_total)
}
