// promise: flood
//! Ten million addresses that come once each, through the layer. They need the memory of the keys
//! with room, and no more series of metrics than before. A client that keeps to its limit notices
//! nothing.
//!
//! The allocator counts the memory, so this is a program of its own.

use std::future::Future;
use std::net::IpAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use allocation_counter::measure;
use http::{Request, StatusCode};
use tollgate::{Clock, Quota, RateLimiter};
use tollgate_http::{ClientIp, RateLimitLayer, prometheus};
use tollgate_verify::watchdog::Watchdog;
use tower_layer::Layer;
use tower_service::Service;

use tollgate_testing::Nothing;

const CLIENTS: u32 = 10_000_000;
const ROOM: usize = 100_000;

fn request(client: IpAddr) -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(client);
    request
}

#[test]
fn ten_million_addresses_through_the_layer() {
    let _watchdog = Watchdog::of("ten million addresses", 1_800);
    // While the clock stands no key is evicted, and keys without room share buckets. Once it moves,
    // every key is evicted.
    for step in [0, 100_000] {
        let (clock, mock) = Clock::mock();
        let limiter =
            RateLimiter::<IpAddr>::builder(Quota::per_second(100)).clock(clock).max_keys(ROOM).build();
        let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).build();
        let mut service = layer.layer(Nothing);
        let mut status = |client: IpAddr| {
            let mut context = Context::from_waker(std::task::Waker::noop());
            let response = std::pin::pin!(service.call(request(client)));
            match response.poll(&mut context) {
                Poll::Ready(Ok(response)) => response.status(),
                Poll::Pending => panic!("nothing is waited for"),
            }
        };
        let hot = IpAddr::from([203, 0, 113, 1]);
        assert_eq!(status(hot), StatusCode::OK);
        let series = prometheus(&[layer.stats()]).lines().count();
        let (mut asked, mut refused) = (1_u64, 0);
        let used = measure(|| {
            for client in 0..CLIENTS {
                let address = IpAddr::from((client | 1 << 31).to_be_bytes());
                let _ = status(address);
                mock.advance(Duration::from_nanos(step));
                // The hot client asks for 50 of its 100 a second, or for its burst while the clock
                // stands.
                if (step > 0 && client % 200 == 0) || (step == 0 && client % 110_000 == 0) {
                    asked += 1;
                    refused += u64::from(status(hot) != StatusCode::OK);
                }
            }
        });
        let stats = layer.stats();
        println!(
            "{step} ns a request: {} bytes at most, {} at the end, of {asked} of the client's {refused} refused; {stats:?}",
            used.bytes_max, used.bytes_current
        );
        assert_eq!(refused, 0);
        assert!(used.bytes_max <= 200 * ROOM as u64, "{} bytes for {ROOM} keys", used.bytes_max);
        assert_eq!(prometheus(&[layer.stats()]).lines().count(), series);
        assert_eq!(stats.granted + stats.refused, u64::from(CLIENTS) + asked);
        assert!(stats.keys <= ROOM && layer.top_refused(usize::MAX).len() <= 512);
        assert_eq!(stats.evicted > 9_000_000, step > 0);
        assert_eq!(stats.without_room > 9_000_000, step == 0);
    }
}
