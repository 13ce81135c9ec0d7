//! The URLs of a server, of a cluster and of the sentinels of a master.

use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, RedisResult};

use super::tls::secured;
use super::tls_files::TlsFiles;

/// The port of a sentinel without one in its URL.
const SENTINEL_PORT: u16 = 26_379;

/// The servers of a URL.
pub(crate) enum Servers {
    One(ConnectionInfo),
    /// Some nodes of a cluster.
    Cluster(Vec<ConnectionInfo>),
    Sentinels {
        sentinels: Vec<ConnectionInfo>,
        /// The name of the master.
        name: String,
        /// The master at any address.
        master: ConnectionInfo,
    },
}

impl Servers {
    /// Reads an address, such as `redis://user:password@host:6379/0`, `redis+cluster://a,b,c` or
    /// `redis+sentinel://a,b,c/master/0`.
    pub(crate) fn read(url: &str, tls: &TlsFiles) -> RedisResult<Servers> {
        if let Some((scheme, rest)) = url.split_once("+cluster://") {
            let Parts { login, hosts, path, .. } = Parts::of(rest);
            let node = |host| info(&format!("{scheme}://{login}{host}{path}"), tls);
            return hosts.split(',').map(node).collect::<RedisResult<_>>().map(Servers::Cluster);
        }
        match url.split_once("+sentinel://") {
            Some((scheme, rest)) => sentinels(scheme, &Parts::of(rest), tls),
            None => info(url, tls).map(Servers::One),
        }
    }
}

/// The parts of `user:password@host:port,host:port/path`: the first one with its `@`, the last one
/// with its `/` or `?`.
struct Parts<'u> {
    login: &'u str,
    hosts: &'u str,
    path: &'u str,
}

impl<'u> Parts<'u> {
    fn of(url: &'u str) -> Parts<'u> {
        let query = url.find('?').unwrap_or(url.len());
        let (login, rest) = url.split_at(url[..query].rfind('@').map_or(0, |at| at + 1));
        let (hosts, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        Parts { login, hosts, path }
    }
}

fn sentinels(scheme: &str, parts: &Parts<'_>, tls: &TlsFiles) -> RedisResult<Servers> {
    let invalid = |text| RedisError::from((ErrorKind::InvalidClientConfig, text));
    let (path, query) = parts.path.split_once('?').unwrap_or((parts.path, ""));
    let mut path = path.trim_start_matches('/').splitn(2, '/');
    let name = path.next().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| invalid("a URL of sentinels has the name of the master behind them"))?;
    let (mut user, mut password, mut others) = ("", "", Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sentinel_user", value)) => user = value,
            Some(("sentinel_password", value)) => password = value,
            _ => others.push(pair),
        }
    }
    let query = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
    // The address is that which a sentinel tells.
    let database = path.next().unwrap_or("");
    let master = info(&format!("{scheme}://{}localhost/{database}{query}", parts.login), tls)?;
    let login = if password.is_empty() { String::new() } else { format!("{user}:{password}@") };
    let sentinel = |host: &str| {
        if host.is_empty() {
            return Err(invalid("a sentinel has a host"));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let port = if has_port { String::new() } else { format!(":{SENTINEL_PORT}") };
        info(&format!("{scheme}://{login}{host}{port}"), tls)
    };
    let sentinels = parts.hosts.split(',').map(sentinel).collect::<RedisResult<_>>()?;
    Ok(Servers::Sentinels { sentinels, name: name.to_owned(), master })
}

fn info(url: &str, tls: &TlsFiles) -> RedisResult<ConnectionInfo> {
    let info = url.into_connection_info()?.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    secured(info, tls)
}

/// Returns the same settings at another address.
pub(crate) fn at(settings: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let address = match settings.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    settings.clone().set_addr(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the addresses of the sentinels, the name, and the database and login of the master.
    fn read(url: &str) -> RedisResult<(Vec<String>, String, String)> {
        let Servers::Sentinels { sentinels, name, master } = Servers::read(url, &TlsFiles::default())? else {
            panic!("{url}");
        };
        let login = |info: &ConnectionInfo| {
            let settings = info.redis_settings();
            format!("{:?} {:?} {}", settings.username(), settings.password(), settings.db())
        };
        let shown = sentinels.iter().map(|info| format!("{} {}", info.addr(), login(info))).collect();
        Ok((shown, name, login(&master)))
    }

    #[test]
    fn a_url_of_sentinels_has_their_login_apart_from_that_of_the_master() {
        let read_well = |url| read(url).unwrap();
        assert_eq!(
            read_well("redis+sentinel://a,b:1,[::1],[::2]:7/main"),
            (
                ["a:26379", "b:1", "::1:26379", "::2:7"].map(|at| format!("{at} None None 0")).into(),
                "main".to_owned(),
                "None None 0".to_owned()
            )
        );
        let with_logins =
            "redis+sentinel://user:p%40ss@a/main/3?sentinel_user=u&sentinel_password=s%2Ft@&protocol=resp3";
        assert_eq!(
            read_well(with_logins),
            (
                vec!["a:26379 Some(\"u\") Some(\"s/t@\") 0".to_owned()],
                "main".to_owned(),
                "Some(\"user\") Some(\"p@ss\") 3".to_owned()
            )
        );
        for wrong in
            ["redis+sentinel://a", "redis+sentinel://a/", "redis+sentinel://a,,b/m", "redis+sentinel:///m"]
        {
            let error = read(wrong).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidClientConfig, "{wrong}: {error}");
        }
    }
}
