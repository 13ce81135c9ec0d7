//! Requests that no limit applies to: an allow list.

use std::error::Error;
use std::fmt;

use http::Method;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::uri::PathAndQuery;

use super::key::Head;

/// An entry of an allow list, for [`LayerBuilder::exempt`](crate::LayerBuilder::exempt).
///
/// An exempt request is never limited, takes no token, is never banned, and is counted apart.
///
/// A client chooses the method, the path and the headers of its requests. So exempt only requests
/// that are cheap whatever their client does with them.
///
/// Feature `ipnet` adds `networks`, for the addresses of clients.
///
/// # Examples
///
/// ```
/// use http::{Method, Request};
/// use tollgate_http::{Exempt, Head};
///
/// let probes = Exempt::paths(["/health", "/static/*"])?;
/// let applies = |path: &str| probes.applies(Head::from(&Request::get(path).body(()).unwrap()));
/// assert!(applies("/health") && applies("/static/logo.svg"));
/// assert!(!applies("/health/all") && !applies("/statics") && !applies("/static/../login"));
///
/// let by_key = Exempt::when(|head| head.headers.get("x-api-key").is_some_and(|key| key == "ours"));
/// # let _ = (by_key, Exempt::methods([Method::OPTIONS]));
/// # Ok::<(), tollgate_http::InvalidPath>(())
/// ```
pub struct Exempt(Box<dyn Fn(Head<'_>) -> bool + Send + Sync>);

impl Exempt {
    /// Exempts requests by a closure.
    #[must_use]
    pub fn when(applies: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Exempt {
        Exempt(Box::new(applies))
    }

    /// Exempts requests with one of some methods.
    #[must_use]
    pub fn methods(methods: impl IntoIterator<Item = Method>) -> Exempt {
        let methods: Vec<Method> = methods.into_iter().collect();
        Exempt::when(move |head| methods.contains(head.method))
    }

    /// Exempts requests for some paths: `/health` is this path, and `/static/*` all paths under
    /// `/static/`.
    ///
    /// A path is compared byte by byte, without its query. Servers read some spellings of a path as
    /// another path. So a request is under a prefix only if the rest of its path is ASCII, has no
    /// `%`, `\`, `;` or `//`, and no segment `.` or `..`: otherwise `/static/../login` would be
    /// exempt.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`] if a path does not begin with `/`, has a `*` that is not its last segment,
    /// is in no request, or is `/*`, which exempts all.
    pub fn paths<P: Into<String>>(paths: impl IntoIterator<Item = P>) -> Result<Exempt, InvalidPath> {
        let (mut exact, mut prefixes) = (Vec::new(), Vec::new());
        for path in paths {
            let path = path.into();
            let prefix = path.strip_suffix('*').filter(|prefix| prefix.ends_with('/'));
            let literal = prefix.unwrap_or(&path);
            if !literal.starts_with('/') || literal.contains('*') {
                return Err(InvalidPath(path, PathFault::GrpcForm));
            }
            // The parser cuts a query and a fragment off.
            if PathAndQuery::try_from(literal).map_or(true, |parsed| parsed.path() != literal) {
                return Err(InvalidPath(path, PathFault::NoRequest));
            }
            match prefix {
                Some("/") => return Err(InvalidPath(path, PathFault::All)),
                Some(prefix) => prefixes.push(prefix.to_owned()),
                None => exact.push(path),
            }
        }
        Ok(Exempt::when(move |head| {
            let path = head.uri.path();
            let under = |prefix: &String| path.strip_prefix(&**prefix).is_some_and(is_plain);
            exact.iter().any(|exact| exact == path) || prefixes.iter().any(under)
        }))
    }

    /// Exempts the preflight requests of CORS.
    ///
    /// These have method OPTIONS, an `Origin` and an `Access-Control-Request-Method`
    /// (<https://fetch.spec.whatwg.org/#cors-preflight-request>).
    /// A browser sends one before many requests to another origin, and shows its page an error if
    /// it is refused.
    #[must_use]
    pub fn preflights() -> Exempt {
        Exempt::when(|head| {
            let has = |name| head.headers.contains_key(name);
            *head.method == Method::OPTIONS && has(ORIGIN) && has(ACCESS_CONTROL_REQUEST_METHOD)
        })
    }

    /// Returns whether a request is exempt.
    #[must_use]
    pub fn applies(&self, head: Head<'_>) -> bool {
        (self.0)(head)
    }
}

/// Returns whether every server reads the rest of a path as it is spelled.
fn is_plain(rest: &str) -> bool {
    rest.is_ascii()
        && !rest.contains(['%', '\\', ';'])
        && rest.split('/').rev().skip(1).all(|segment| !segment.is_empty())
        && rest.split('/').all(|segment| segment != "." && segment != "..")
}

impl fmt::Debug for Exempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exempt").finish_non_exhaustive()
    }
}

/// A path that [`Exempt::paths`] cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPath(String, PathFault);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathFault {
    GrpcForm,
    NoRequest,
    All,
}

impl Error for InvalidPath {}

impl fmt::Display for InvalidPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidPath(path, fault) = self;
        match fault {
            PathFault::GrpcForm => {
                write!(f, "{path:?} is no exempt path: a path begins with `/`, and a `*` is its last segment")
            }
            PathFault::NoRequest => write!(
                f,
                "{path:?} is no exempt path: no request has it, since a path ends before `?` and `#`, and has no \
                 spaces and control characters"
            ),
            PathFault::All => write!(f, "{path:?} exempts all requests: to limit none, use no layer"),
        }
    }
}
