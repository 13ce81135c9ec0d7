//! Faults of the setup that requests show: each is said once.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use hyper::HeaderMap;
use hyper::header::{FORWARDED, HeaderName};

static OF_CLIENTS: [HeaderName; 3] =
    [HeaderName::from_static("x-forwarded-for"), HeaderName::from_static("x-real-ip"), FORWARDED];

/// Returns whether a proxy, or a client, has told the address of a client.
pub(super) fn tells_client(headers: &HeaderMap) -> bool {
    OF_CLIENTS.iter().any(|name| headers.contains_key(name))
}

/// The faults that a profile has said: a bit each.
#[derive(Debug, Default)]
pub(super) struct Notes(AtomicU8);

/// A fault of the setup, or a request that has no value of its own.
#[derive(Clone, Copy)]
pub(super) enum Note<'a> {
    NoHeader(&'a HeaderName),
    NoTarget,
    PeerIsClient,
    UntrustedPeer,
    NoAddress,
}

impl Notes {
    /// Says a fault, unless it has been said.
    pub(super) fn say(&self, check: &str, note: Note<'_>) {
        // A fault that was said costs a load, and no write to a shared line of the cache.
        if !self.has(note) && self.0.fetch_or(note.bit(), Relaxed) & note.bit() == 0 {
            tracing::warn!("/check/{check}: {}; this is said once", note.sentence());
        }
    }

    pub(super) fn has(&self, note: Note<'_>) -> bool {
        self.0.load(Relaxed) & note.bit() != 0
    }
}

impl Note<'_> {
    fn bit(self) -> u8 {
        match self {
            Note::NoHeader(_) => 1,
            Note::NoTarget => 2,
            Note::PeerIsClient => 4,
            Note::UntrustedPeer => 8,
            Note::NoAddress => 16,
        }
    }

    pub(super) fn sentence(self) -> String {
        let sentence = match self {
            Note::NoHeader(name) => {
                return format!(
                    "a request has no value of {name}, or several: it is counted by the address of its client"
                );
            }
            Note::NoTarget => {
                "a question has no target, neither behind its name nor in X-Original-URI or X-Forwarded-Uri, so \
                 it is about the path /; let the proxy set the header"
            }
            Note::PeerIsClient => {
                "client = \"peer\" is the proxy that asks, so all its clients are one; name the header that it \
                 sets, as in client = \"X-Real-IP\", or take client = \"xff\" with trust_proxy"
            }
            Note::UntrustedPeer => {
                "X-Forwarded-For is ignored, so all clients of a proxy are one; add the network of the proxy to \
                 trust_proxy"
            }
            Note::NoAddress => {
                "a question has no address where `client` names it, so all clients of the proxy are one; let the \
                 proxy set the header"
            }
        };
        sentence.to_owned()
    }
}
