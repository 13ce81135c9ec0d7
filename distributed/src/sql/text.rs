//! The answers of a batch as one text.

use super::count_row::{CountRow, unhex};
use super::reply::{self, BucketReply, CountReply, Reply};
use super::row::Row;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::op::Op;

/// Writes the answers of calls, whose texts are in the order of these indices.
///
/// # Errors
///
/// An error of an unknown effect if the text is no answer to the calls; see
/// [`reply::answer`].
pub(crate) fn answer(ops: &mut [Op<'_>], order: &[usize], text: &str) -> Result<(), StoreError> {
    let replies = text.strip_suffix(';').map(|text| text.split(';').map(read).collect::<Option<Vec<_>>>());
    let replies = match replies.flatten() {
        Some(replies) if replies.len() == order.len() => replies,
        _ => {
            let message = format!("the reply is no answer: {text:?}");
            return Err(StoreError::new(StoreErrorKind::Unknown, message));
        }
    };
    let mut placed = vec![None; ops.len()];
    for (&place, reply) in order.iter().zip(replies) {
        placed[place] = Some(reply);
    }
    reply::answer(ops.iter_mut().zip(placed))
}

/// Reads the answer of one call: `granted,credits,last_us,unit,now_us` of a bucket, and
/// `granted,changed,start_us,used,end_us,now_us` of a count.
fn read(text: &str) -> Option<Reply> {
    let parts: Vec<&str> = text.split(',').collect();
    let number = |part: &str| part.parse::<i64>().ok();
    match parts[..] {
        [granted, credits, last_us, unit, now_us] => {
            let row = match [credits, last_us, unit] {
                ["", "", ""] => None,
                [credits, last_us, unit] => {
                    Some(Row { credits: number(credits)?, last_us: number(last_us)?, unit: number(unit)? })
                }
            };
            Some(Reply::Bucket(BucketReply { granted: number(granted)?, row, now_us: number(now_us)? }))
        }
        [granted, changed, start_us, used, end_us, now_us] => {
            let row = match [start_us, used, end_us] {
                ["", "", ""] => None,
                [start_us, used, end_us] => Some(CountRow {
                    start_us: number(start_us)?,
                    used: unhex(used)?,
                    end_us: number(end_us)?,
                }),
            };
            let (granted, changed) = (number(granted)?, number(changed)? != 0);
            Some(Reply::Count(CountReply { granted, changed, row, now_us: number(now_us)? }))
        }
        _ => None,
    }
}
