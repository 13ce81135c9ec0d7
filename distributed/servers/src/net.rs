//! A network that fails on demand: a proxy of TCP between a client and a server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// A direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Calls,
    /// From the server to the client.
    Answers,
}

/// The end of the open connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Both sides get a reset.
    Reset,
    /// The sockets stay open, and no byte passes.
    HalfOpen,
}

/// The settings of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    delay: Duration,
    lost: bool,
}

#[derive(Debug)]
struct Settings {
    target: SocketAddr,
    calls: Way,
    answers: Way,
}

#[derive(Debug)]
struct Shared {
    settings: Mutex<Settings>,
    cuts: broadcast::Sender<Cut>,
    accepted: AtomicU64,
}

impl Shared {
    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn way(&self, direction: Direction) -> Way {
        let settings = self.settings();
        if direction == Direction::Calls { settings.calls } else { settings.answers }
    }
}

/// A proxy of TCP on a port of the loopback. A drop ends its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy to a port of the loopback.
    ///
    /// # Errors
    ///
    /// No port is free.
    pub async fn start(target: u16) -> io::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, target));
        let settings = Mutex::new(Settings { target, calls: Way::default(), answers: Way::default() });
        let shared =
            Arc::new(Shared { settings, cuts: broadcast::Sender::new(16), accepted: AtomicU64::new(0) });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Proxy { address, shared, accepting })
    }

    /// Returns the port at which clients connect.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the number of accepted connections.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Connects later clients to another port of the loopback. The open connections stay.
    pub fn switch(&self, target: u16) {
        self.shared.settings().target = SocketAddr::from((Ipv4Addr::LOCALHOST, target));
    }

    /// Delays the bytes of one direction that are read from now on.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.change(direction, |way| way.delay = delay);
    }

    /// Discards the bytes of one direction that are read from now on, or passes them again.
    pub fn lose(&self, direction: Direction, lost: bool) {
        self.change(direction, |way| way.lost = lost);
    }

    /// Cuts the open connections. Later ones are not affected.
    pub fn cut(&self, cut: Cut) {
        let _ = self.shared.cuts.send(cut);
    }

    fn change(&self, direction: Direction, change: impl FnOnce(&mut Way)) {
        let mut settings = self.shared.settings();
        let settings = &mut *settings;
        change(if direction == Direction::Calls { &mut settings.calls } else { &mut settings.answers });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut(Cut::Reset);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        // Subscribed before the connection to the server is made: a cut meanwhile counts.
        let cuts = shared.cuts.subscribe();
        tokio::spawn(serve(client, Arc::clone(&shared), cuts));
    }
}

async fn serve(mut client: TcpStream, shared: Arc<Shared>, mut cuts: broadcast::Receiver<Cut>) {
    let target = shared.settings().target;
    let Ok(mut server) = TcpStream::connect(target).await else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let cut = {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        tokio::select! {
            () = pass(from_client, to_server, &shared, Direction::Calls) => None,
            () = pass(from_server, to_client, &shared, Direction::Answers) => None,
            cut = cuts.recv() => Some(cut.unwrap_or(Cut::Reset)),
        }
    };
    if cut == Some(Cut::HalfOpen) {
        // Holds both sockets until a reset, or until the proxy is dropped.
        while cuts.recv().await.is_ok_and(|cut| cut == Cut::HalfOpen) {}
    }
    if cut.is_some() {
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}

/// Passes the bytes of one direction on, each after its delay, until one side ends.
async fn pass(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, shared: &Shared, direction: Direction) {
    let (queue, mut due) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let way = shared.way(direction);
            if !way.lost {
                let _ = queue.send((Instant::now() + way.delay, buffer[..length].to_vec()));
            }
        }
    };
    let write = async move {
        while let Some((at, bytes)) = due.recv().await {
            sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(read, write);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends all bytes back.
    async fn echo() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await
                });
            }
        });
        port
    }

    async fn ask(stream: &mut TcpStream) -> io::Result<Duration> {
        let begin = Instant::now();
        stream.write_all(b"a").await?;
        let mut byte = [0];
        let limit = Duration::from_millis(300);
        tokio::time::timeout(limit, stream.read_exact(&mut byte)).await??;
        Ok(begin.elapsed())
    }

    #[tokio::test]
    async fn each_direction_is_delayed_by_itself() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        proxy.delay(Direction::Calls, Duration::from_millis(30));
        assert!(ask(&mut stream).await.unwrap() >= Duration::from_millis(30));
        proxy.delay(Direction::Answers, Duration::from_millis(40));
        assert!(ask(&mut stream).await.unwrap() >= Duration::from_millis(70));
    }

    #[tokio::test]
    async fn lost_bytes_and_half_open_connections_are_silent() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        ask(&mut stream).await.unwrap();
        proxy.lose(Direction::Answers, true);
        assert_eq!(ask(&mut stream).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        proxy.lose(Direction::Answers, false);
        ask(&mut stream).await.unwrap();
        proxy.cut(Cut::HalfOpen);
        assert_eq!(ask(&mut stream).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let mut later = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        ask(&mut later).await.unwrap();
    }

    #[tokio::test]
    async fn a_reset_is_seen_and_a_switch_is_for_later_clients() {
        let (first, second) = (echo().await, echo().await);
        let proxy = Proxy::start(first).await.unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        ask(&mut stream).await.unwrap();
        proxy.switch(second);
        ask(&mut stream).await.unwrap();
        proxy.cut(Cut::Reset);
        assert_ne!(ask(&mut stream).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let mut later = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        ask(&mut later).await.unwrap();
        assert_eq!(proxy.accepted(), 2);
    }
}
