// promise: layer
//! The tokens of a reply: used once, or given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Quota;
use crate::limiter::all_of::TakeOne;
use crate::limiter::limit::TokenBucket;
use crate::limiter::reply::Reply;
use crate::time::clock::Clock;
use crate::word::decision::{Denied, Granted, Reason};

type Decide = fn(&Arc<Reply>, &Clock);

fn answered(result: Result<Granted, Denied>) -> (Arc<Reply>, Arc<AtomicU32>) {
    let back = Arc::new(AtomicU32::new(0));
    let count = back.clone();
    let reply = Reply::new(result, None, move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    (Arc::new(reply), back)
}

#[test]
fn granted_tokens_go_back_unless_a_take_has_used_them() {
    let (clock, _mock) = Clock::mock();
    let granted = TokenBucket::builder(Quota::per_hour(5)).clock(clock.clone()).build().try_acquire();
    let cases: [(&str, Decide, u32); 5] = [
        ("dropped", |_, _| {}, 1),
        ("looked at", |reply, clock| reply.on(clock).look(clock.now()).unwrap(), 1),
        (
            "taken",
            |reply, clock| {
                reply.on(clock).take().unwrap();
            },
            0,
        ),
        (
            "taken, and undone",
            |reply, clock| {
                let (_, receipt) = reply.on(clock).take().unwrap();
                reply.on(clock).undo(&receipt);
            },
            1,
        ),
        ("a place that is dropped", |reply, _| drop(reply.place().unwrap()), 1),
    ];
    for (case, decide, expected) in cases {
        let (reply, back) = answered(granted);
        decide(&reply, &clock);
        assert_eq!(back.load(Ordering::Relaxed), 0, "{case}");
        drop(reply);
        assert_eq!(back.load(Ordering::Relaxed), expected, "{case}");
    }
}

#[test]
fn a_refusal_has_no_tokens_to_give_back() {
    let (clock, _mock) = Clock::mock();
    let denied = Denied::from_parts(Reason::Unavailable, 1, 0, None);
    let (reply, back) = answered(Err(denied));
    assert_eq!(reply.on(&clock).look(clock.now()), Err(denied));
    assert_eq!(reply.take(), Err(denied));
    drop(reply);
    assert_eq!(back.load(Ordering::Relaxed), 0);
    assert_eq!(Reply::refused(denied).take(), Err(denied));
    assert!(denied.to_string().contains("the store of the limit is unavailable"), "{denied}");
}
