// promise: layer
//! Refusals behind a real cache, that of nginx (Debian's package of this name). Without nginx the
//! test says that it did not run.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use tollgate::{Quota, RateLimiter};
use tollgate_http::{ClientIp, HeaderKey, RateLimitLayer};

use crate::support::{PATIENCE, serve};

/// A cache in front of a server, with a folder of its own.
struct Nginx {
    process: Child,
    folder: PathBuf,
}

impl Nginx {
    /// Starts the cache. `None` if nginx is not installed.
    fn start(upstream: &str) -> Option<Nginx> {
        let folder = std::env::temp_dir().join(format!("tollgate-cache-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let at = folder.display();
        // Each status is stored, unless the response forbids it.
        let settings = format!(
            "daemon off; master_process off; pid {at}/pid; events {{}}\n\
             http {{ access_log off; client_body_temp_path {at}/a; proxy_temp_path {at}/b;\n\
             fastcgi_temp_path {at}/c; uwsgi_temp_path {at}/d; scgi_temp_path {at}/e;\n\
             proxy_cache_path {at}/cache keys_zone=pages:1m;\n\
             server {{ listen unix:{at}/socket; location / {{ proxy_pass http://{upstream};\n\
             proxy_cache pages; proxy_cache_valid any 10m; add_header X-Cache $upstream_cache_status always;\n\
             }} }} }}\n"
        );
        std::fs::write(folder.join("nginx.conf"), settings).unwrap();
        let log = folder.join("error.log");
        let process = Command::new("nginx")
            .args([
                Path::new("-p"),
                &folder,
                Path::new("-c"),
                &folder.join("nginx.conf"),
                Path::new("-e"),
                &log,
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let nginx = Nginx { process: process.ok()?, folder };
        let begun = Instant::now();
        while UnixStream::connect(nginx.folder.join("socket")).is_err() {
            let log = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "nginx does not start: {}", log());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Some(nginx)
    }

    /// Returns the status, the cache's word, and the body of a response.
    fn ask(&self, client: &str, path: &str, headers: &str) -> (u16, String, String) {
        let mut stream = UnixStream::connect(self.folder.join("socket")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request =
            format!("GET {path} HTTP/1.0\r\nHost: example.test\r\nX-Client: {client}\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let cache = head.lines().find_map(|line| line.strip_prefix("X-Cache: ")).unwrap_or_default();
        (status, cache.to_owned(), body.to_owned())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_empties_no_page_of_a_shared_cache() {
    let peer = ClientIp::peer_from(|info: &ConnectInfo<SocketAddr>| info.0.ip());
    let by_both = (peer, HeaderKey::new("x-client").unwrap());
    let limit = RateLimitLayer::builder(RateLimiter::new(Quota::per_hour(1))).key(by_both);
    let app = Router::new().route("/{*path}", get(|| async { "a logo\n" })).layer(limit.build());
    let nginx = Nginx::start(&serve(app).await);
    let Some(nginx) = nginx else {
        println!("did not run: nginx is not installed");
        return;
    };
    let attacks = [
        "",
        "Content-Type: application/grpc\r\n",
        "Content-Type: application/grpc-web\r\n",
        "Content-Type: application/grpc-web-text\r\n",
        "Content-Type: application/grpc-anything\r\n",
    ];
    assert_eq!(nginx.ask("mallory", "/first", "").0, 200);
    for (n, attack) in attacks.into_iter().enumerate() {
        let path = format!("/logo-{n}.png");
        let (status, cache, _) = nginx.ask("mallory", &path, attack);
        assert_eq!((status, &*cache), (429, "MISS"), "{attack:?}");
        // The next clients get the page: one from the server, and one from the cache.
        let page = |client: &str| nginx.ask(&format!("{client}-{n}"), &path, "");
        assert_eq!(page("ada"), (200, "MISS".to_owned(), "a logo\n".to_owned()), "{attack:?}");
        assert_eq!(page("bob"), (200, "HIT".to_owned(), "a logo\n".to_owned()), "{attack:?}");
    }
}
