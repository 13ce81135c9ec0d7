//! A cluster: many keys, slots that move, and a master that is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tollgate::{Quota, Window};
use tollgate_distributed::{
    CountSpec, DistributedLimiter, OnOutage, Op, RedisStore, Source, Store, StoreErrorKind,
};
use tollgate_test_servers::net::{Cut, Direction, Proxy};
use tollgate_test_servers::process::Process;
use tollgate_test_servers::program::wait_until;
use tollgate_test_servers::redis::{Cluster, redis_is_installed};

use super::engine::{ONE, ask, connection, counted, taken};

pub(crate) fn url_of(cluster: &Cluster) -> String {
    let hosts: Vec<String> = cluster.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    format!("redis+cluster://{}", hosts.join(","))
}

fn keys(count: usize, tag: &str) -> Vec<String> {
    (0..count).map(|key| format!("{tag}key {key}")).collect()
}

fn calls(keys: &[String]) -> Vec<Op<'_>> {
    keys.iter().map(|key| Op::new(key.as_bytes(), counted(10_000), ONE)).collect()
}

fn cross_slots(cluster: &Cluster) -> usize {
    let stats = |node: &tollgate_test_servers::redis::Redis| node.command(&["INFO", "errorstats"]).unwrap();
    cluster.nodes.iter().filter(|node| stats(node).text().contains("CROSSSLOT")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_keys_in_batches_cross_no_slot_and_survive_a_flush_of_scripts() {
    if !redis_is_installed() {
        return;
    }
    let cluster = Cluster::start(0, &[]).unwrap();
    let store = RedisStore::connect(&url_of(&cluster)).await.unwrap();
    let keys = keys(10_000, "");
    for (batch, keys) in keys.chunks(64).enumerate() {
        let mut ops = calls(keys);
        store.acquire(&mut ops).await.unwrap();
        assert!(ops.iter().all(|op| op.answer.granted == 1));
        if batch % 50 == 25 {
            cluster.nodes.iter().for_each(|node| drop(node.command(&["SCRIPT", "FLUSH"]).unwrap()));
        }
    }
    assert_eq!(cross_slots(&cluster), 0);
    let stored = cluster.nodes.iter().map(|node| node.info("keyspace", "db0").unwrap());
    let count = |db: String| db.strip_prefix("keys=").unwrap().split(',').next().unwrap().parse::<usize>();
    assert_eq!(stored.map(|db| count(db).unwrap()).sum::<usize>(), 10_000);
    batches_on_a_connection_of_the_callers(&cluster).await;
}

/// The store does not know that the server is a cluster. The first batch crosses slots, and later
/// ones do not.
async fn batches_on_a_connection_of_the_callers(cluster: &Cluster) {
    let client = redis::Client::open(cluster.nodes[0].url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let store = RedisStore::builder().with_connection(connection).unwrap();
    // The slots 3300 and 4310, both of the first node.
    let keys = ["{b}1", "{11}1", "{b}2", "{11}2"].map(str::to_owned);
    for round in 1..=2 {
        let mut ops = calls(&keys);
        store.acquire(&mut ops).await.unwrap();
        assert!(ops.iter().all(|op| op.answer.granted == 1), "round {round}");
    }
    for key in &keys {
        assert_eq!(taken(&store, key, counted(10_000)).await, 2);
    }
    assert_eq!(cluster.nodes[0].info("errorstats", "errorstat_CROSSSLOT").unwrap(), "count=1");
}

/// The store knows the slot of a key as the server does.
#[tokio::test]
async fn slots_are_those_of_the_server() {
    if !redis_is_installed() {
        return;
    }
    let cluster = Cluster::start(0, &[]).unwrap();
    let store = RedisStore::builder().prefix(":").connect(&url_of(&cluster)).await.unwrap();
    for key in ["", "{", "}{", "{}", "{}a", "a{}b", "{a}b", "a{b}c{d}", "{{a}}", "{a", "12345", "é{ü}"] {
        ask(&store, key, counted(9), ONE).await.unwrap();
    }
    let moved = cluster.nodes.iter().map(|node| node.info("errorstats", "errorstat_MOVED").is_ok());
    assert_eq!(moved.filter(|&moved| moved).count(), 0, "a call went to another node first");
}

/// The calls of a load.
#[derive(Default)]
struct Load {
    granted: Vec<u64>,
    unknown: u64,
    refused: u64,
    longest: Duration,
}

/// Takes a token of each key, over and over. Each caller waits for its deadline at most.
async fn load(store: RedisStore, keys: Arc<Vec<String>>, end: Arc<AtomicBool>) -> Load {
    let mut load = Load { granted: vec![0; keys.len()], ..Load::default() };
    while !end.load(Ordering::Relaxed) {
        for (at, chunk) in keys.chunks(64).enumerate() {
            let begin = Instant::now();
            let mut ops = calls(chunk);
            match store.acquire(&mut ops).await {
                Err(error) if error.kind() == StoreErrorKind::Refused => load.refused += 1,
                Err(error) => {
                    assert_eq!(error.kind(), StoreErrorKind::Unknown, "{error}");
                    load.unknown += 1;
                }
                Ok(()) => {}
            }
            // After an error, too: the decided calls have answers.
            for (place, op) in ops.iter().enumerate() {
                load.granted[at * 64 + place] += op.answer.granted as u64;
            }
            load.longest = load.longest.max(begin.elapsed());
        }
    }
    load
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_load_fails_no_call_and_loses_no_token() {
    if !redis_is_installed() {
        return;
    }
    let cluster = Cluster::start(0, &[]).unwrap();
    let store = RedisStore::connect(&url_of(&cluster)).await.unwrap();
    let slot = cluster.nodes[0].command(&["CLUSTER", "KEYSLOT", "{a}"]).unwrap();
    let tollgate_test_servers::wire::Reply::Number(slot) = slot else { panic!("{slot:?}") };
    let (slot, owner) = (slot as u16, (slot * 3 / 16_384) as usize);
    let (names, end) = (Arc::new(keys(100, "{a}")), Arc::new(AtomicBool::new(false)));
    let running = tokio::spawn(load(store.clone(), Arc::clone(&names), Arc::clone(&end)));
    let cluster = tokio::task::spawn_blocking(move || {
        let mut at = owner;
        for next in [1, 2, 0, 1].map(|step| (owner + step) % 3) {
            cluster.migrate(slot, at, next).unwrap();
            at = next;
            // Until all nodes know the new owner: they gossip several times a second.
            std::thread::sleep(Duration::from_millis(250));
        }
        cluster
    });
    let cluster = cluster.await.unwrap();
    end.store(true, Ordering::Relaxed);
    let ran = running.await.unwrap();
    // A busy machine may delay a call beyond its limit.
    assert!(ran.unknown <= 2 && ran.refused == 0, "{} unknown, {} refused", ran.unknown, ran.refused);
    for (key, granted) in names.iter().zip(&ran.granted) {
        let taken = taken(&store, key, counted(10_000)).await;
        assert!(
            (*granted..=granted + ran.unknown).contains(&taken),
            "{key}: {taken} taken, {granted} granted"
        );
    }
    println!("{} rounds, {} unknown", ran.granted[0], ran.unknown);
    assert!(ran.granted[0] >= 10, "{} rounds", ran.granted[0]);
    drop(cluster);
}

/// Takes a token of each key until all have a master again. Returns the time.
async fn heal_all(store: &RedisStore, names: &[String]) -> Duration {
    let begin = Instant::now();
    for key in names {
        while ask(store, key, counted(10_000), ONE).await.is_err() {
            assert!(begin.elapsed() < Duration::from_secs(10), "{key} has no master");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    begin.elapsed()
}

/// Fails a master under load. The replica lacks the last grants of the master, which one task made
/// one after the other.
async fn fail_under_load(fail: impl FnOnce(&mut Process)) {
    let mut cluster = Cluster::start(3, &["--cluster-require-full-coverage", "no"]).unwrap();
    let store = RedisStore::connect(&url_of(&cluster)).await.unwrap();
    let (names, end) = (Arc::new(keys(192, "")), Arc::new(AtomicBool::new(false)));
    let running = tokio::spawn(load(store.clone(), Arc::clone(&names), Arc::clone(&end)));
    // The slot of the tag is on the last node.
    let others = tokio::spawn(load(store.clone(), Arc::new(keys(1, "{a}")), Arc::clone(&end)));
    tokio::time::sleep(Duration::from_millis(300)).await;
    fail(cluster.nodes[0].process());
    let healed = heal_all(&store, &names).await;
    end.store(true, Ordering::Relaxed);
    let (ran, others) = (running.await.unwrap(), others.await.unwrap());
    assert_eq!((others.unknown, others.refused), (0, 0), "calls on another node");
    // A call that waits for the new master takes all of that time.
    assert!(
        others.longest < healed * 3 / 4,
        "a call on another node took {:?} of {healed:?}",
        others.longest
    );
    println!("others took {:?} at most", others.longest);
    println!("healed in {healed:?}: {} unknown, {} refused, {:?}", ran.unknown, ran.refused, ran.longest);
    assert!(ran.unknown + ran.refused > 0, "no call met the dead master");
    for (key, granted) in names.iter().zip(&ran.granted) {
        let taken = taken(&store, key, counted(10_000)).await;
        let most = granted + 1 + ran.unknown;
        assert!(taken + 2 >= *granted && taken <= most, "{key}: {taken} taken, {granted} granted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_is_replaced_and_grants_no_token_twice_but_those_not_replicated() {
    if redis_is_installed() {
        fail_under_load(Process::kill).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_master_is_replaced_though_its_connection_stays_open() {
    if redis_is_installed() {
        fail_under_load(|process| process.freeze().unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_fails_in_part_has_the_answers_of_the_other_nodes() {
    if !redis_is_installed() {
        return;
    }
    let mut cluster = Cluster::start(0, &["--cluster-require-full-coverage", "no"]).unwrap();
    let store = RedisStore::connect(&url_of(&cluster)).await.unwrap();
    // The slot of "{b}" is 3300, of the first node, and that of "{a}" 15495, of the last.
    let names = ["{b}1", "{a}1", "{b}2", "{a}2"].map(str::to_owned);
    let mut ops = calls(&names);
    store.acquire(&mut ops).await.unwrap();
    cluster.nodes[0].process().kill();
    let begin = Instant::now();
    while store.acquire(&mut calls(&names[..1])).await.unwrap_err().kind() != StoreErrorKind::Refused {
        assert!(begin.elapsed() < Duration::from_secs(5), "the effect stays unknown");
    }
    // The error is that of the other calls. The answers of the batch before are reset.
    assert_eq!(store.acquire(&mut ops).await.unwrap_err().kind(), StoreErrorKind::Refused);
    let answered: Vec<bool> = ops.iter().map(|op| op.answer.now_us > 0).collect();
    assert_eq!(answered, [false, true, false, true]);
    assert!(ops.iter().all(|op| (op.answer.granted == 1) == (op.answer.now_us > 0)));
    assert_eq!(taken(&store, &names[1], counted(10_000)).await, 2);
    // So a limiter grants the requests of the other nodes.
    let builder = DistributedLimiter::<String, _>::builder(Quota::per_hour(100), store);
    let limiter = builder.name("nodes").exact().on_outage(OnOutage::Deny).build().unwrap();
    let ask = async |key: &str| limiter.ask(key).await.map(|granted| granted.source()).ok();
    let sources = tokio::join!(ask("{b}3"), ask("{a}3"), ask("{b}4"), ask("{a}4"));
    assert_eq!(sources, (None, Some(Source::Store), None, Some(Source::Store)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_answer_is_lost_is_not_sent_to_a_cluster_again() {
    if !redis_is_installed() {
        return;
    }
    let cluster = Cluster::start(0, &[]).unwrap();
    let node = &cluster.nodes[0];
    // The nodes announce the address of the proxy.
    let proxy = Proxy::start(node.port()).await.unwrap();
    node.command(&["CONFIG", "SET", "cluster-announce-port", &proxy.port().to_string()]).unwrap();
    let store = RedisStore::connect(&format!("redis+cluster://127.0.0.1:{}", proxy.port())).await.unwrap();
    ask(&store, "{b}", counted(10_000), ONE).await.unwrap();
    let mut raw = connection(node);
    let mut state = || redis::cmd("GET").arg("tollgate:{b}").query::<Vec<u8>>(&mut raw).unwrap();
    let before = state();
    proxy.lose(Direction::Answers, true);
    let call = tokio::spawn(async move { (ask(&store, "{b}", counted(10_000), ONE).await, store) });
    assert!(wait_until(Duration::from_secs(2), || state() != before), "the call never came");
    proxy.lose(Direction::Answers, false);
    proxy.cut(Cut::Reset);
    let (answer, store) = call.await.unwrap();
    assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Unknown);
    heal_all(&store, &["{b}".to_owned()]).await;
    assert_eq!(taken(&store, "{b}", counted(10_000)).await, 3);
}

/// Requests of one node's keys, and those that the policy decided.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    requests: u64,
    by_policy: u64,
}

/// Asks for keys of each node, one after the other, for two seconds. A node fails after a half.
async fn beside_a_node(fail: impl FnOnce(&mut Process)) -> [Asked; 3] {
    let mut cluster = Cluster::start(0, &["--cluster-require-full-coverage", "no"]).unwrap();
    let store = RedisStore::connect(&url_of(&cluster)).await.unwrap();
    let builder = DistributedLimiter::<String, _>::builder(Quota::per_second(10_000), store);
    let limiter = builder.name("lanes").exact().on_outage(OnOutage::Deny).build().unwrap();
    let end = Arc::new(AtomicBool::new(false));
    // The slots 3300, 7365 and 15495.
    let nodes = ["{b}", "{c}", "{a}"].map(|tag| {
        let (limiter, end) = (limiter.clone(), Arc::clone(&end));
        tokio::spawn(async move {
            let mut asked = Asked::default();
            while !end.load(Ordering::Relaxed) {
                let key = format!("{tag}{}", asked.requests % 20);
                let source = match limiter.ask(&key).await {
                    Ok(granted) => granted.source(),
                    Err(denied) => denied.source(),
                };
                asked.requests += 1;
                asked.by_policy += u64::from(source == Source::FailOpen);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            asked
        })
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    fail(cluster.nodes[1].process());
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    end.store(true, Ordering::Relaxed);
    let mut asked = Vec::new();
    for node in nodes {
        asked.push(node.await.unwrap());
    }
    println!("{asked:?}");
    asked.try_into().unwrap()
}

/// Of the requests of healthy nodes the policy decides at most one in a hundred.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed_or_frozen_takes_the_limits_of_its_own_keys_alone() {
    if !redis_is_installed() {
        return;
    }
    let kill: fn(&mut Process) = Process::kill;
    for fail in [kill, |process| process.freeze().unwrap()] {
        let [first, sick, last] = beside_a_node(fail).await;
        let healthy = first.requests + last.requests;
        assert!(healthy > 200 && sick.requests > 100, "{first:?}, {sick:?}, {last:?}");
        assert!(sick.by_policy * 2 > sick.requests, "the node did not fail: {sick:?}");
        assert!((first.by_policy + last.by_policy) * 100 <= healthy, "{first:?}, {last:?}");
    }
}

/// Limits whose keys are in one slot are one command, and those of several slots are given back.
#[tokio::test]
async fn calls_of_several_slots_are_granted_together_or_given_back() {
    if !redis_is_installed() {
        return;
    }
    let cluster = Cluster::start(0, &[]).unwrap();
    let store = RedisStore::connect(&url_of(&cluster)).await.unwrap();
    let day = CountSpec::new(Window::per_day(2).utc(), Duration::ZERO).unwrap();
    for (first, second) in [("{a}1", "{a}2"), ("{a}3", "{b}3")] {
        for turn in 0..4 {
            let mut ops = [Op::new(first.as_bytes(), counted(10), ONE), Op::new(second.as_bytes(), day, ONE)];
            let refused = store.acquire_all(&mut ops).await.unwrap();
            assert_eq!(refused, (turn >= 2).then_some(1), "{first}, {second}");
        }
        assert_eq!(taken(&store, first, counted(10)).await, 2, "{first}, {second}");
    }
    assert_eq!(cross_slots(&cluster), 0);
}
