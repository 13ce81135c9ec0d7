//! Every contender limits: its grants on the real clock are those of the law, or it is known to
//! break the law.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tollgate_benches::{Contender, contenders, law};

const SPAN: Duration = Duration::from_millis(200);

#[test]
fn one_bucket() {
    check(contenders::one_bucket(), &());
}

#[test]
fn keys() {
    check(contenders::keyed(), &7_u64);
}

#[test]
fn keys_at_a_cap() {
    check(contenders::at_their_cap(), &7);
}

#[test]
fn strings() {
    check(contenders::strings(), &"key".to_owned());
}

#[test]
fn forms() {
    check(contenders::forms(), &7_u64);
}

#[test]
fn windows() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for contender in contenders::one_window() {
        let law = law::of_windows(&contender, 2);
        assert!(law.holds(), "{law:?}");
    }
    let law = law::of_windows(&Contender::new::<contenders::Nothing>("nothing"), 1);
    assert!(!law.is_kept(), "{law:?}");
}

#[test]
fn a_contender_that_grants_all_is_found() {
    let law = law::measure(&Contender::new::<contenders::Nothing>("nothing"), &(), 2, SPAN);
    assert!(!law.is_kept(), "{law:?}");
}

/// One test at a time: two threads of each keep two processors busy.
static TURN: Mutex<()> = Mutex::new(());

fn check<K: Clone + Sync>(contenders: Vec<Contender<K>>, key: &K) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for contender in contenders {
        for threads in [1, 2] {
            let law = law::with_patience(&contender, key, threads, SPAN);
            assert_eq!(
                law.holds(),
                contender.breaks.is_none(),
                "known is {:?}, seen was {law:?}",
                contender.breaks
            );
        }
    }
}
