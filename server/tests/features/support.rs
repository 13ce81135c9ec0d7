//! Files, certificates, counters, and clients with HTTP/2, TLS or another address.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, mpsc};
use std::time::Instant;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::PATIENCE;
use super::process::{Client, Message, Proxy, read_chunk, upstream, write};

/// A folder that is removed when this value is dropped.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("features-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        // The path of a Unix socket has at most 107 bytes, so the folder of the target may be too
        // deep.
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("it is new");
        Folder(path)
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("the names are ASCII").to_owned()
    }

    pub(super) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("it can be written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the value of `tollgate_proxy_NAME_total`.
pub(super) fn count(proxy: &Proxy, name: &str) -> u64 {
    let metrics = proxy.ask_admin("GET", "/metrics", "").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("tollgate_proxy_{name}_total ")));
    line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().expect("a number")
}

/// Waits for a count: a client may see the end of a connection before it is counted.
pub(super) fn await_count(proxy: &Proxy, name: &str, wanted: u64) {
    let begin = Instant::now();
    while count(proxy, name) != wanted {
        assert!(begin.elapsed() < PATIENCE, "{name} is {}, not {wanted}", count(proxy, name));
    }
}

/// Waits for a line of the metrics.
pub(super) fn await_metric(proxy: &Proxy, line: &str) {
    let begin = Instant::now();
    loop {
        let metrics = proxy.ask_admin("GET", "/metrics", "").body;
        if metrics.lines().any(|own| own == line) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "no {line} in {metrics}");
    }
}

/// Connects from another address of this host.
pub(super) fn connect_from(ip: impl Into<IpAddr>, to: SocketAddr) -> Client {
    let from = SocketAddr::from((ip.into(), 0));
    let stream = block_on(async {
        let socket = TcpSocket::new_v4().expect("there is IPv4");
        socket.bind(from).expect("an address of this host");
        socket.connect(to).await.expect("the proxy listens")
    });
    let stream = stream.into_std().expect("it is registered");
    stream.set_nonblocking(false).expect("it is open");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    Client(BufReader::new(stream))
}

/// Reads a response with its body.
pub(super) fn read(from: &mut impl BufRead) -> Message {
    let mut message = Message::read_head(from).expect("a response");
    if message.header("transfer-encoding") == Some("chunked") {
        loop {
            let chunk = read_chunk(from);
            if chunk.is_empty() {
                return message;
            }
            message.body += &chunk;
        }
    }
    let length = message.header("content-length").map_or(0, |length| length.parse().expect("a number"));
    let mut body = vec![0; length];
    from.read_exact(&mut body).expect("a whole body");
    message.body = String::from_utf8(body).expect("text");
    message
}

/// Checks that the connection ends without another byte. A reset would be an error.
pub(super) fn assert_closed(from: &mut impl Read) {
    assert_eq!(from.read(&mut [0]).map_err(|error| error.kind()), Ok(0));
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("there are threads"));

pub(super) fn block_on<T>(work: impl Future<Output = T>) -> T {
    RUNTIME.block_on(async { tokio::time::timeout(PATIENCE, work).await }).expect("it takes far less")
}

pub(super) fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    RUNTIME.spawn(work)
}

/// A client of HTTP/2.
#[derive(Clone)]
pub(super) struct Http2(SendRequest<Full<Bytes>>);

impl Http2 {
    /// Connects with prior knowledge, without TLS.
    pub(super) fn connect(address: SocketAddr) -> Http2 {
        let stream = block_on(tokio::net::TcpStream::connect(address)).expect("the proxy listens");
        Http2::over(stream)
    }

    pub(super) fn over(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Http2 {
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(io));
        let (sender, connection) = block_on(handshake).expect("the proxy speaks HTTP/2");
        RUNTIME.spawn(connection);
        Http2(sender)
    }

    pub(super) fn get(&self, uri: &str, headers: &[(&str, &str)]) -> Message {
        self.send(Method::GET, uri, headers, "")
    }

    pub(super) fn send(&self, method: Method, uri: &str, headers: &[(&str, &str)], body: &str) -> Message {
        block_on(self.start(method, uri, headers, body)).expect("a response")
    }

    /// Returns the response, or an error if the stream was reset.
    pub(super) fn start(
        &self,
        method: Method,
        uri: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> impl Future<Output = hyper::Result<Message>> + Send + 'static {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body.to_owned())).expect("the test writes valid requests");
        let mut sender = self.0.clone();
        async move {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let text = |value: &hyper::header::HeaderValue| value.to_str().expect("ASCII").to_owned();
            let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value)));
            let (status, headers) = (head.status.as_u16(), headers.collect());
            let body = String::from_utf8(body.collect().await?.to_bytes().to_vec()).expect("text");
            Ok(Message { start: format!("{:?}", head.version), status, headers, body })
        }
    }
}

/// A certificate for `localhost` in two files, and the trust of a client in it.
pub(super) struct Certificate {
    key: String,
    chain: String,
    der: CertificateDer<'static>,
}

impl Certificate {
    pub(super) fn new() -> Certificate {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).expect("it can be made");
        Certificate { key: signing_key.serialize_pem(), chain: cert.pem(), der: cert.der().clone() }
    }

    /// Writes `chain.pem` and `key.pem`, and returns their paths.
    pub(super) fn write(&self, folder: &Folder) -> (String, String) {
        (folder.write("chain.pem", &self.chain), folder.write("key.pem", &self.key))
    }

    /// Returns a client's side of TLS that trusts this certificate alone.
    fn trust(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().expect("the provider has them");
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// Connects with HTTP/1.1 over TLS. An error is a proxy with another certificate.
    pub(super) fn connect(&self, address: SocketAddr) -> std::io::Result<TlsClient> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut session = ClientConnection::new(self.trust(&["http/1.1"]), localhost()).expect("valid");
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(TlsClient(BufReader::new(StreamOwned::new(session, stream))))
    }

    /// Connects over TLS. Returns the protocol on which both sides agreed, and the client.
    pub(super) fn connect_http2(&self, address: SocketAddr) -> (Option<Vec<u8>>, Http2) {
        let connector = TlsConnector::from(self.trust(&["h2", "http/1.1"]));
        let stream = block_on(async {
            let stream = tokio::net::TcpStream::connect(address).await?;
            connector.connect(localhost(), stream).await
        });
        let stream = stream.expect("the proxy has this certificate");
        (stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec), Http2::over(stream))
    }
}

fn localhost() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

/// A client of HTTP/1.1 over TLS.
pub(super) struct TlsClient(pub(super) BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl TlsClient {
    pub(super) fn protocol(&self) -> Option<&[u8]> {
        self.0.get_ref().conn.alpn_protocol()
    }

    pub(super) fn write(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).expect("the proxy reads");
    }

    pub(super) fn get(&mut self, path: &str) -> Message {
        self.write(&format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        read(&mut self.0)
    }
}

/// Returns an upstream that tells of each request, and answers each when the test allows it.
pub(super) fn stepwise() -> (SocketAddr, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (asked, is_asked) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let address = upstream(move |mut connection| {
        while Message::read_head(&mut connection).is_some() {
            asked.send(()).expect("the test is still there");
            may_go_on.lock().expect("no panic").recv_timeout(PATIENCE).expect("the test goes on");
            write(&connection, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    (address, is_asked, go_on)
}
