use std::net::IpAddr; use hyper::header::HeaderMap; use hyper::http::uri::Authority;
pub(crate) struct Hop<'a>{pub peer:IpAddr,pub client:IpAddr,pub trusted:bool,pub is_tls:bool,pub host:Option<&'a Authority>,pub port:u16}
pub(crate) fn set(_:&mut HeaderMap,_:&Hop<'_>){} pub(crate) fn drop_hop_by_hop(_:&mut HeaderMap){}
