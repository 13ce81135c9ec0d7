//! Connections to a server, over TCP and with TLS or without.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::io::Io;
use super::tls::ServerTrust;

/// The longest time for one address of a host, so that a silent one leaves time for the next.
const PER_ADDRESS: Duration = Duration::from_secs(5);
/// The silence after which a connection is probed, the time between two probes, and their number. A
/// host that is gone without a word is noticed by them, as nothing else is sent on an idle stream.
const SILENCE: Duration = Duration::from_secs(30);
const BETWEEN_PROBES: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;
/// The longest time for which a host may leave bytes without an acknowledgement.
#[cfg(target_os = "linux")]
const UNREAD: Duration = Duration::from_secs(60);

/// Connects to the first address of a host that answers. The error is one sentence.
///
/// With TLS all files are read at each call, so a connection has the certificates of its time.
pub async fn connect(host: &str, port: u16, tls: Option<&ServerTrust>) -> Result<Box<dyn Io>, String> {
    let tls = tls.map(ServerTrust::read).transpose()?;
    let told = |error: io::Error| format!("cannot connect: {error}");
    let mut stream = Err(io::Error::other("the host has no address"));
    for address in lookup_host((host, port)).await.map_err(told)? {
        let connected = timeout(PER_ADDRESS, TcpStream::connect(address)).await;
        stream = connected.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("{address} is silent for {PER_ADDRESS:?}")))
        });
        if stream.is_ok() {
            break;
        }
    }
    let stream = stream.map_err(told)?;
    // Neither is needed for a connection, and some systems have no such option.
    let _ = stream.set_nodelay(true);
    let probes = TcpKeepalive::new().with_time(SILENCE).with_interval(BETWEEN_PROBES).with_retries(PROBES);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&probes);
    #[cfg(target_os = "linux")]
    let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD));
    let Some((config, name)) = tls else { return Ok(Box::new(stream)) };
    let stream = TlsConnector::from(config).connect(name, stream).await;
    Ok(Box::new(stream.map_err(|error| format!("no TLS: {error}"))?))
}
