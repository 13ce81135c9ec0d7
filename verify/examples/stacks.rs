//! Keeps the stacks of a program's coroutines for the next ones: a library for `LD_PRELOAD`.
//!
//! loom runs each thread of a model as a coroutine, and maps the stacks of each execution anew.
//! With this library a model takes a third of the time. A stack that is used again still has its
//! old contents, and its guard page, which is protected once. `scripts/common.sh` compiles this
//! file.

#![expect(unsafe_code, reason = "it stands between a program and libc")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;

const MAP_STACK: c_int = 0x20000;
const PROT_NONE: c_int = 0;
const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *const c_void;
}

#[derive(Clone, Copy)]
struct Stack {
    start: usize,
    length: usize,
    is_free: bool,
    has_guard: bool,
}

const NONE: Stack = Stack { start: 0, length: 0, is_free: false, has_guard: false };

/// A model has five threads at most. A stack without a place here is unmapped as usual.
static STACKS: Mutex<[Stack; 16]> = Mutex::new([NONE; 16]);

/// # Safety
///
/// As that of `mmap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
    let mapped = || {
        // SAFETY: the next `mmap` is libc's, and has this signature.
        let mmap: Mmap = unsafe { std::mem::transmute(dlsym(RTLD_NEXT, c"mmap".as_ptr())) };
        // SAFETY: the caller's arguments.
        unsafe { mmap(at, length, protection, flags, file, offset) }
    };
    if flags & MAP_STACK == 0 {
        return mapped();
    }
    let mut stacks = STACKS.lock().unwrap();
    if let Some(stack) = stacks.iter_mut().find(|stack| stack.is_free && stack.length == length) {
        stack.is_free = false;
        return stack.start as *mut c_void;
    }
    let start = mapped();
    if let Some(place) = stacks.iter_mut().find(|stack| stack.length == 0) {
        *place = Stack { start: start as usize, length, is_free: false, has_guard: false };
    }
    start
}

/// # Safety
///
/// As that of `munmap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(start: *mut c_void, length: usize) -> c_int {
    type Munmap = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
    let mut stacks = STACKS.lock().unwrap();
    if let Some(stack) =
        stacks.iter_mut().find(|stack| stack.start == start as usize && stack.length == length)
    {
        stack.is_free = true;
        return 0;
    }
    // SAFETY: the next `munmap` is libc's, and has this signature.
    let munmap: Munmap = unsafe { std::mem::transmute(dlsym(RTLD_NEXT, c"munmap".as_ptr())) };
    // SAFETY: the caller's arguments.
    unsafe { munmap(start, length) }
}

/// # Safety
///
/// As that of `mprotect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(start: *mut c_void, length: usize, protection: c_int) -> c_int {
    type Mprotect = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;
    let mut stacks = STACKS.lock().unwrap();
    if let Some(stack) = stacks.iter_mut().find(|stack| stack.start == start as usize)
        && protection == PROT_NONE
        && std::mem::replace(&mut stack.has_guard, true)
    {
        return 0;
    }
    // SAFETY: the next `mprotect` is libc's, and has this signature.
    let mprotect: Mprotect = unsafe { std::mem::transmute(dlsym(RTLD_NEXT, c"mprotect".as_ptr())) };
    // SAFETY: the caller's arguments.
    unsafe { mprotect(start, length, protection) }
}
