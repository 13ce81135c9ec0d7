//! Responses of an upstream, as bytes.

mod shapes;

use hyper::Method;
use shapes::Verdict::{BadGateway, Cut, Whole};
use shapes::{Shape, table};
use tollgate_testing::wire::{End, bytes};

use super::http2::{Outcome, ask, bare};
use super::upstream::{Event, Odd};
use super::verdict::{Bench, conclude, own};
use crate::support::{Connection, Http2};

/// A response without a request.
const POISON: &str = "HTTP/1.1 200 OK\r\nX-Asked: poison\r\nContent-Length: 6\r\n\r\npoison";
/// The number of times that each response comes. Some faults depend on the part that is read first.
const ROUNDS: usize = 5;

/// Plays the client of a shape, and checks the response.
fn talk(bench: &Bench, shape: &Shape) -> Result<(), String> {
    let mut client = Connection::connect(bench.address());
    client.write(&format!("{} /odd HTTP/1.1\r\nHost: a\r\n\r\n", shape.method));
    let Some((reply, end)) = client.reply(shape.method)? else {
        return if let Cut = shape.verdict { Ok(()) } else { Err("no response".to_owned()) };
    };
    let is_right = match shape.verdict {
        BadGateway => reply.status == 502 && end == End::Whole,
        Whole(status, body) => reply.status == status && reply.body == body && end == End::Whole,
        Cut => return if end == End::Cut { Ok(()) } else { Err(format!("not cut: {reply:?}")) },
    };
    if !is_right {
        return Err(format!("{end:?}: {reply:?}"));
    }
    let one_hop = ["x-hop", "keep-alive", "proxy-connection", "upgrade", "trailer", "set-cookie"];
    if let Some(name) = one_hop.iter().find(|name| !reply.all(name).is_empty()) {
        return Err(format!("{name} in {reply:?}"));
    }
    own(&client.get("/after"), "GET /after HTTP/1.1").map(drop)
}

/// Plays the client of a shape over HTTP/2, and checks the response.
fn talk_in_frames(bench: &Bench, shape: &Shape) -> Result<(), String> {
    let expected = match shape.verdict {
        Whole(200, body) => Outcome::Answered(body.to_owned()),
        _ => Outcome::Refused,
    };
    let outcome = ask(bench.address(), &bare(shape.method, "/odd"), false);
    if outcome == expected { Ok(()) } else { Err(format!("{outcome:?}, not {expected:?}")) }
}

#[test]
fn no_response_gets_through_in_another_one() {
    let shapes = table();
    assert!(shapes.len() >= 19, "{} shapes", shapes.len());
    let mut bench = Bench::start("");
    let mut faults = Vec::new();
    for shape in &shapes {
        let odd = Odd { bytes: shape.bytes.clone(), closes: shape.closes };
        *bench.upstream.odd.lock().expect("no thread panics with it") = odd;
        for _ in 0..ROUNDS {
            for talk in [talk, talk_in_frames] {
                let sides = [talk(&bench, shape), bench.settle().map(drop)];
                let sides = sides.into_iter().filter_map(Result::err);
                faults.extend(sides.map(|why| format!("{}: {why}", shape.name)));
            }
        }
    }
    faults.extend(bench.end());
    conclude(&faults);
}

/// A response to a `HEAD` and a 304 tell the length of another response. A 204 must not tell a
/// length: clients of HTTP/2 take it for malformed.
#[test]
fn a_response_without_a_body_tells_a_length_if_it_may() {
    let bench = Bench::start("");
    let http2 = Http2::connect(bench.address());
    // hyper drops the length of a 304 over HTTP/1.
    for (method, status, over_http1, over_http2) in [
        (Method::GET, "204 No Content", None, None),
        (Method::GET, "304 Not Modified", None, Some("6")),
        (Method::HEAD, "200 OK", Some("6"), Some("6")),
    ] {
        let bytes = bytes(&format!("HTTP/1.1 {status}\r\nContent-Length: 6\r\n\r\n"));
        *bench.upstream.odd.lock().expect("no thread panics with it") = Odd { bytes, closes: false };
        let request = format!("{method} /odd HTTP/1.1\r\nHost: a\r\n\r\n");
        let reply = Connection::connect(bench.address()).ask(&request);
        assert_eq!(reply.header("content-length"), over_http1, "{method} {status}");
        let reply = http2.send(method, "http://a/odd", &[], "");
        assert_eq!(reply.header("content-length"), over_http2, "{status}, HTTP/2");
    }
}

/// The upstream sends a response over a connection on which no request waits for one.
#[test]
fn a_response_that_was_not_asked_for_reaches_no_client() {
    let mut bench = Bench::start("");
    let mut faults = Vec::new();
    for text in [
        POISON,
        "x",
        "\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 408 Timeout\r\nConnection: close\r\n\r\n",
    ] {
        let mut client = Connection::connect(bench.address());
        let mut ask = || own(&client.get("/x"), "GET /x HTTP/1.1");
        faults.extend(ask().err());
        let mut number = None;
        while number.is_none() {
            match bench.upstream.event().expect("the upstream was asked") {
                Event::Request(at, _) => number = Some(at),
                event => assert!(matches!(event, Event::Opened(_) | Event::Closed(_)), "{event:?}"),
            }
        }
        let number = number.expect("the loop ends with it");
        bench.upstream.write(number, &bytes(text));
        // The connection is closed rather than used again.
        while !matches!(bench.upstream.event(), Ok(Event::Closed(at)) if at == number) {}
        faults.extend(ask().err());
        faults.extend(bench.settle().err());
    }
    faults.extend(bench.end());
    conclude(&faults);
}

/// The upstream responds before it has read the request. The rest of the request looks like another
/// one.
#[test]
fn the_rest_of_a_request_is_no_request() {
    let mut bench = Bench::start("");
    let mut faults = Vec::new();
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for filler in [0, 100, 10_000, 1_000_000] {
        let rest = format!("{}{smuggled}", "x".repeat(filler));
        let length = format!("Content-Length: {}", 5 + rest.len());
        let chunks = format!("\r\n{:x}\r\n{rest}\r\n0\r\n\r\n", rest.len());
        for (header, begin, rest) in
            [(&*length, "hello", &*rest), ("Transfer-Encoding: chunked", "5\r\nhello", &*chunks)]
        {
            let mut client = Connection::connect(bench.address());
            client.write(&format!("POST /early HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n{begin}"));
            let mut talk = || {
                let (reply, _) = client.reply("POST")?.ok_or("no response")?;
                own(&reply, "POST /early HTTP/1.1")?;
                // The proxy may close the connection before it has read all of them.
                let _ = client.try_write(format!("{rest}GET /after HTTP/1.1\r\nHost: a\r\n\r\n"));
                // Either the rest was read to its end, or the connection has ended.
                match client.reply("GET")? {
                    Some((reply, _)) => own(&reply, "GET /after HTTP/1.1").map(drop),
                    None => Ok(()),
                }
            };
            faults.extend(talk().err());
            match bench.settle() {
                Ok(seen) => faults.extend(
                    seen.iter()
                        .filter(|request| request.start.contains("smuggled"))
                        .map(|request| format!("{request:?}")),
                ),
                Err(why) => faults.push(why),
            }
        }
    }
    faults.extend(bench.end());
    conclude(&faults);
}
