//! The files of the server's decision.
#![allow(dead_code, reason = "the server uses the rest")]

#[path = "../../server/src/service/counts.rs"]
pub(crate) mod counts;
#[path = "../../server/src/service/decide.rs"]
pub(crate) mod decide;
#[path = "../../server/src/service/homes.rs"]
mod homes;
#[path = "../../server/src/service/json.rs"]
pub(crate) mod json;
#[path = "../../server/src/service/key_room.rs"]
mod key_room;
#[path = "../../server/src/service/keys.rs"]
mod keys;
#[path = "../../server/src/service/limiters.rs"]
mod limiters;
#[path = "../../server/src/service/loaded.rs"]
pub(crate) mod loaded;
#[path = "../../server/src/service/messages.rs"]
pub(crate) mod messages;
#[path = "../../server/src/service/places.rs"]
mod places;
#[path = "../../server/src/service/statistics.rs"]
mod statistics;
#[path = "../../server/src/service/status.rs"]
mod status;
