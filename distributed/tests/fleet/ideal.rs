//! The grants of all processes, in one ideal bucket.

use std::fmt;

use tollgate::Quota;

use crate::Failure;

#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) decisions: f64,
    /// Keys in all calls.
    pub(crate) calls: f64,
    pub(crate) without_store: u64,
    granted: usize,
    /// The deepest debt, in tokens, of a bucket that is full before the first request and earns
    /// without a bound. A process that did not run had its answers late, which lowers the debt.
    pub(crate) over: f64,
    /// The part of the grants of an ideal bucket that is missing.
    pub(crate) under: f64,
}

impl Figures {
    pub(crate) fn of(outputs: &[String], quota: Quota, demand: f64) -> Result<Figures, Failure> {
        let (mut grants, mut counts, mut begun) = (Vec::new(), [0_u64; 3], u64::MAX);
        for line in outputs.iter().flat_map(|text| text.lines()) {
            if let Some(at) = line.strip_prefix("grant ") {
                grants.push(at.parse::<u64>()?);
            } else if let Some(at) = line.strip_prefix("begun ") {
                begun = begun.min(at.parse()?);
            } else if let Some(numbers) = line.strip_prefix("fleet ") {
                for (count, number) in counts.iter_mut().zip(numbers.split(' ')) {
                    *count += number.parse::<u64>()?;
                }
            }
        }
        grants.sort_unstable();
        let rate = quota.tokens() as f64 / quota.period().as_secs_f64() / 1e6;
        let burst = quota.capacity() as f64;
        let (first, last) = grants.first().zip(grants.last()).ok_or("nothing was granted")?;
        let debts = grants.iter().zip(1..).map(|(at, n)| f64::from(n) - burst - (at - begun) as f64 * rate);
        let over = debts.fold(0.0, f64::max);
        let ideal = demand.min(burst + rate * (last - first) as f64);
        Ok(Figures {
            decisions: counts[0] as f64,
            calls: counts[1] as f64,
            without_store: counts[2],
            granted: grants.len(),
            over,
            under: 1.0 - grants.len() as f64 / ideal,
        })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} decisions, {} keys in calls, {} granted, {:.2} tokens over, {:.2} % under",
            self.decisions,
            self.calls,
            self.granted,
            self.over,
            self.under * 100.0
        )
    }
}
