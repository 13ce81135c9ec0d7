//! The tokens that a call asks for, and the answer to it.

/// The tokens that a call asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The fewest tokens to grant: if there are fewer, the call is granted none.
    pub min: i64,
    /// The most tokens to grant. A negative number gives that many tokens back.
    pub max: i64,
    /// Tokens that were spent without the store. They are taken first: from a bucket down to a debt
    /// of one burst, and from a count also beyond its limit.
    pub spent: u64,
    /// The end of the window to which the tokens belong that were spent or go back: the `edge_us`
    /// of the answer that told it. Tokens of another window are dropped. With 0, spent tokens
    /// belong to the present window, and no token goes back to a count. It is 0 for a bucket.
    pub of_us: u64,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreAnswer {
    /// The tokens granted; negative if tokens were given back.
    pub granted: i64,
    /// The level after the call: of a bucket in credits, negative in debt; of a count, the tokens
    /// left until `edge_us`, negative beyond its limit.
    pub credits: i64,
    /// The server's time of the answer, in microseconds since 1970.
    pub now_us: u64,
    /// The end of the present window or sub-window, in microseconds since 1970; 0 of a bucket.
    pub edge_us: u64,
    /// The tokens that are left in addition from `edge_us` on; 0 of a bucket.
    pub freed: u64,
}
