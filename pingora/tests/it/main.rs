//! A gate in a proxy of pingora, over real sockets: one binary, one file a part of the gate.

mod costs;
mod places;
mod proxy;
mod rates;
mod refusals;
mod upstream;
