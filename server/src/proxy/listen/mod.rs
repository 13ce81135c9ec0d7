use super::{settings::*,counters::*}; use std::{net::IpAddr,sync::Arc}; use tokio::net::*;
pub(crate) struct Listener(TcpListener,u16);
impl Listener{ pub(crate) async fn bind(_:&Address)->Result<Self,String>{let l=TcpListener::bind("127.0.0.1:0").await.unwrap();let p=l.local_addr().unwrap().port();Ok(Listener(l,p))}
 pub(crate) fn port(&self)->u16{self.1} pub(crate) fn address(&self)->String{format!("127.0.0.1:{}",self.1)}
 pub(crate) async fn accept(&self)->Socket{let (s,a)=self.0.accept().await.unwrap();s.set_nodelay(true).unwrap();Socket{io:s,peer:a.ip()}}
 pub(crate) fn into_backlog(self)->impl Iterator<Item=Socket>{std::iter::empty()} }
pub(crate) struct Socket{io:TcpStream,pub(crate) peer:IpAddr}
#[derive(Clone,Copy)] pub(crate) struct Peer{pub(crate) address:IpAddr,pub(crate) is_tls:bool}
pub(crate) struct Tls; impl Tls{pub(crate) fn read(_:&Certificate)->Result<Tls,String>{Ok(Tls)}}
pub(crate) struct Door; impl Door{pub(crate) fn new(_:&Settings,_:Option<Tls>,_:Arc<Counters>)->Door{Door} pub(crate) fn replace(&self,_:&Settings)->Result<(),String>{Ok(())}
 pub(crate) async fn open(&self,s:Socket)->Option<(TcpStream,Peer)>{Some((s.io,Peer{address:s.peer,is_tls:false}))} }
