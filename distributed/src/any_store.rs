//! A store of the engine that a URL names.

use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::op::{Op, Store};

/// A store of an engine that is compiled in.
///
/// The first part of the URL names the engine, which is a feature of this crate. `rediss://` (TLS),
/// `redis+cluster://` and `postgresql://` are not among them: use the type of the store.
///
/// | URL | feature |
/// |---|---|
/// | `sqlite:PATH`, `sqlite::memory:` | `sqlite` |
/// | `redis://HOST:PORT`, `rediss://` | `redis` |
/// | `postgres://USER@HOST/DATABASE` | `postgres` |
/// | `mysql://USER@HOST/DATABASE` | `mysql` |
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

const ENGINES: [&str; 4] = ["mysql", "postgres", "redis", "sqlite"];

impl AnyStore {
    /// Opens the store that a URL names.
    ///
    /// A store of a server connects at its first call, and again after a lost connection: a server
    /// that does not answer is no error here. SQLite opens or creates its file, and blocks
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// A permanent error if the URL names no engine or one that is not compiled in, or if the file
    /// cannot be opened or is no database.
    pub fn open(url: &str) -> Result<AnyStore, StoreError> {
        let (engine, rest) = url.split_once(':').unwrap_or((url, ""));
        let permanent = |why: String| Err(StoreError::new(StoreErrorKind::Permanent, why));
        match engine {
            #[cfg(feature = "sqlite")]
            "sqlite" if rest == ":memory:" => {
                crate::sqlite::store::SqliteStore::in_memory().map(AnyStore::Sqlite)
            }
            #[cfg(feature = "sqlite")]
            "sqlite" if !rest.is_empty() => {
                crate::sqlite::store::SqliteStore::open(rest).map(AnyStore::Sqlite)
            }
            #[cfg(feature = "redis")]
            "redis" => crate::redis::store::RedisStore::builder().lazy(url).map(AnyStore::Redis),
            #[cfg(feature = "mysql")]
            "mysql" => crate::mysql::store::MySqlStore::connect(url).map(AnyStore::MySql),
            #[cfg(feature = "postgres")]
            "postgres" => crate::postgres::store::PostgresStore::connect(url).map(AnyStore::Postgres),
            _ if ENGINES.contains(&engine) && !rest.is_empty() => {
                permanent(format!("the engine {engine:?} is not compiled in: it is the feature {engine:?}"))
            }
            _ => permanent(format!("{engine:?} is not sqlite:PATH, redis://.., postgres://.. or mysql://..")),
        }
    }

    /// Creates the table of the buckets, if it is missing. Does nothing on Redis, which has no
    /// tables.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the server does not answer, or if the account must not create tables.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        match self {
            #[cfg(feature = "mysql")]
            AnyStore::MySql(store) => store.migrate().await,
            #[cfg(feature = "postgres")]
            AnyStore::Postgres(store) => store.migrate().await,
            #[cfg(feature = "sqlite")]
            AnyStore::Sqlite(store) => store.migrate().await,
            #[cfg(feature = "redis")]
            AnyStore::Redis(_) => Ok(()),
            #[cfg(not(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite")))]
            _ => Ok(()),
        }
    }

    /// Creates the table and the routine of [`TokenRequester`](crate::TokenRequester) that are
    /// missing.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the engine has no tables, if the server does not answer, or if the account
    /// must not create tables.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    pub async fn create_token_table(&self) -> Result<(), StoreError> {
        use crate::tokens::requester::TokenTable;
        match self {
            #[cfg(feature = "mysql")]
            AnyStore::MySql(store) => store.create_token_table().await,
            #[cfg(feature = "postgres")]
            AnyStore::Postgres(store) => store.create_token_table().await,
            #[cfg(feature = "sqlite")]
            AnyStore::Sqlite(store) => store.create_token_table().await,
            #[cfg(feature = "redis")]
            AnyStore::Redis(_) => Err(StoreError::new(StoreErrorKind::Permanent, "the engine has no tables")),
        }
    }
}

impl Store for AnyStore {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        match self {
            #[cfg(feature = "sqlite")]
            AnyStore::Sqlite(store) => store.acquire(ops).await,
            #[cfg(feature = "redis")]
            AnyStore::Redis(store) => store.acquire(ops).await,
            #[cfg(feature = "mysql")]
            AnyStore::MySql(store) => store.acquire(ops).await,
            #[cfg(feature = "postgres")]
            AnyStore::Postgres(store) => store.acquire(ops).await,
            #[cfg(not(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite")))]
            _ => Err(StoreError::new(StoreErrorKind::Permanent, format!("no engine for {} keys", ops.len()))),
        }
    }
}
