//! Requests as bytes, over HTTP/1.

mod framing;
mod heads;
mod shape;

use shape::{SECOND, Shape, Table, message, owned};
use tollgate_testing::wire::End;

use super::verdict::{Bench, Reading, compare, conclude, own, refused};
use crate::support::Connection;

fn table() -> Vec<Shape> {
    let mut table = Table::default();
    framing::codings(&mut table);
    framing::lengths(&mut table);
    framing::chunks(&mut table);
    framing::bodies(&mut table);
    heads::starts(&mut table);
    heads::hosts(&mut table);
    heads::headers(&mut table);
    heads::connections(&mut table);
    table.0
}

/// Plays the client of a shape, and checks the responses.
fn talk(bench: &Bench, shape: &Shape) -> Result<(), String> {
    let mut client = Connection::connect(bench.address());
    // The proxy may close the connection before it has read all bytes.
    let _ = client.try_write(&shape.bytes);
    if shape.hangs_up {
        client.half_close();
    }
    for (start, _) in shape.reading.requests() {
        let method = start.split(' ').next().unwrap_or_default();
        match client.reply(method)? {
            Some((reply, End::Whole)) => drop(own(&reply, start)?),
            other => return Err(format!("no response to {start:?}, but {other:?}")),
        }
    }
    match shape.reading {
        Reading::Each(_) => own(&client.get("/after"), "GET /after HTTP/1.1").map(drop),
        Reading::Refused | Reading::Last(_) => refused(&mut client),
    }
}

/// Checks the requests of a shape that the upstream has seen.
fn listen(bench: &mut Bench, shape: &Shape) -> Result<(), String> {
    let mut expected = shape.reading.requests().to_vec();
    if let Reading::Each(_) = shape.reading {
        expected.push(("GET /after HTTP/1.1".to_owned(), String::new()));
    }
    compare(&bench.settle()?, &expected)
}

fn run(mut bench: Bench) {
    let shapes = table();
    assert!(shapes.len() >= 103, "{} shapes", shapes.len());
    let mut faults = Vec::new();
    for (number, shape) in shapes.iter().enumerate() {
        let sides = [talk(&bench, shape), listen(&mut bench, shape)];
        let sides = sides.into_iter().filter_map(Result::err);
        faults.extend(sides.map(|why| format!("{number}, {}: {why}", shape.name)));
    }
    faults.extend(bench.end());
    conclude(&faults);
}

#[test]
fn no_request_gets_through_in_another_one() {
    run(Bench::start(""));
}

/// The upstream gets the client's host.
#[test]
fn no_request_gets_through_to_another_host() {
    run(Bench::start("--preserve-host"));
}

/// The requests become frames, and then requests of HTTP/1.1 again.
#[test]
fn no_request_gets_through_an_upstream_of_http2() {
    run(Bench::start_two(true));
}

/// The upstream pretends to upgrade the connection.
#[test]
fn a_fake_upgrade_opens_no_tunnel() {
    let mut bench = Bench::start("");
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                     Sec-WebSocket-Version: 13\r\n";
    let mut faults = Vec::new();
    for headers in [websocket, "Connection: Upgrade\r\nUpgrade: h2c\r\n", ""] {
        let mut client = Connection::connect(bench.address());
        client.write(&message("GET /fake101 HTTP/1.1", headers, SECOND));
        let mut talk = || {
            let (reply, _) = client.reply("GET")?.ok_or("no response")?;
            if reply.status != 502 {
                return Err(format!("not refused: {reply:?}"));
            }
            let (reply, _) = client.reply("GET")?.ok_or("no second response")?;
            own(&reply, "GET /second HTTP/1.1")
        };
        faults.extend(talk().err());
        let seen = bench.settle().map(|mut seen| {
            // A request that may be repeated is repeated.
            seen.dedup_by(|one, other| one.start == other.start);
            seen
        });
        let expected = owned(&[("GET /fake101 HTTP/1.1", ""), ("GET /second HTTP/1.1", "")]);
        faults.extend(seen.and_then(|seen| compare(&seen, &expected)).err());
    }
    faults.extend(bench.end());
    conclude(&faults);
}
