//! Calls that keep to a quota: for the client's side of a limit.

use std::fmt;
use std::task::Waker;

use crate::limiter::ask::Ask;
use crate::limiter::asked::Asked;
use crate::limiter::waiting::{AnyRequest, WaitsInLine, block};
use crate::rule::rate::Quota;
use crate::word::decision::Denied;

/// A function that is called at a limited rate; from [`Ask::limited`].
///
/// Each call takes one token. [`try_call`](Limited::try_call) is refused if there is none;
/// [`blocking_call`](Limited::blocking_call) and (feature `tokio`) `call` wait for it.
pub struct Limited<'a, F> {
    pub(crate) request: AnyRequest<'a>,
    pub(crate) action: F,
}

impl<'k, 'a, B: Asked<'a, Rule = Quota> + Send + Sync + 'k> Ask<'k, B> {
    /// Returns a function of one argument that keeps to this limit: for the calls of a client. It
    /// may be async.
    ///
    /// Each call takes the tokens of the request, and waits for at most [`within`](Ask::within).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter, TokenBucket};
    ///
    /// static CALLS: TokenBucket = TokenBucket::new(Quota::per_minute(2));
    ///
    /// let ask = CALLS.ask().limited(|question: &str| question.len());
    /// assert_eq!(ask.try_call("who?"), Ok(4));
    /// assert_eq!(ask.try_call("where?"), Ok(6));
    /// assert!(ask.try_call("when?").is_err());
    ///
    /// let per_host = RateLimiter::<String>::new(Quota::per_minute(1));
    /// let fetch = per_host.key("example.org").limited(|path: &str| format!("https://example.org{path}"));
    /// assert!(fetch.try_call("/").is_ok());
    /// assert!(fetch.try_call("/again").is_err());
    /// ```
    pub fn limited<F>(self, action: F) -> Limited<'k, F> {
        Limited { request: Box::new(self), action }
    }
}

impl<F> Limited<'_, F> {
    /// Calls the function if there is a token now.
    ///
    /// # Errors
    ///
    /// [`Denied`] tells when a token is back. The function was not called.
    pub fn try_call<A, T>(&self, argument: A) -> Result<T, Denied>
    where
        F: Fn(A) -> T,
    {
        self.request.join(0, Waker::noop())?;
        Ok((self.action)(argument))
    }

    /// Waits for a token in this thread, then calls the function.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, without a wait or a call, if the line is
    /// [full](crate::LimitBuilder::max_waiting). A limiter may also refuse a new key, with
    /// [`Reason::Full`](crate::Reason::Full).
    pub fn blocking_call<A, T>(&self, argument: A) -> Result<T, Denied>
    where
        F: Fn(A) -> T,
    {
        let _ = block(&self.request)?;
        Ok((self.action)(argument))
    }
}

impl<F> fmt::Debug for Limited<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited").finish_non_exhaustive()
    }
}
