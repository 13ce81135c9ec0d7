//! Servers that are not there, refuse, hang, end, and come back.

use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::time::timeout;
use tollgate_distributed::StoreErrorKind;
use tollgate_test_servers::program::free_port;

use crate::engine::{Options, PATIENT, Server, failure, heals, take, taken};

/// The options of a store on a server that hangs.
const IMPATIENT: Options = Options { connections: 1, patience: Duration::from_secs(1) };

/// The deadline of a caller, which gives up long before the store.
const DEADLINE: Duration = Duration::from_millis(20);

/// A pause of a busy machine, far below that of a call without an end.
const BUSY: Duration = Duration::from_secs(10);

pub(crate) async fn a_server_that_is_not_there_refuses_and_a_wrong_address_is_permanent<E: Server>(_: E) {
    let nowhere = E::open(&E::url(free_port().unwrap())).unwrap();
    assert_eq!(failure(&nowhere).await.0, StoreErrorKind::Refused);
    for url in E::WRONG_URLS {
        let error = E::open(url).err().unwrap_or_else(|| panic!("{url} was taken"));
        assert_eq!(error.kind(), StoreErrorKind::Permanent, "{url}: {error}");
    }
}

pub(crate) async fn an_account_or_a_right_that_is_missing_is_permanent(mut engine: impl Server) {
    take(engine.store(), b"key").await.unwrap();
    for stranger in engine.strangers().await {
        let (permanent, text) = failure(&stranger).await;
        assert_eq!(permanent, StoreErrorKind::Permanent, "{text}");
    }
    // A connection stays logged in.
    take(engine.store(), b"key").await.unwrap();
}

pub(crate) async fn a_connection_that_was_being_made_by_another_runtime_is_made_anew(
    mut engine: impl Server,
) {
    let store = engine.connect(Options { connections: 1, ..PATIENT });
    engine.process().freeze().unwrap();
    let short = || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let call = async { timeout(Duration::from_millis(20), failure(&store)).await };
        assert!(runtime.block_on(call).is_err(), "an answer of a frozen server");
    };
    std::thread::scope(|scope| scope.spawn(short).join()).unwrap();
    engine.process().thaw().unwrap();
    take(&store, b"key").await.unwrap();
}

pub(crate) async fn a_server_that_is_killed_comes_back(mut engine: impl Server) {
    let store = engine.connect(IMPATIENT);
    heals(&store).await;
    engine.process().kill();
    for call in 0..20 {
        let begin = Instant::now();
        let (kind, text) = failure(&store).await;
        // The first calls may find the end of the old connection.
        assert!(kind == StoreErrorKind::Refused || call < 8 && kind == StoreErrorKind::Unknown, "{text}");
        assert!(begin.elapsed() < IMPATIENT.patience + BUSY, "{:?}", begin.elapsed());
    }
    engine.restart();
    assert_eq!(heals(&store).await.granted, 1);
}

pub(crate) async fn a_server_that_hangs_is_given_up_by_callers_and_by_the_store<E: Server>(mut engine: E) {
    let store = engine.connect(IMPATIENT);
    heals(&store).await;
    engine.process().freeze().unwrap();
    let mut calls = 0;
    // A call that was under way may still be answered.
    while timeout(DEADLINE, take(&store, b"key")).await.is_ok_and(|answer| answer.is_ok()) {
        calls += 1;
    }
    // Each caller gives up, and the store still gives the connection up.
    let begin = Instant::now();
    assert!(!matches!(timeout(DEADLINE, take(&store, b"key")).await, Ok(Ok(_))), "a frozen server");
    assert!(begin.elapsed() < DEADLINE + BUSY, "{:?}", begin.elapsed());
    let (kind, text) = failure(&store).await;
    assert_eq!(kind, E::FROZEN.0, "{text}");
    assert!(text.contains(E::FROZEN.1), "{text}");
    assert_eq!(failure(&store).await.0, StoreErrorKind::Refused, "a new connection");
    engine.process().thaw().unwrap();
    assert_eq!(heals(&store).await.granted, 1);
    // A call on the frozen server may be decided after the thaw. None is sent twice.
    assert!(taken(&store, b"key").await <= calls + 4);
}
