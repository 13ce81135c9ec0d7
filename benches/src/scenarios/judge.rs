//! Whether the contenders limit: those that do not are not timed.

use std::time::Duration;

use super::effort::say;
use crate::results::Law;
use crate::{Contender, law};

/// Measures the grants of each contender, with 1 thread and with 2, and removes the contenders that
/// break the law: they are not timed.
pub fn who_limits<K: Clone + Sync>(kind: &str, contenders: &mut Vec<Contender<K>>, key: &K) -> Vec<Law> {
    judge(kind, contenders, |contender, threads| {
        law::with_patience(contender, key, threads, Duration::from_millis(200))
    })
}

/// Like [`who_limits`], for windows.
pub fn whose_windows_limit(contenders: &mut Vec<Contender<()>>) -> Vec<Law> {
    judge("window", contenders, law::of_windows)
}

fn judge<K>(
    kind: &str,
    contenders: &mut Vec<Contender<K>>,
    law: impl Fn(&Contender<K>, usize) -> Law,
) -> Vec<Law> {
    let mut laws = Vec::new();
    contenders.retain(|contender| {
        say(format_args!("{}: does it limit?", contender.name));
        let measured = [1, 2].map(|threads| Law { kind: kind.to_owned(), ..law(contender, threads) });
        let kept = measured.iter().all(Law::holds);
        laws.extend(measured);
        kept
    });
    laws
}
