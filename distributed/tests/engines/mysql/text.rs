//! The text of a batch, and answers with any text.

use proptest::prelude::*;
use tollgate::Quota;
use tollgate_distributed::mysql_fuzzing::{read_answers, write_calls};
use tollgate_distributed::{Amount, Bucket, Op, Spec, StoreAnswer, StoreErrorKind};

use crate::engine::exactly;
use crate::suite::strategies::{specs, wishes};

const NOW_US: u64 = 1_800_000_000_000_000;

/// Reads the answer of one call.
fn read(op: &Op<'_>, text: &str) -> Option<StoreAnswer> {
    let mut ops = [*op];
    match read_answers(text, &mut ops) {
        Ok(()) => Some(ops[0].answer),
        Err(error) => {
            // A row that is no bucket is an operator's task. Any other nonsense may hide a grant.
            let row = error.to_string().contains("is no bucket");
            let kind = if row { StoreErrorKind::Permanent } else { StoreErrorKind::Unknown };
            assert_eq!(error.kind(), kind, "{error}");
            None
        }
    }
}

#[test]
fn an_answer_that_its_call_cannot_have_is_an_error() {
    // 1,000 credits a token, 10 tokens, and a debt of 4.
    let spec = Spec::new(Quota::per_second(1_000).burst(10), 4).unwrap();
    let lease = Op::new(b"key", spec, Amount { min: 1, max: 8, spent: 0, of_us: 0 });
    let empty = format!("0,-4000,{NOW_US},1000,{NOW_US};");
    assert_eq!(
        read(&lease, &empty),
        Some(StoreAnswer { granted: 0, credits: -4_000, now_us: NOW_US, ..StoreAnswer::default() })
    );
    let granted = format!("7,3000,{NOW_US},1000,{NOW_US};");
    assert_eq!(
        read(&lease, &granted),
        Some(StoreAnswer { granted: 7, credits: 3_000, now_us: NOW_US, ..StoreAnswer::default() })
    );
    let wrong = [
        // More tokens than asked for, a return that the call did not make, no row, and an
        // impossible level.
        format!("9,1000,{NOW_US},1000,{NOW_US};"),
        format!("-1,1000,{NOW_US},1000,{NOW_US};"),
        format!("7,,,,{NOW_US};"),
        format!("7,9223372036854775807,{NOW_US},1000,{NOW_US};"),
        // No grant, although the bucket has the tokens.
        format!("0,5000,{NOW_US},1000,{NOW_US};"),
        format!("0,,,,{NOW_US};"),
        // Rows that are no bucket, and a time before 1970.
        format!("0,0,{NOW_US},0,{NOW_US};"),
        format!("0,0,-1,1000,{NOW_US};"),
        format!("0,-4000,{NOW_US},1000,-1;"),
        // Other numbers of answers and of fields, and no numbers.
        String::new(),
        ";".into(),
        empty.repeat(2),
        empty.trim_end_matches(';').into(),
        format!("0,-4000,{NOW_US},1000,{NOW_US},0;"),
        format!("0,,{NOW_US},1000,{NOW_US};"),
        format!("0x0,-4000,{NOW_US},1000,{NOW_US};"),
        format!("0,-99999999999999999999,{NOW_US},1000,{NOW_US};"),
    ];
    for text in wrong {
        assert_eq!(read(&lease, &text), None, "{text}");
    }
    let back = Op::new(b"key", spec, Amount { min: 0, max: -3, spent: 0, of_us: 0 });
    assert_eq!(read(&back, &format!("-3,7000,{NOW_US},1000,{NOW_US};")).unwrap().granted, -3);
    assert_eq!(read(&back, &format!("-2,7000,{NOW_US},1000,{NOW_US};")), None);
}

#[test]
fn a_row_that_is_no_bucket_beside_a_grant_has_an_unknown_effect() {
    let spec = Spec::new(Quota::per_second(1_000).burst(10), 0).unwrap();
    let wrong = format!("0,0,{NOW_US},0,{NOW_US};");
    let beside = |other: &str| {
        let mut ops = [b"one", b"two"].map(|key| Op::new(key, spec, exactly(1)));
        read_answers(&format!("{other}{wrong}"), &mut ops).unwrap_err().kind()
    };
    assert_eq!(beside(&format!("1,9000,{NOW_US},1000,{NOW_US};")), StoreErrorKind::Unknown);
    assert_eq!(beside(&format!("0,0,{NOW_US},1000,{NOW_US};")), StoreErrorKind::Permanent);
}

#[test]
fn keys_are_literals_and_calls_are_in_their_order() {
    let spec = Spec::new(Quota::per_second(1), 0).unwrap();
    let ops = [b"b'); DROP TABLE x; --".as_slice(), b"a\0", b""].map(|key| Op::new(key, spec, exactly(1)));
    let sql = write_calls(&ops);
    let calls: Vec<&str> = sql.split("CALL tollgate_acquire_1(").skip(1).collect();
    assert!(calls[0].starts_with("x'',") && calls[1].starts_with("x'6100',"), "{sql}");
    assert!(calls[2].starts_with("x'6227293b2044524f50205441424c4520783b202d2d',"), "{sql}");
    assert!(sql.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
}

proptest! {
    /// No text panics, and the answer to a call that changes nothing is that of the law.
    #[test]
    fn any_text_is_an_answer_or_an_error(
        spec in specs(), wish in wishes(), numbers in prop::array::uniform5(prop_oneof![
            any::<i64>(), -9_i64..9, Just(0), Just(NOW_US as i64), -1_000_000_000_000..1_000_000_000_000_i64,
        ]), text in "[0-9,;-]{0,40}",
    ) {
        let op = Op::new(b"key", spec, wish.amount(&spec));
        let _ = read(&op, &text);
        let [granted, credits, last_us, unit, now_us] = numbers;
        let Some(answer) = read(&op, &format!("{granted},{credits},{last_us},{unit},{now_us};")) else { return Ok(()) };
        prop_assert_eq!(answer.now_us, now_us as u64);
        if granted == 0 && op.amount.spent == 0 {
            let stored = Bucket { credits, last_us: last_us as u64, per_token: unit as u64 };
            prop_assert_eq!((None, answer), Bucket::step(Some(stored), &spec, answer.now_us, op.amount));
        } else {
            prop_assert!(answer.granted == op.amount.max || (0..=op.amount.max).contains(&answer.granted));
        }
    }
}
