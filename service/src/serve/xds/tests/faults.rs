//! Control planes that fail, in virtual time: none changes a rule, and the client comes back.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

use super::super::stream::framed;
use super::control_plane::{Pipes, Stream, World, update, yearly};
use crate::serve::messages::Code;

/// The client is on its way to the next connection, and the rules of the last one hold.
async fn holds(world: &World, left: u32) {
    let noticed = world.plane.until(|status| !status.is_connected);
    timeout(Duration::from_secs(600), noticed).await.expect("it is noticed");
    assert_eq!(world.ask("shop", &[("user", "a")], 0).await, (Code::Ok, left));
    assert!(world.service().is_healthy());
}

/// Returns the stream of a world whose rules are there.
async fn served(pipes: &mut Pipes) -> Stream {
    let mut stream = pipes.stream().await;
    stream.request().await.unwrap();
    stream.update(&update("1", &[yearly("shop", "user", 5)])).await;
    stream
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_that_never_answers_is_left() {
    let world = World::new(&[]);
    let mut pipes = world.follow();
    let silent = pipes.next().await;
    let began = Instant::now();
    let mut next = pipes.stream().await;
    assert!((40..=45).contains(&began.elapsed().as_secs()), "30 s for a ping, and the wait");
    next.request().await.unwrap();
    next.update(&update("1", &[yearly("shop", "user", 5)])).await;
    drop(silent);
    assert_eq!(world.ask("shop", &[("user", "a")], 1).await, (Code::Ok, 4));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_to_answer_pings_is_left() {
    let world = World::new(&[]);
    let mut pipes = world.follow();
    let stream = served(&mut pipes).await;
    // The pings are answered for an hour.
    sleep(Duration::from_secs(3_600)).await;
    assert!(world.plane.status().is_connected);
    stream.freeze();
    let began = Instant::now();
    holds(&world, 5).await;
    let took = began.elapsed().as_secs();
    assert!((30..=330 + 30).contains(&took), "{took} s: it is noticed by the next ping");
    let mut next = pipes.stream().await;
    assert_eq!(next.request().await.unwrap().version_info, "");
}

/// Each row is a connection that ends with its bytes or its words.
#[tokio::test(start_paused = true)]
async fn whatever_a_stream_ends_with_the_next_one_serves() {
    let world = World::new(&[]);
    let mut pipes = world.follow();
    drop(served(&mut pipes).await);
    holds(&world, 5).await;
    let whole = framed(&update("2", &[yearly("mall", "user", 5)])).unwrap();
    let long = [&[0][..], &(5_u32 << 20).to_be_bytes(), b"begin"].concat();
    let compressed = [&[1][..], &whole[1..]].concat();
    let rows: [(&str, Bytes, bool); 7] = [
        ("half a message, and the end", whole.slice(..whole.len() / 2), true),
        ("a part of a prefix, and the end", whole.slice(..3), true),
        ("half a message, and silence", whole.slice(..whole.len() / 2), false),
        ("no message", Bytes::from_static(&[0, 0, 0, 0, 2, 0xff, 0xff]), false),
        ("a message above the bound", long.into(), false),
        ("a compressed message", compressed.into(), false),
        ("the end at once", Bytes::new(), true),
    ];
    for (name, bytes, ends) in rows {
        let mut stream = pipes.stream().await;
        assert_eq!(stream.request().await.unwrap().version_info, "", "{name}");
        stream.send_bytes(bytes);
        if ends {
            stream.end("14", "the leader is another one");
        }
        holds(&world, 5).await;
    }
    for bytes in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"\x00", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
    {
        let mut io = pipes.next().await;
        io.write_all(bytes).await.unwrap();
        let mut sent = Vec::new();
        let _ = io.read_buf(&mut sent).await;
        assert!(sent.starts_with(b"PRI * HTTP/2.0"));
        drop(io);
        holds(&world, 5).await;
    }
    let mut last = pipes.stream().await;
    last.request().await.unwrap();
    assert_eq!(last.update(&update("2", &[yearly("shop", "user", 7)])).await.version_info, "2");
    assert_eq!(world.ask("shop", &[("user", "a")], 0).await, (Code::Ok, 7));
    let status = world.plane.status();
    assert_eq!((status.accepted, status.refused), (2, 0));
}

/// The message comes in parts, each after a time that is no fault.
#[tokio::test(start_paused = true)]
async fn a_message_that_comes_slowly_is_taken_whole() {
    let world = World::new(&[]);
    let mut pipes = world.follow();
    let mut stream = pipes.stream().await;
    stream.request().await.unwrap();
    let whole = framed(&update("1", &[yearly("shop", "user", 5)])).unwrap();
    for part in whole.chunks(7) {
        stream.send_bytes(Bytes::copy_from_slice(part));
        sleep(Duration::from_secs(50)).await;
    }
    assert_eq!(stream.request().await.unwrap().version_info, "1");
    assert_eq!(world.ask("shop", &[("user", "a")], 0).await, (Code::Ok, 5));
}

/// Two updates that come in one part are two.
#[tokio::test(start_paused = true)]
async fn updates_that_come_together_are_answered_one_by_one() {
    let world = World::new(&[]);
    let mut pipes = world.follow();
    let mut stream = pipes.stream().await;
    stream.request().await.unwrap();
    let both = ["1", "2"].map(|version| framed(&update(version, &[yearly("shop", "user", 5)])).unwrap());
    stream.send_bytes(both.concat().into());
    for version in ["1", "2"] {
        let answer = stream.request().await.unwrap();
        assert_eq!((&*answer.version_info, &*answer.response_nonce), (version, &*format!("n{version}")));
    }
}
