//! Commands on one key that are sent together, and each once.

use redis::{Cmd, ErrorKind, Pipeline, RedisError, Value};

use super::errors::Failure;

/// Commands on one key, in their order, with the answers so far.
pub(crate) struct Chain {
    /// The index of its call.
    pub(crate) call: usize,
    /// The key, which names the node of a cluster.
    pub(crate) key: Vec<u8>,
    commands: Vec<Cmd>,
    answers: Vec<Value>,
    failure: Option<Failure>,
}

impl Chain {
    pub(crate) fn new(call: usize, key: Vec<u8>, commands: Vec<Cmd>) -> Chain {
        Chain { call, key, commands, answers: Vec::new(), failure: None }
    }

    /// Returns the commands that no server ran yet.
    fn rest(&self) -> &[Cmd] {
        &self.commands[self.answers.len()..]
    }

    /// Takes the answers to the rest of the commands from those of a pipeline. The first error ends
    /// the chain.
    fn note(&mut self, answers: &mut impl Iterator<Item = Value>) {
        self.failure = None;
        for answer in answers.take(self.rest().len()) {
            match answer.extract_error() {
                Ok(answer) if self.failure.is_none() => self.answers.push(answer),
                Ok(_) => {}
                Err(error) => _ = self.failure.get_or_insert(Failure::sent(error)),
            }
        }
    }

    /// Ends the chain by a failure of all of its rest.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }

    /// Returns the chain, ended by a failure.
    pub(crate) fn failed(mut self, failure: Failure) -> Chain {
        self.fail(failure);
        self
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Returns all answers.
    ///
    /// # Errors
    ///
    /// The failure of the first command that has no answer. If one before it ran, the effect of the
    /// whole is unknown.
    pub(crate) fn end(self) -> Result<Vec<Value>, Failure> {
        let in_part = !self.answers.is_empty();
        match self.failure {
            Some(Failure { error, .. }) if in_part => {
                let error: RedisError = (ErrorKind::Parse, "a part was done", error.to_string()).into();
                Err(Failure::sent(error))
            }
            Some(failure) => Err(failure),
            None => Ok(self.answers),
        }
    }
}

/// Returns the pipeline of the rest of each chain.
///
/// With `asking`, the node is one to which a slot is being moved. It accepts a command right after
/// an `ASKING`.
pub(crate) fn pipeline_of(chains: &[Chain], asking: bool) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for command in chains.iter().flat_map(Chain::rest) {
        if asking {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(command.clone());
    }
    pipeline
}

/// Notes the answers to a pipeline of chains.
pub(crate) fn note_answers(chains: &mut [Chain], answers: Vec<Value>, asking: bool) {
    let each = if asking { 2 } else { 1 };
    let mut answers = answers.into_iter().skip(each - 1).step_by(each);
    chains.iter_mut().for_each(|chain| chain.note(&mut answers));
}
