//! A store of the engine that a URL names.

use std::time::Duration;

use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::lanes::Lanes;
use crate::store::op::{Op, Store};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use crate::tokens::requester::TokenTable;

/// A store of an engine that is compiled in.
///
/// The scheme of the URL names the engine, which is a feature of this crate.
///
/// | URL | feature |
/// |---|---|
/// | `sqlite:PATH`, `sqlite::memory:` | `sqlite` |
/// | `redis://HOST:PORT`, with TLS `rediss://`; `redis+unix://PATH`, or `unix://` | `redis` |
/// | `redis+cluster://HOST:PORT,HOST:PORT`, with TLS `rediss+cluster://` | `redis` |
/// | `redis+sentinel://HOST:PORT,HOST:PORT/MASTER`, with TLS `rediss+sentinel://` | `redis` |
/// | `postgres://USER@HOST/DATABASE`, or `postgresql://` | `postgres` |
/// | `mysql://USER@HOST/DATABASE`, or `mariadb://` | `mysql` |
///
/// TLS to Redis needs the feature `redis-tls`. It is that of rustls, by `ring` unless the program
/// has installed another crypto provider. TLS to PostgreSQL needs the type of the store: a URL with
/// `sslmode=require` is an error.
///
/// The query of the URL may have options of the store, beside those of its client. Times are in
/// milliseconds, as in `redis://localhost?prefix=shop:&cold_start_guard=true`:
///
/// | engine | options |
/// |---|---|
/// | Redis | `prefix`, `cold_start_guard`, `connect_timeout_ms`, `response_timeout_ms` |
/// | Redis, of sentinels | `sentinel_user`, `sentinel_password` |
/// | Redis, with TLS | `tls_ca`, `tls_cert`, `tls_key` (PEM files), `tls_skip_hostname` |
/// | PostgreSQL | `connections`, `connect_timeout_ms`, `statement_timeout_ms`, `lock_timeout_ms`, `synchronous_commit`, `unlogged` |
/// | MariaDB | `connections`, `connect_timeout_ms`, `call_timeout_ms` |
///
/// A clone is another handle to the same store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyStore {
    /// Buckets in a file.
    #[cfg(feature = "sqlite")]
    Sqlite(crate::sqlite::store::SqliteStore),
    /// Buckets in MariaDB.
    #[cfg(feature = "mysql")]
    MySql(crate::mysql::store::MySqlStore),
    /// Buckets in PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(crate::postgres::store::PostgresStore),
    /// Buckets in Redis.
    #[cfg(feature = "redis")]
    Redis(crate::redis::store::RedisStore),
}

/// The schemes, each with its engine.
const SCHEMES: [(&str, &str); 13] = [
    ("sqlite", "sqlite"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("redis+cluster", "redis"),
    ("rediss+cluster", "redis"),
    ("redis+sentinel", "redis"),
    ("rediss+sentinel", "redis"),
    ("redis+unix", "redis"),
    ("unix", "redis"),
    ("postgres", "postgres"),
    ("postgresql", "postgres"),
    ("mysql", "mysql"),
    ("mariadb", "mysql"),
];

/// Calls the store of the engine: one with tables, or that of Redis.
macro_rules! on_engine {
    ($any:expr, $with_tables:pat => $call:expr, $redis:pat => $call_redis:expr) => {
        match $any {
            #[cfg(feature = "mysql")]
            AnyStore::MySql($with_tables) => $call,
            #[cfg(feature = "postgres")]
            AnyStore::Postgres($with_tables) => $call,
            #[cfg(feature = "sqlite")]
            AnyStore::Sqlite($with_tables) => $call,
            #[cfg(feature = "redis")]
            AnyStore::Redis($redis) => $call_redis,
            #[cfg(not(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite")))]
            _ => match *$any {},
        }
    };
}

impl AnyStore {
    /// Opens the store that a URL names.
    ///
    /// A store of a server connects at its first call, and again after a lost connection: a server
    /// that does not answer is no error here. SQLite opens or creates its file, and blocks
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// A permanent error if the URL names no engine or one that is not compiled in, if an option
    /// cannot be read, or if the file cannot be opened or is no database.
    pub fn open(url: &str) -> Result<AnyStore, StoreError> {
        // A password in the URL is in no error.
        let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
        let engine = SCHEMES.iter().find(|(name, _)| *name == scheme).map(|(_, engine)| *engine);
        let permanent = |why: String| Err(StoreError::new(StoreErrorKind::Permanent, why));
        match engine {
            Some("sqlite") if rest.is_empty() => permanent("sqlite: needs a path".to_owned()),
            #[cfg(feature = "sqlite")]
            Some("sqlite") if rest.starts_with("//") && !rest.starts_with("///") => {
                permanent(format!("{url:?} has a host, which a file has not: the form is sqlite:PATH"))
            }
            #[cfg(feature = "sqlite")]
            Some("sqlite") if rest == ":memory:" => {
                crate::sqlite::store::SqliteStore::in_memory().map(AnyStore::Sqlite)
            }
            #[cfg(feature = "sqlite")]
            Some("sqlite") => crate::sqlite::store::SqliteStore::open(rest).map(AnyStore::Sqlite),
            #[cfg(feature = "redis")]
            Some("redis") => crate::redis::builder::open(url).map(AnyStore::Redis),
            #[cfg(feature = "mysql")]
            Some("mysql") => crate::mysql::store::open(&format!("mysql:{rest}")).map(AnyStore::MySql),
            #[cfg(feature = "postgres")]
            Some("postgres") => crate::postgres::store::open(url).map(AnyStore::Postgres),
            Some(engine) => {
                permanent(format!("{scheme:?} needs the feature {engine:?}, which is not compiled in"))
            }
            None => permanent(format!(
                "{scheme:?} is not the scheme of a store: {}",
                SCHEMES.map(|(name, _)| name).join(", ")
            )),
        }
    }

    /// Creates the tables of buckets and counts, if they are missing. Does nothing on Redis, which
    /// has no tables.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the server does not answer, or if the account must not create tables.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        on_engine!(self, store => store.migrate().await, _ => Ok(()))
    }

    /// Deletes the rows of buckets that have been full for at least `full_for`, and of counts whose
    /// windows have been over for as long, and returns their number. No decision changes.
    /// Deletes nothing on Redis, where both expire.
    ///
    /// `full_for` should exceed the longest step back of the store's clock.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if a statement fails. The pages before it are cleaned up.
    pub async fn clean_up(&self, full_for: Duration) -> Result<u64, StoreError> {
        let _ = full_for;
        on_engine!(self, store => store.clean_up(full_for).await, _ => Ok(0))
    }
}

impl Store for AnyStore {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        let _ = &ops;
        on_engine!(self, store => store.acquire(ops).await, store => store.acquire(ops).await)
    }

    async fn acquire_all(&self, ops: &mut [Op<'_>]) -> Result<Option<usize>, StoreError> {
        let _ = &ops;
        on_engine!(self, store => store.acquire_all(ops).await, store => store.acquire_all(ops).await)
    }

    fn lanes(&self) -> Lanes {
        on_engine!(self, store => store.lanes(), store => store.lanes())
    }

    fn lane(&self, key: &[u8]) -> u32 {
        let _ = key;
        on_engine!(self, store => store.lane(key), store => store.lane(key))
    }

    fn probe_key(&self, lane: u32) -> Vec<u8> {
        let _ = lane;
        on_engine!(self, store => store.probe_key(lane), store => store.probe_key(lane))
    }
}

/// A store of Redis has no tables: each call is a permanent error.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
impl TokenTable for AnyStore {
    async fn create_token_table(&self) -> Result<(), StoreError> {
        on_engine!(self, store => store.create_token_table().await, _ => Err(without_tables()))
    }

    async fn take_token(&self, id: &str) -> Result<bool, StoreError> {
        on_engine!(self, store => store.take_token(id).await, _ => Err(without_tables()))
    }
}

#[cfg(all(feature = "redis", any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
fn without_tables() -> StoreError {
    StoreError::new(StoreErrorKind::Permanent, "Redis has no tables")
}

#[cfg(test)]
mod tests {
    #[cfg(not(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite")))]
    #[test]
    fn errors_name_the_feature_that_is_lacking() {
        for (scheme, engine) in super::SCHEMES {
            let text = super::AnyStore::open(&format!("{scheme}://host")).err().unwrap().to_string();
            assert!(text.contains(&format!("{scheme:?} needs the feature {engine:?}")), "{text}");
        }
    }
}
