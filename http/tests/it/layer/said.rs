// promise: layer
//! Which faults of a setup are said, and when.

use std::fmt::Debug;

use tollgate_http::{Check, HopList, LayerBuilder, Trust};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;

/// The codes of the events of this crate.
#[derive(Clone, Default)]
struct Codes(Arc<Mutex<Vec<String>>>);

impl Visit for Codes {
    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "code" {
            self.0.lock().unwrap().push(value.to_owned());
        }
    }
}

impl Subscriber for Codes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tollgate" && *metadata.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The codes that are said when a layer is built, by its first request, and by three more.
fn codes(
    key: ClientIp,
    peer: &str,
    header: Option<(&'static str, &str)>,
    setup: fn(LayerBuilder<IpAddr>) -> LayerBuilder<IpAddr>,
) -> [Vec<String>; 3] {
    let request = || {
        let mut request = if peer.is_empty() { Request::new(()) } else { from(peer, "/") };
        if let Some((name, value)) = header {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        request
    };
    let (said, (limiter, _mock)) = (Codes::default(), limiter(Quota::per_hour(1)));
    let so_far = || std::mem::take(&mut *said.0.lock().unwrap());
    tracing::subscriber::with_default(said.clone(), || {
        let layer = setup(RateLimitLayer::builder(limiter).key(key)).build();
        let built = so_far();
        let mut service = layer.layer(Echo::default());
        call(&mut service, request());
        let first = so_far();
        (0..3).for_each(|_| drop(call(&mut service, request())));
        [built, first, so_far()]
    })
}

const XFF: &str = "x-forwarded-for";
const NONE: [&[&str]; 3] = [&[], &[], &[]];

#[test]
fn each_fault_is_said_once_and_not_of_a_granted_request() {
    let refused = |code| [&[][..], &[], code];
    let rejected = |code| [&[][..], code, &[]];
    let by_header = || ClientIp::peer().header(http::HeaderName::from_static("x-real-ip"));
    let behind = |trust| ClientIp::peer().behind(HopList::XForwardedFor, trust);
    let untrusting = || behind(Trust::by(|_| false));
    let trusting = || behind(Trust::by(|_| true));
    for (key, peer, header, expected) in [
        (ClientIp::peer(), "", None, rejected(&["no-peer"])),
        (ClientIp::peer_from(|peer: &Option<IpAddr>| *peer), A, None, rejected(&["no-peer"])),
        (untrusting(), "", Some((XFF, B)), rejected(&["no-peer"])),
        (behind(Trust::hops(1)), "", None, rejected(&["no-peer"])),
        (ClientIp::peer(), A, None, NONE),
        // A proxy in front, and no word of it.
        (ClientIp::peer(), "10.0.0.1", Some((XFF, B)), refused(&["peer-is-proxy"])),
        (ClientIp::peer(), "::ffff:127.0.0.1", Some((XFF, B)), refused(&["peer-is-proxy"])),
        (ClientIp::peer(), "100.64.0.1", Some((XFF, B)), refused(&["peer-is-proxy"])),
        (ClientIp::peer(), "169.254.0.1", Some((XFF, B)), refused(&["peer-is-proxy"])),
        (ClientIp::peer(), "fd00::1", Some(("forwarded", "for=_a")), refused(&["peer-is-proxy"])),
        (ClientIp::peer(), "fe80::1", Some((XFF, B)), refused(&["peer-is-proxy"])),
        (ClientIp::peer(), "::1", Some((XFF, B)), refused(&["peer-is-proxy"])),
        // No hop is the peer.
        (behind(Trust::hops(0)), "10.0.0.1", Some((XFF, B)), refused(&["peer-is-proxy"])),
        // No proxy, as far as can be told.
        (ClientIp::peer(), A, Some((XFF, B)), NONE),
        (ClientIp::peer(), "100.128.0.1", Some((XFF, B)), NONE),
        (ClientIp::peer(), "10.0.0.1", None, NONE),
        (behind(Trust::hops(1)), "10.0.0.1", Some((XFF, B)), NONE),
        // A list, and the peer that it is believed of.
        (untrusting(), "10.0.0.1", Some((XFF, B)), refused(&["untrusted-peer"])),
        (untrusting(), "10.0.0.1", None, NONE),
        (trusting(), "10.0.0.1", Some((XFF, B)), NONE),
        (trusting(), "10.0.0.1", Some((XFF, "unknown")), refused(&["unreadable-hop"])),
        (behind(Trust::hops(1)), "10.0.0.1", Some((XFF, "")), refused(&["unreadable-hop"])),
        (behind(Trust::hops(2)), "10.0.0.1", Some((XFF, B)), refused(&["too-few-hops"])),
        // One header.
        (by_header(), "10.0.0.1", Some(("x-real-ip", B)), NONE),
        (by_header(), "10.0.0.1", Some(("x-real-ip", "a")), rejected(&["unreadable-hop"])),
        (by_header(), "10.0.0.1", None, NONE),
    ] {
        let about = format!("{key:?} {peer} {header:?}");
        assert_eq!(codes(key.clone(), peer, header, |layer| layer), expected, "{about}");
        assert_eq!(codes(key, peer, header, |layer| layer.enforce(0)), expected, "shadow {about}");
    }
}

#[test]
fn a_fault_is_silenced_by_its_name_and_said_whatever_becomes_of_the_request() {
    assert_eq!(codes(ClientIp::peer(), "", None, |layer| layer.silence(Check::NoPeer)), NONE);
    let other = codes(ClientIp::peer(), "", None, |layer| layer.silence(Check::PeerIsProxy));
    assert_eq!(other, [&[][..], &["no-peer"], &[]]);
    for missing in [OnMissingKey::Share, OnMissingKey::Allow] {
        let (said, (limiter, _mock)) = (Codes::default(), limiter(Quota::per_hour(9)));
        tracing::subscriber::with_default(said.clone(), || {
            let layer =
                RateLimitLayer::builder(limiter).key(ClientIp::peer()).on_missing_key(missing).build();
            let mut service = layer.layer(Echo::default());
            (0..5).for_each(|_| assert_eq!(status(&call(&mut service, Request::new(()))), 200));
        });
        assert_eq!(*said.0.lock().unwrap(), ["no-peer"], "{missing:?}");
    }
}

#[test]
fn every_check_is_explained() {
    let page = include_str!("../../../docs/checks.md");
    for check in Check::ALL {
        let row = format!("| `{}` | `{check:?}` | ", check.code());
        let title = format!("\n## `{}`\n", check.code());
        assert!(page.contains(&row) && page.contains(&title), "{check}");
    }
    assert_eq!(page.matches("\n## `").count(), Check::ALL.len());
}
