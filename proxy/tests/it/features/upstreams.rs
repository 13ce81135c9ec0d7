//! Several upstreams.

use crate::support::{OK, Proxy, Upstream};

#[test]
fn upstreams_take_turns() {
    let upstreams = [(); 3].map(|()| Upstream::answering(OK));
    let urls = upstreams.each_ref().map(Upstream::url);
    let proxy = Proxy::over_all(&urls.each_ref().map(|url| &**url), "");
    let mut client = proxy.connect();
    for turn in 1..=4 {
        (0..3).for_each(|_| assert_eq!(client.get("/").status, 200));
        for upstream in &upstreams {
            assert_eq!(upstream.count(), 1, "turn {turn}");
        }
    }
}
