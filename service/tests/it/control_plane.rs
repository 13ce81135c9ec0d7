//! A control plane for processes: a server of the discovery service over TCP.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};

use bytes::{Bytes, BytesMut};
use hyper::Response;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::client::PATIENCE;
use crate::protobuf::{discovery_request, discovery_response};
use tollgate_common::testing::{block_on, spawn};

/// The version, the nonce and the reason of a refusal.
type PlaneAnswer = (String, String, Option<String>);

/// A control plane. A drop of it ends all connections.
pub(crate) struct ControlPlane {
    pub(crate) address: SocketAddr,
    updates: watch::Sender<Vec<u8>>,
    answers: Receiver<PlaneAnswer>,
    serving: JoinHandle<()>,
}

impl ControlPlane {
    /// Starts one that has no update yet.
    pub(crate) fn start() -> ControlPlane {
        ControlPlane::start_at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub(crate) fn start_at(address: SocketAddr) -> ControlPlane {
        let listener = block_on(TcpListener::bind(address)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let (updates, to_send) = watch::channel(Vec::new());
        let (sender, answers) = mpsc::channel();
        let serving = spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((io, _)) = listener.accept().await {
                connections.spawn(serve(io, to_send.clone(), sender.clone()));
            }
        });
        ControlPlane { address, updates, answers, serving }
    }

    /// Has this update from now on, for each client.
    pub(crate) fn put(&self, version: &str, configs: &[Value]) {
        self.updates.send_replace(discovery_response(version, configs));
    }

    /// Waits for an answer to a version, and returns the version and the refusal that it names.
    pub(crate) fn answer(&self, version: &str) -> (String, Option<String>) {
        let nonce = format!("nonce of {version}");
        loop {
            let (named, of, refusal) = self.answers.recv_timeout(PATIENCE).expect("an answer");
            if of == nonce {
                return (named, refusal);
            }
        }
    }

    /// Puts an update, and waits until it is accepted.
    pub(crate) fn update(&self, version: &str, configs: &[Value]) {
        self.put(version, configs);
        assert_eq!(self.answer(version), (version.to_owned(), None));
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(io: TcpStream, mut updates: watch::Receiver<Vec<u8>>, answers: Sender<PlaneAnswer>) {
    let Ok(mut connection) = h2::server::handshake(io).await else { return };
    let Some(Ok((call, mut respond))) = connection.accept().await else { return };
    let talk = async move {
        let mut up = call.into_body();
        let begin = Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
        let mut down = respond.send_response(begin, false).ok()?;
        let mut buffer = BytesMut::new();
        updates.mark_changed();
        loop {
            let part = tokio::select! {
                part = up.data() => part?.ok()?,
                changed = updates.changed() => {
                    changed.ok()?;
                    let update = updates.borrow_and_update().clone();
                    if !update.is_empty() {
                        let length = u32::try_from(update.len()).expect("it is short").to_be_bytes();
                        down.send_data(Bytes::from([&[0][..], &length, &update].concat()), false).ok()?;
                    }
                    continue;
                }
            };
            let _ = up.flow_control().release_capacity(part.len());
            buffer.extend_from_slice(&part);
            while let Some(prefix) = buffer.first_chunk::<5>() {
                let length = u32::from_be_bytes(prefix[1..].try_into().expect("4 bytes")) as usize;
                if buffer.len() < 5 + length {
                    break;
                }
                answers.send(discovery_request(&buffer.split_to(5 + length)[5..])).ok()?;
            }
        }
    };
    let drive = async { while let Some(Ok(_)) = connection.accept().await {} };
    tokio::select! { ended = talk => { let _: Option<()> = ended; } () = drive => () }
}
