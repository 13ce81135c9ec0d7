//! Kuadrant's service `kuadrant.service.ratelimit.v1`: tokens that are reserved before they are
//! used, and committed by the number that was used.
//!
//! A reservation adds its amount to the count of each limit at once, so no two of them take the
//! same tokens. A refused one has added nothing: hits that were added before the refusal go back to
//! the window of which they are. A commit brings each count from the reserved amount to the actual
//! one, once: in this process it takes the entry of the reservation out of a table, and over a
//! store it sets a mark there.
//!
//! | commit | counts | outcome |
//! |---|---|---|
//! | in time | the actual amount in place of the reserved one | `COMMITTED` |
//! | in time, in a later window | less: nothing; more: the tokens above the reserved ones, in the present window | `COMMITTED` |
//! | late, by at most the time of the reservation | `charge`: the tokens above the reserved ones; `release`: the actual amount | `LATE` |
//! | later | nothing | `LATE` |
//! | again | nothing | `TWICE` |
//! | of another process, without a store | nothing: it stays charged there | `OTHER_REPLICA` |
//! | by a text that is no id of this service | nothing | `UNKNOWN` |
//! | without an id | the actual amount, as by `Report` | `REPORTED` |
//! | with another domain, or other descriptors | nothing | status `INVALID_ARGUMENT` |
//! | without a domain or a descriptor | nothing | status `UNKNOWN`, as of `ShouldRateLimit` |
//! | while the store does not answer | nothing: it may be repeated, on the same replica | status `UNAVAILABLE` |
//!
//! `reservation_released` is true for `COMMITTED` alone. Each limit is settled by itself: one that
//! counted nothing at the reservation, as it was in shadow mode or was added by a reload, counts
//! the whole actual amount. One that a reload put into another unit or another kind of limit gives
//! nothing back.
//!
//! Hits go back only where they would free no hits of others: to a window until it ends, to a
//! sliding window until the end of the sub-window, and to a bucket less the tokens that it has
//! earned since the reservation. Another commit may have filled the bucket meanwhile.
//!
//! Tokens beyond a limit are counted. A window of a text counts them in this process up to the next
//! power of two above its limit. A reservation without any limit has no id and takes no place.

pub(super) mod calls;
mod here;
pub(super) mod id;
mod in_store;
pub(super) mod messages;
pub(super) mod open;
mod service;
pub(super) mod settings;
mod settlement;
