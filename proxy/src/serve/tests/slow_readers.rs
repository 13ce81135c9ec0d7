//! Clients that do not read.

use super::tls::{ping, tls_pair};
use super::*;

/// Sends until a write fails. Returns the time until then, and the kind of the error.
async fn send_on(stream: &mut Stream) -> (Duration, ErrorKind) {
    let start = Instant::now();
    loop {
        let sending = async {
            stream.write_all(&[0; 1_024]).await?;
            stream.flush().await
        };
        let day = Duration::from_secs(86_400);
        if let Err(error) = tokio::time::timeout(day, sending).await.expect("it fails long before") {
            return (start.elapsed(), error.kind());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_counted_once() {
    let door = door(Settings::default(), None);
    let (_client, server) = duplex(4_096);
    let (mut stream, _) = open(of_load_balancer(server), &door).await.unwrap();
    let (elapsed, error) = send_on(&mut stream).await;
    assert_time(elapsed, door.settings.timeouts.slow_reader);
    assert_eq!(error, ErrorKind::TimedOut);
    assert_eq!(door.counters.count(Event::SlowReader), 1);
    assert_eq!(send_on(&mut stream).await.1, ErrorKind::TimedOut);
    assert_eq!(door.counters.count(Event::SlowReader), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_under_tls_is_counted() {
    let folder = Folder::new();
    let (files, trusted) = certificate(&folder, "own");
    let tls = Arc::new(Tls::read(&files).unwrap());
    let door = door(Settings::default(), Some(&tls));
    let (_client, mut stream) = tls_pair(&door, &trusted).await;
    let (elapsed, error) = send_on(&mut stream).await;
    assert_time(elapsed, door.settings.timeouts.slow_reader);
    assert_eq!(error, ErrorKind::TimedOut);
    assert_eq!(door.counters.count(Event::SlowReader), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_of_a_real_socket_that_does_not_read_is_counted() {
    let door = door(Settings::default(), None);
    let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    let _client = TcpStream::connect(listener.address().to_string()).await.unwrap();
    let (mut stream, _) = open(listener.accept(Duration::from_secs(3_600)).await, &door).await.unwrap();
    let (_, error) = send_on(&mut stream).await;
    assert_eq!(error, ErrorKind::TimedOut);
    assert_eq!(door.counters.count(Event::SlowReader), 1);
}

/// A byte every 9 of 10 seconds is slow, but no fault of this kind.
#[tokio::test(start_paused = true)]
async fn a_client_that_reads_on_is_not_closed() {
    let door = door(Settings::default(), None);
    let (mut client, server) = duplex(64);
    let (mut stream, _) = open(of_load_balancer(server), &door).await.unwrap();
    let reading = async {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(9)).await;
            client.read_u8().await.unwrap();
        }
        Instant::now()
    };
    let start = Instant::now();
    let (last, (elapsed, _)) = tokio::join!(reading, send_on(&mut stream));
    assert_time(elapsed, (last - start) + door.settings.timeouts.slow_reader);
    assert_eq!(door.counters.count(Event::SlowReader), 1);
}

/// A client may be silent here for any time: the server of requests bounds that.
#[tokio::test(start_paused = true)]
async fn a_client_that_has_nothing_to_read_is_not_closed() {
    let door = door(Settings::default(), None);
    let (mut client, server) = duplex(64);
    let (mut stream, _) = open(of_load_balancer(server), &door).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    ping(&mut stream, &mut client).await;
    let silence = tokio::time::timeout(Duration::from_secs(3_600), stream.read_u8()).await;
    assert!(silence.is_err());
    ping(&mut stream, &mut client).await;
    assert_eq!(door.counters.count(Event::SlowReader), 0);
}
