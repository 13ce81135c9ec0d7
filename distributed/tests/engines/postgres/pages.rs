//! The pages of the table.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate::Quota;
use tollgate_distributed::{Amount, Op, PostgresStore, Spec, Store};

use super::engine::Postgres;
use crate::engine::{Engine, Options, PATIENT, load_time};
use crate::suite::{clean, load};

/// Returns a store with one connection.
fn connection(server: &Postgres) -> Vec<Arc<PostgresStore>> {
    vec![Arc::new(server.connect(Options { connections: 1, ..PATIENT }))]
}

/// The table, in the statistics of the server.
#[derive(Clone, Copy, Debug)]
struct Table {
    updates: i64,
    on_page: i64,
    bytes: i64,
}

impl Table {
    /// Reads the statistics. Those of a statement come in up to ten seconds late, unless its
    /// session ends.
    async fn read(server: &Postgres, updates: u64) -> Table {
        let select = "SELECT n_tup_upd, n_tup_hot_upd, pg_relation_size(relid)
            FROM pg_stat_user_tables WHERE relname = 'tollgate_buckets'";
        let end = Instant::now() + Duration::from_secs(12);
        loop {
            let row = server.other.query_one(select, &[]).await.unwrap();
            let table = Table { updates: row.get(0), on_page: row.get(1), bytes: row.get(2) };
            if table.updates >= updates as i64 {
                return table;
            }
            assert!(Instant::now() < end, "{table:?}, of {updates} updates");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_stay_on_their_page_and_the_table_does_not_grow() {
    let Some(mut server) = Postgres::start().await else { return };
    let spec = Spec::new(Quota::per_second(1), 0).unwrap();
    let rows = clean::rows_of_all_ages(&spec, 6_400, 0);
    server.put(&rows).await;
    // The first update of each row has the free half of its page.
    let spent = Amount { spent: 1, ..Amount::default() };
    let keys: Vec<&Vec<u8>> = rows.keys().collect();
    let store = connection(&server).remove(0);
    for keys in keys.chunks(64) {
        let mut ops: Vec<_> = keys.iter().map(|key| Op::new(key, spec, spent)).collect();
        store.acquire(&mut ops).await.unwrap();
    }
    drop(store);
    let first = Table::read(&server, 6_400).await;
    assert!(first.on_page >= 6_300, "{first:?}");
    // One key in a hundred is in use. With one connection nearly all updates stay.
    let keys: Vec<String> = (0..64).map(|key| format!("key {:09}", key * 100)).collect();
    let (early, _) = load::batches(connection(&server), &keys, load_time(2)).await;
    let before = Table::read(&server, 6_400 + early * 64).await;
    let (late, failed) = load::batches(connection(&server), &keys, load_time(2)).await;
    let after = Table::read(&server, 6_400 + (early + late) * 64).await;
    println!("{before:?}, {after:?}");
    assert!(failed.is_empty(), "{failed:?}");
    assert!(after.on_page * 100 >= after.updates * 99, "{after:?}");
    assert!(after.bytes * 100 <= before.bytes * 102, "{before:?}, {after:?}");
}
