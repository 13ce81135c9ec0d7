//! Calls of several callers, decided in one transaction.
//!
//! A first pass reads, and answers the calls that change nothing, without the write lock. A second
//! pass decides the others again, in one transaction under the lock. A permanent fault may be of
//! one call, and undoes the transaction: each call has one of its own then.

use std::mem;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::fault::{Phase, fault};
use super::table::{Unread, now_us, read, read_count, write, write_count};
use crate::law::amount::StoreAnswer;
use crate::law::any_law::Law;
use crate::law::bucket::Bucket;
use crate::law::count::Count;
use crate::law::spec::Spec;
use crate::sql::fault::Fault;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::op::{Op, OwnedOp};

/// A call of [`acquire`](crate::Store::acquire), and the channel to its caller.
pub(super) struct Acquire {
    ops: Vec<OwnedOp>,
    reply: oneshot::Sender<Result<Vec<StoreAnswer>, StoreError>>,
}

/// A value that a call changed.
enum Changed {
    Bucket(Spec, Bucket),
    Count(Count),
}

fn step(op: &OwnedOp, connection: &Connection) -> Result<(Option<Changed>, StoreAnswer), Unread> {
    match &op.law {
        Law::Bucket(spec) => {
            let stored = read(connection, &op.key)?;
            let (bucket, answer) = Bucket::step(stored, spec, now_us(), op.amount);
            Ok((bucket.map(|bucket| Changed::Bucket(*spec, bucket)), answer))
        }
        Law::Count(spec) => {
            let stored = read_count(connection, &op.key)?;
            let (count, answer) = Count::step(stored.as_ref(), spec, now_us(), op.amount)
                .map_err(|error| Unread::Row(StoreError::new(StoreErrorKind::Permanent, error)))?;
            Ok((count.map(Changed::Count), answer))
        }
    }
}

impl Changed {
    fn write(&self, op: &OwnedOp, connection: &Connection) -> Result<(), rusqlite::Error> {
        match self {
            Changed::Bucket(spec, bucket) => write(connection, &op.key, spec, bucket),
            Changed::Count(count) => write_count(connection, &op.key, count),
        }
    }
}

/// A call and its answers so far.
struct Work {
    call: Acquire,
    answers: Vec<StoreAnswer>,
    /// The ops that would change their values.
    writers: Vec<usize>,
    failed: Option<StoreError>,
}

impl Acquire {
    pub(super) fn new(
        ops: &[Op<'_>],
        reply: oneshot::Sender<Result<Vec<StoreAnswer>, StoreError>>,
    ) -> Acquire {
        Acquire { ops: ops.iter().map(OwnedOp::new).collect(), reply }
    }
}

impl Work {
    fn new(call: Acquire) -> Work {
        let answers = vec![StoreAnswer::default(); call.ops.len()];
        Work { call, answers, writers: Vec::new(), failed: None }
    }

    /// Answers the ops that change nothing, and notes the others. A row that is none fails
    /// this call only.
    fn look(&mut self, connection: &Connection) -> Result<(), Fault> {
        for (index, op) in self.call.ops.iter().enumerate() {
            match step(op, connection) {
                Ok((None, answer)) => self.answers[index] = answer,
                Ok((Some(_), _)) => self.writers.push(index),
                Err(Unread::Row(error)) => {
                    self.failed = Some(error);
                    self.writers.clear();
                    return Ok(());
                }
                Err(Unread::File(error)) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Decides the noted ops, and writes their values.
    fn write(&mut self, connection: &Connection) -> Result<(), Fault> {
        for &index in &self.writers {
            let op = &self.call.ops[index];
            let (changed, answer) = step(op, connection)?;
            if let Some(changed) = changed {
                changed.write(op, connection)?;
            }
            self.answers[index] = answer;
        }
        Ok(())
    }

    /// Sends the answers, or the error, if the caller still waits.
    fn send(self, fault: Option<&Fault>) {
        let error = self.failed.or_else(|| fault.cloned().map(StoreError::from));
        let _ = self.call.reply.send(error.map_or(Ok(self.answers), Err));
    }
}

/// Decides calls, and answers them. A call whose caller no longer waits is not decided.
pub(super) fn decide(connection: &Connection, calls: &mut Vec<Acquire>) {
    let mut works = Vec::new();
    works.extend(mem::take(calls).into_iter().filter(|call| !call.reply.is_closed()).map(Work::new));
    if works.is_empty() {
        return;
    }
    let looked =
        transaction(connection, "BEGIN", || works.iter_mut().try_for_each(|work| work.look(connection)));
    if let Err(fault) = looked {
        works.into_iter().for_each(|work| work.send(Some(&fault)));
        return;
    }
    let (mut writers, done): (Vec<_>, Vec<_>) = works.into_iter().partition(|work| !work.writers.is_empty());
    done.into_iter().for_each(|work| work.send(None));
    if writers.is_empty() {
        return;
    }
    match write_all(connection, &mut writers) {
        Err(fault) if fault.kind == StoreErrorKind::Permanent && writers.len() > 1 => {
            for mut work in writers {
                let written = write_all(connection, std::slice::from_mut(&mut work));
                work.send(written.err().as_ref());
            }
        }
        written => {
            let fault = written.err();
            writers.into_iter().for_each(|work| work.send(fault.as_ref()));
        }
    }
}

/// Decides the noted ops of all works in one transaction. A caller that has gone while the lock was
/// waited for takes nothing.
fn write_all(connection: &Connection, works: &mut [Work]) -> Result<(), Fault> {
    transaction(connection, "BEGIN IMMEDIATE", || {
        let mut waiting = works.iter_mut().filter(|work| !work.call.reply.is_closed());
        waiting.try_for_each(|work| work.write(connection))
    })
}

/// Decides calls that are granted together or not at all, and returns their answers, also those of
/// granted calls beside a refused one. It takes the write lock if no call is refused without it.
pub(super) fn decide_all(connection: &Connection, ops: &[OwnedOp]) -> Result<Vec<StoreAnswer>, Fault> {
    let mut answers = Vec::new();
    for begin in ["BEGIN", "BEGIN IMMEDIATE"] {
        answers.clear();
        let decided = transaction(connection, begin, || {
            for op in ops {
                let (changed, answer) = step(op, connection)?;
                if let Some(changed) = changed.filter(|_| begin == "BEGIN IMMEDIATE") {
                    changed.write(op, connection)?;
                }
                answers.push(answer);
            }
            // An error undoes the transaction.
            match is_any_refused(ops, &answers) {
                true => Err(Fault::new(StoreErrorKind::Refused, "a call is refused")),
                false => Ok(()),
            }
        });
        match decided {
            Err(_) if is_any_refused(ops, &answers) => return Ok(answers),
            decided => decided?,
        }
    }
    Ok(answers)
}

/// Tells whether all calls are decided, and one of them is refused.
fn is_any_refused(ops: &[OwnedOp], answers: &[StoreAnswer]) -> bool {
    let refused = ops.iter().zip(answers).any(|(op, answer)| answer.granted < op.amount.min);
    ops.len() == answers.len() && refused
}

/// Runs a body in a transaction. An error undoes all of it, unless the commit itself failed.
pub(super) fn transaction<T>(
    connection: &Connection,
    begin: &str,
    body: impl FnOnce() -> Result<T, Fault>,
) -> Result<T, Fault> {
    connection.execute_batch(begin)?;
    let done = body().and_then(|done| match connection.execute_batch("COMMIT") {
        Ok(()) => Ok(done),
        Err(error) => Err(fault(error, Phase::Commit)),
    });
    if done.is_err() && !connection.is_autocommit() {
        // If this fails, so does the next transaction.
        let _ = connection.execute_batch("ROLLBACK");
    }
    done
}
