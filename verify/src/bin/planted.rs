//! Faults on purpose, each of a kind that one of the sanitizers must report: the control of
//! `scripts/sanitize`.
//!
//! ```text
//! planted race | use-after-free | leak | uninitialised
//! ```

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::env;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::thread;

fn main() {
    match env::args().nth(1).as_deref() {
        Some("race") => race(),
        Some("use-after-free") => use_after_free(),
        Some("leak") => leak(),
        Some("uninitialised") => uninitialised(),
        other => panic!("{other:?} is no fault"),
    }
    println!("nobody stopped it");
}

struct Shared(UnsafeCell<u64>);

// SAFETY: none, which is the purpose.
unsafe impl Sync for Shared {}

/// Two threads add to a plain word.
fn race() {
    let shared = Shared(UnsafeCell::new(0));
    let shared = &shared;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                for _ in 0..10_000 {
                    // SAFETY: none; both threads write.
                    unsafe { *black_box(shared.0.get()) += 1 };
                }
            });
        }
    });
}

/// Reads freed memory.
fn use_after_free() {
    let freed = Box::into_raw(black_box(Box::new(7_u64)));
    // SAFETY: none; the memory is read after it was freed.
    let read = unsafe {
        drop(Box::from_raw(freed));
        black_box(freed).read_volatile()
    };
    black_box(read);
}

/// Forgets memory without a pointer to it.
fn leak() {
    for size in 1..100 {
        std::mem::forget(black_box(vec![1_u8; 100 * size]));
    }
}

/// Decides on memory that was never written.
fn uninitialised() {
    let never_written = black_box(Box::new(MaybeUninit::<[u64; 64]>::uninit()));
    // SAFETY: none; the memory was never written.
    let word = unsafe { never_written.as_ptr().cast::<u64>().add(7).read_volatile() };
    if black_box(word) % 2 == 1 {
        println!("odd");
    }
}
