//! Clients that misuse HTTP/2.

use std::io::Read;
use std::thread;
use std::time::Duration;

use crate::support::frames::{
    ACK, CONTINUATION, END_STREAM, HEADERS, LONGEST, PING, PRIORITY, RESET, SETTINGS, WINDOW_UPDATE, block,
    fields, frame, head,
};
use crate::support::{Frames, GET, Proxy, until};

fn other_is_served(proxy: &Proxy) {
    assert_eq!(proxy.connect().send(GET).body, "ok");
}

/// The proxy has two places, and a client resets up to 1,000 requests at once.
#[test]
fn requests_that_are_reset_at_once_leave_no_place_behind() {
    let (_, proxy) = Proxy::answered("--in-flight 2");
    for _ in 0..3 {
        let mut client = Frames::connect(proxy.address, &[]);
        for stream in (1..2_000).step_by(2) {
            let headers = head(stream, END_STREAM, &fields("GET", "/", &[]));
            let reset = frame(RESET, 0, stream, &8_u32.to_be_bytes());
            if client.try_write(&[headers, reset].concat()).is_err() {
                break;
            }
        }
        other_is_served(&proxy);
    }
    proxy.await_under_way(0);
    other_is_served(&proxy);
}

#[test]
fn a_flood_of_frames_stops_no_other_client() {
    let (_, proxy) = Proxy::answered("--timeout request_head=2s");
    let floods = [
        frame(SETTINGS, 0, 0, &[]),
        frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255]),
        frame(PING, 0, 0, &[0; 8]),
        frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()),
        // A kind that does not exist.
        frame(99, 0, 0, &[0; 16]),
    ];
    let mut flooding = Vec::new();
    for flood in floods {
        let mut client = Frames::connect(proxy.address, &[]);
        client.client.stream.set_write_timeout(Some(Duration::from_secs(5))).expect("not zero");
        // The test reads no answer, so the proxy may stop reading, or close.
        let _ = client.try_write(&flood.repeat(1_000));
        other_is_served(&proxy);
        flooding.push(client);
    }
    flooding.into_iter().for_each(Frames::end);
}

/// The client reads each answer.
#[test]
fn a_flood_of_frames_that_ask_for_nothing_ends_its_connection() {
    let (_, proxy) = Proxy::answered("");
    let floods = [
        frame(SETTINGS, 0, 0, &[]),
        frame(PING, 0, 0, &[0; 8]),
        frame(PING, ACK, 0, &[0; 8]),
        frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 16]),
        frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()),
        frame(99, 0, 0, &[0; 16]),
    ];
    for (number, flood) in floods.iter().enumerate() {
        let mut client = Frames::connect(proxy.address, &[]);
        client.get(1, "/");
        assert_eq!(client.response(1).0, 200);
        let mut reader = client.client.stream.try_clone().expect("it is open");
        let reading = thread::spawn(move || {
            let mut last = Vec::new();
            let _ = reader.read_to_end(&mut last);
            last
        });
        until("the end of the connection", || client.try_write(&flood.repeat(1_000)).is_err());
        reading.join().expect("no panic");
        proxy.await_metric("tollgate_proxy_http2_floods_total", number as u64 + 1);
        other_is_served(&proxy);
    }
    // A client that pings, and opens its window, as often as some do.
    let mut client = Frames::connect(proxy.address, &[]);
    for stream in (1..400).step_by(2) {
        client.get(stream, "/");
        (0..10).for_each(|_| client.open_window(0, 1));
        client.ping();
        assert_eq!(client.response(stream).0, 200);
    }
}

#[test]
fn a_head_that_goes_on_and_on_ends_the_connection() {
    let (_, proxy) = Proxy::answered("");
    for continuation in
        [Vec::new(), vec![0x20], [&[0, 1, b'x', 127, 0xff, 0x7e][..], &[b'x'; 16_000]].concat()]
    {
        let mut client = Frames::connect(proxy.address, &[]);
        client.write(&frame(HEADERS, END_STREAM, 1, &block(&fields("GET", "/", &[]))));
        // The proxy may close before all bytes are written.
        let _ = client.try_write(&frame(CONTINUATION, 0, 1, &continuation).repeat(10_000));
        client.end();
        other_is_served(&proxy);
    }
}

/// An empty frame costs nothing, so it must not keep a request waiting for longer.
#[test]
fn empty_frames_are_no_progress_of_a_body() {
    let (holding, proxy) = Proxy::held("--timeout request_body=300ms");
    let mut client = Frames::connect(proxy.address, &[]);
    client.post(1);
    let held = holding.next();
    until("the end of the request", || {
        client.data(1, 0, b"");
        assert!(client.read_for(Duration::from_millis(50)));
        client.seen(1).0 > 0
    });
    assert_eq!(client.response(1).0, 408);
    held.rest();
    proxy.assert_counts(&[("request_body_timeouts", 1)]);
}

#[test]
fn bodies_that_wait_in_the_proxy_have_256_kb_of_a_connection() {
    let (holding, proxy) = Proxy::held("--in-flight 1");
    let first = proxy.write(GET);
    let held = holding.next();
    // These requests find no place, so their bodies wait in the proxy.
    let mut client = Frames::connect(proxy.address, &[]);
    (1..200).step_by(2).for_each(|stream| client.post(stream));
    // The proxy opens the window once its settings are confirmed.
    client.ping();
    client.ping();
    let room = client.window;
    assert!(room <= 256 << 10, "{room} bytes of bodies");
    for (stream, part) in (1..).step_by(2).zip(vec![b'x'; room as usize].chunks(LONGEST)) {
        client.data(stream, 0, part);
    }
    client.ping();
    assert_eq!(client.window, room, "no more is asked for");
    drop((held, first));
}
