//! The promises of all stores. Each is a function of an engine, and a test of each engine.

pub(crate) mod all_or_none;
pub(crate) mod before;
pub(crate) mod clean;
pub(crate) mod count_walk;
pub(crate) mod counts;
pub(crate) mod intervals;
pub(crate) mod laws;
pub(crate) mod load;
pub(crate) mod locks;
pub(crate) mod servers;
pub(crate) mod strategies;
pub(crate) mod walk;

/// Makes tests of an engine, each a promise of the suite.
macro_rules! promises {
    ($engine:ty: $($part:ident { $($promise:ident,)* })*) => { $($(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $promise() {
            if let Some(engine) = <$engine>::start().await {
                $crate::suite::$part::$promise(engine).await;
            }
        }
    )*)* };
}
