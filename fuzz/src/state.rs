//! The bytes of a saved state: any bytes are refused, or a state that grants no more than a new
//! limiter.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use tollgate::{Clock, Limit, Quota, RateLimiter, Rule, Window};

/// The keys of the seed.
const KEYS: [u64; 3] = [1, 2, 3];

/// Returns the sum of the crate, so that changed bytes get past it.
fn sum_of(bytes: &[u8]) -> u64 {
    let mix = |hash: u64| {
        let product = u128::from(hash) * 0x9e37_79b9_7f4a_7c15;
        product as u64 ^ (product >> 64) as u64
    };
    let start = bytes.len() as u64 ^ 0x7461_7465_6c6c_6f74;
    let (words, rest) = bytes.as_chunks();
    let sum = words.iter().fold(start, |sum, word| mix(sum ^ u64::from_le_bytes(*word)).wrapping_add(start));
    rest.iter().fold(sum, |sum, byte| mix(sum ^ u64::from(*byte)))
}

/// Changes a state by the rules of `bytes`: each 10 of them are a place and a word.
fn changed(mut state: Vec<u8>, bytes: &[u8]) -> Vec<u8> {
    for change in bytes.chunks_exact(10) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]]));
        let (words, _) = state.as_chunks_mut::<8>();
        let len = words.len();
        words[at % len] = change[2..].try_into().expect("a chunk has 10 bytes");
    }
    if let [.., cut] = bytes
        && bytes.len() % 10 == 1
    {
        state.truncate(state.len().saturating_sub(usize::from(*cut)).max(8));
    }
    let end = state.len() - 8;
    let sum = sum_of(&state[..end]);
    state[end..].copy_from_slice(&sum.to_le_bytes());
    state
}

fn check<R: Rule>(rule: R, table: bool, burst: u64, bytes: &[u8]) {
    let (clock, mock) = Clock::mock();
    mock.advance(Duration::from_secs(1_000_000));
    let build = || {
        let builder = RateLimiter::<u64, R>::builder(rule).clock(clock.clone());
        let builder = builder.hasher(BuildHasherDefault::<DefaultHasher>::default());
        let builder = builder.max_keys(16);
        if table { builder.inline().expect("a small table") } else { builder }.build()
    };
    let (seed, restored) = (build(), build());
    for key in KEYS {
        let _ = seed.try_acquire_n(&key, key);
    }
    let accepted =
        [bytes.to_vec(), changed(seed.save(), bytes)].map(|state| restored.restore(&state).is_ok());
    if accepted == [false; 2] {
        assert!(restored.is_empty());
    }
    for key in 0..6 {
        let granted = (0..=burst).filter(|_| restored.try_acquire(&key).is_ok()).count() as u64;
        assert!(granted <= burst, "{rule}: key {key} was granted {granted}");
        assert!(restored.peek(&key).remaining() <= burst);
    }
    assert!(restored.shared().acquire_up_to().tokens() <= burst);

    let build = || Limit::builder(rule).clock(clock.clone()).build();
    let (seed, restored) = (build(), build());
    let _ = seed.try_acquire();
    let _ = restored.restore(&changed(seed.save(), bytes));
    assert!((0..=burst).filter(|_| restored.try_acquire().is_ok()).count() as u64 <= burst);
}

/// Restores any bytes, and changed states, in limiters of each kind of rule.
pub fn restore(bytes: &[u8]) {
    let [kind, bytes @ ..] = bytes else { return };
    let table = kind & 1 == 1;
    let window = Window::per_hour(9);
    match kind >> 1 & 7 {
        0 => check(window, table, 9, bytes),
        1 => check(window.sliding(), table, 9, bytes),
        2 => check(window.weighted(), table, 9, bytes),
        3 => check(window.utc(), table, 9, bytes),
        4 => check(Window::per_month(9).utc(), table, 9, bytes),
        _ => check(Quota::per_hour(60).burst(9), table, 9, bytes),
    }
}
