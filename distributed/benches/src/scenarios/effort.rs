//! The thoroughness of a run.

use std::time::Duration;

/// The thoroughness of a run.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds of all contenders in turn.
    pub rounds: usize,
    /// Time of a contender that is asked as fast as it answers, in a round.
    pub closed: Duration,
    /// Time of a contender that is asked at a rate, in a round.
    pub paced: Duration,
    /// Rounds of decisions by the tokens at hand.
    pub short_rounds: usize,
    /// Time in which a token is earned that a thread attempts to take.
    pub period: Duration,
}

impl Effort {
    /// A full run.
    pub const FULL: Effort = Effort {
        rounds: 5,
        closed: Duration::from_millis(500),
        paced: Duration::from_millis(1_500),
        short_rounds: 201,
        period: Duration::from_secs(60),
    };

    /// A run that shows whether all works.
    pub const QUICK: Effort = Effort {
        rounds: 2,
        closed: Duration::from_millis(200),
        paced: Duration::from_millis(300),
        short_rounds: 11,
        period: Duration::from_secs(6),
    };
}
