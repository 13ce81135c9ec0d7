//! The connection to a control plane over TCP and TLS.

use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tollgate_common::testing::{Authority, Certificate, Folder};

use super::super::client::follow;
use super::control_plane::{Stream, World, update, yearly};
use crate::serve::messages::Code;

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, format!("localhost:{port}"))
}

/// A process that begins before its control plane waits for it.
#[tokio::test]
async fn a_control_plane_that_comes_later_is_found() {
    let (listener, at) = listen().await;
    drop(listener);
    let world = World::new(&[
        ("CONFIG_GRPC_XDS_SERVER_URL", &at),
        ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "1ms"),
    ]);
    let following = tokio::spawn(follow(world.source.clone(), world.plane.clone()));
    let listener = TcpListener::bind(at.replace("localhost", "127.0.0.1")).await.unwrap();
    let mut stream = Stream::over(listener.accept().await.unwrap().0).await.unwrap();
    stream.request().await.unwrap();
    stream.update(&update("1", &[yearly("shop", "user", 5)])).await;
    assert_eq!(world.ask("shop", &[("user", "a")], 1).await, (Code::Ok, 4));
    following.abort();
}

/// A message longer than the window of HTTP/2, and one above the bound.
#[tokio::test]
async fn a_long_message_is_taken_up_to_the_bound() {
    let (listener, at) = listen().await;
    let world = World::new(&[
        ("CONFIG_GRPC_XDS_SERVER_URL", &at),
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "3000000"),
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "1ms"),
        ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "1ms"),
    ]);
    let following = tokio::spawn(follow(world.source.clone(), world.plane.clone()));
    for (length, is_taken) in [(2_900_000, true), (3_100_000, false)] {
        let mut stream = Stream::over(listener.accept().await.unwrap().0).await.unwrap();
        stream.request().await.unwrap();
        let mut config = yearly("shop", "user", 5);
        config.descriptors[0].value = "v".repeat(length);
        stream.send(&update("1", &[config]));
        assert_eq!(stream.request().await.is_some(), is_taken, "{length}");
    }
    assert_eq!(world.plane.status().accepted, 1);
    following.abort();
}

/// Returns a server's side of TLS with a certificate of `localhost`, that asks for one of a client.
fn server(authority: &Authority, clients: &Authority) -> TlsAcceptor {
    let mut roots = RootCertStore::empty();
    roots.add(clients.der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_client_cert_verifier(verifier.unwrap());
    let (chain, key) = authority.sign("localhost").der_with_key();
    let mut config = config.with_single_cert(vec![chain], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn both_sides_of_tls_need_a_certificate_of_their_authority() {
    let [of_server, of_clients, stranger] = [(); 3].map(|()| Authority::new());
    let folder = |authority: &Authority, own: Option<Certificate>| {
        let folder = Folder::new();
        let ca = authority.write(&folder);
        let own = own.map(|own| own.write(&folder));
        (folder, ca, own)
    };
    let rows = [
        ("right", folder(&of_server, Some(of_clients.sign("edge"))), "", true),
        ("another authority", folder(&stranger, Some(of_clients.sign("edge"))), "", false),
        ("no certificate of the client", folder(&of_server, None), "", false),
        ("a client of another authority", folder(&of_server, Some(stranger.sign("edge"))), "", false),
        ("another name", folder(&of_server, Some(of_clients.sign("edge"))), "plane", false),
    ];
    let acceptor = server(&of_server, &of_clients);
    for (name, (_folder, ca, own), san, is_served) in &rows {
        let (listener, at) = listen().await;
        let mut given = vec![
            ("CONFIG_GRPC_XDS_SERVER_URL", &*at),
            ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
            ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", ca),
            ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", san),
        ];
        if let Some((chain, key)) = own {
            given.push(("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", chain));
            given.push(("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", key));
        }
        let world = World::new(&given);
        let following = tokio::spawn(follow(world.source.clone(), world.plane.clone()));
        let shaken = acceptor.accept(listener.accept().await.unwrap().0).await;
        let stream = match shaken {
            Ok(io) => Stream::over(io).await,
            Err(_) => None,
        };
        assert_eq!(stream.is_some(), *is_served, "{name}");
        if let Some(mut stream) = stream {
            stream.request().await.unwrap();
            stream.update(&update("1", &[yearly("shop", "user", 5)])).await;
            assert_eq!(world.ask("shop", &[("user", "a")], 1).await, (Code::Ok, 4));
        }
        following.abort();
    }
}
