//! A store of the engine that a URL names.

use std::time::Duration;

use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::op::{Op, Store};

/// A store of an engine that is compiled in.
///
/// The scheme of the URL names the engine, which is a feature of this crate.
///
/// | URL | feature |
/// |---|---|
/// | `sqlite:PATH`, `sqlite::memory:` | `sqlite` |
/// | `redis://HOST:PORT`, with TLS `rediss://`; `redis+unix://PATH`, or `unix://` | `redis` |
/// | `redis+cluster://HOST:PORT,HOST:PORT`, with TLS `rediss+cluster://` | `redis` |
/// | `postgres://USER@HOST/DATABASE`, or `postgresql://` | `postgres` |
/// | `mysql://USER@HOST/DATABASE`, or `mariadb://` | `mysql` |
///
/// TLS to Redis needs a TLS feature of the crate `redis`, such as `tokio-rustls-comp`, and a crypto
/// provider of rustls. TLS to PostgreSQL needs the type of the store: a URL with `sslmode=require`
/// is an error.
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
const SCHEMES: [(&str, &str); 11] = [
    ("sqlite", "sqlite"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("redis+cluster", "redis"),
    ("rediss+cluster", "redis"),
    ("redis+unix", "redis"),
    ("unix", "redis"),
    ("postgres", "postgres"),
    ("postgresql", "postgres"),
    ("mysql", "mysql"),
    ("mariadb", "mysql"),
];

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
            Some("redis") => crate::redis::store::RedisStore::builder().lazy(url).map(AnyStore::Redis),
            #[cfg(feature = "mysql")]
            Some("mysql") => {
                crate::mysql::store::MySqlStore::connect(&format!("mysql:{rest}")).map(AnyStore::MySql)
            }
            #[cfg(feature = "postgres")]
            Some("postgres") => crate::postgres::store::PostgresStore::connect(url).map(AnyStore::Postgres),
            Some(engine) => {
                permanent(format!("{scheme:?} needs the feature {engine:?}, which is not compiled in"))
            }
            None => permanent(format!(
                "{scheme:?} is not the scheme of a store: {}",
                SCHEMES.map(|(name, _)| name).join(", ")
            )),
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

    /// Deletes the rows of buckets that have been full for at least `full_for`, and returns their
    /// number. No decision changes. Deletes nothing on Redis, where a full bucket expires.
    ///
    /// `full_for` should exceed the longest step back of the store's clock.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if a statement fails. The pages before it are cleaned up.
    pub async fn clean_up(&self, full_for: Duration) -> Result<u64, StoreError> {
        match self {
            #[cfg(feature = "mysql")]
            AnyStore::MySql(store) => store.clean_up(full_for).await,
            #[cfg(feature = "postgres")]
            AnyStore::Postgres(store) => store.clean_up(full_for).await,
            #[cfg(feature = "sqlite")]
            AnyStore::Sqlite(store) => store.clean_up(full_for).await,
            #[cfg(feature = "redis")]
            AnyStore::Redis(_) => {
                // Redis deletes a bucket by itself.
                let _ = full_for;
                Ok(0)
            }
            #[cfg(not(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite")))]
            _ => Err(StoreError::new(StoreErrorKind::Permanent, format!("no engine for {full_for:?}"))),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text of the permanent error of a URL.
    fn error(url: &str) -> String {
        let error = AnyStore::open(url).err().unwrap();
        assert_eq!(error.kind(), StoreErrorKind::Permanent, "{error}");
        error.to_string()
    }

    #[test]
    fn errors_name_the_scheme_and_the_known_ones() {
        let text = error("valkey://user:secret@host");
        for part in ["\"valkey\"", "sqlite, redis, rediss, redis+cluster", "postgresql, mysql, mariadb"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("secret"), "{text}");
        assert!(error("secret").contains("is not the scheme") && !error("secret").contains("secret"));
        assert!(error("sqlite:").contains("needs a path"));
    }

    #[cfg(not(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite")))]
    #[test]
    fn errors_name_the_feature_that_is_lacking() {
        for (scheme, engine) in SCHEMES {
            let text = error(&format!("{scheme}://host"));
            assert!(text.contains(&format!("{scheme:?} needs the feature {engine:?}")), "{text}");
        }
    }

    #[cfg(all(feature = "postgres", feature = "redis"))]
    #[tokio::test]
    async fn each_scheme_of_a_server_opens_its_store() {
        for url in ["redis://127.0.0.1:1", "redis+cluster://127.0.0.1:1,127.0.0.1:2"] {
            assert!(matches!(AnyStore::open(url), Ok(AnyStore::Redis(_))), "{url}");
        }
        for url in ["postgres://user@127.0.0.1:1/db", "postgresql://user@127.0.0.1:1/db"] {
            assert!(matches!(AnyStore::open(url), Ok(AnyStore::Postgres(_))), "{url}");
        }
        // The client is compiled without TLS here.
        for url in ["rediss://127.0.0.1:1", "rediss+cluster://127.0.0.1:1"] {
            assert!(error(url).contains("TLS"), "{}", error(url));
        }
        assert_eq!(AnyStore::open("redis://127.0.0.1:1").unwrap().clean_up(Duration::ZERO).await.unwrap(), 0);
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_clean_up_deletes_full_buckets() {
        use tollgate::Quota;

        use crate::credits::bucket::Amount;
        use crate::credits::spec::Spec;

        let store = AnyStore::open("sqlite::memory:").unwrap();
        let spec = |quota| Spec::new(quota, 0).unwrap();
        let one = Amount { min: 1, max: 1, spent: 0 };
        let mut ops = [
            Op::new(b"slow", spec(Quota::per_day(1)), one),
            Op::new(b"fast", spec(Quota::per_second(1_000_000_000)), one),
        ];
        store.acquire(&mut ops).await.unwrap();
        let deleted = loop {
            match store.clean_up(Duration::ZERO).await.unwrap() {
                0 => tokio::task::yield_now().await,
                deleted => break deleted,
            }
        };
        assert_eq!((deleted, store.clean_up(Duration::ZERO).await.unwrap()), (1, 0));
    }
}
