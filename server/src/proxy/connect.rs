use super::settings::*; use hyper::Uri; use hyper_util::rt::TokioIo; use std::{pin::Pin,future::Future,task::{Context,Poll}};
pub(crate) const CONNECT_TIMED_OUT:&str="connecting took too long";
#[derive(Clone)] pub(crate) struct Connector(Upstream);
impl Connector{pub(crate) fn new(u:Upstream,_:&Timeouts)->Self{Connector(u)}}
impl tower::Service<Uri> for Connector{type Response=TokioIo<tokio::net::TcpStream>;type Error=std::io::Error;type Future=Pin<Box<dyn Future<Output=Result<Self::Response,Self::Error>>+Send>>;
fn poll_ready(&mut self,_:&mut Context<'_>)->Poll<Result<(),Self::Error>>{Poll::Ready(Ok(()))}
fn call(&mut self,_:Uri)->Self::Future{let u=self.0.clone();Box::pin(async move{match u{Upstream::Tcp(a)=>Ok(TokioIo::new(tokio::net::TcpStream::connect(a.as_str()).await?)),_=>unreachable!()}})}}
