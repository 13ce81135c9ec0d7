//! The promises of the layer, of keys from requests and of headers, through the public face: one
//! binary, one file a promise. A layer does not know the store of its limiters.

mod alloc;
mod asked;
mod ban;
mod client_ip;
mod counted;
mod decide;
mod delay;
mod exempt;
mod gates;
mod headers;
mod layer;
mod limits;
mod ready;
mod refusals;
mod serving;
mod settle;
mod telemetry;
