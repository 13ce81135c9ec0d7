//! The counts of envoyproxy/ratelimit, beside a small program that writes as that service does.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use redis::Connection;
use tollgate::{Clock, MockClock, Window};
use tollgate_distributed::{
    Amount, CountSpec, IncrStore, Law, Op, RedisStore, Store, StoreAnswer, StoreErrorKind,
};
use tollgate_test_servers::redis::{Cluster, redis_is_installed};

use super::cluster::url_of;
use super::engine::{LOOK, ONE, ask, connection, counted, server};
use crate::engine::now_us;

pub(super) const DAY: u64 = 86_400;

/// The lengths of the service's units in seconds, by its `UnitToDivider`.
const UNITS: [u64; 7] = [1, 60, 3_600, DAY, 7 * DAY, 30 * DAY, 365 * DAY];

pub(super) fn fixed(limit: u64, seconds: u64) -> CountSpec {
    CountSpec::new(Window::per(limit, Duration::from_secs(seconds)).utc(), Duration::ZERO).unwrap()
}

pub(super) fn take(n: i64) -> Amount {
    Amount { min: 1, max: n, ..Amount::default() }
}

/// A store on a clock that the test moves, which stands at the present time.
fn store_at(url: &str) -> (IncrStore, TestClock) {
    let (clock, mock) = Clock::mock();
    mock.advance(Duration::from_micros(now_us()));
    let store = IncrStore::new(RedisStore::builder().lazy(url).unwrap()).clock(clock.clone());
    (store, TestClock(clock, mock))
}

struct TestClock(Clock, MockClock);

impl TestClock {
    fn advance(&self, by: Duration) {
        self.1.advance(by);
    }

    fn seconds(&self) -> u64 {
        self.0.unix_time().as_secs()
    }
}

/// The writes of the service for a descriptor: `src/limiter/cache_key.go` makes the key,
/// `src/redis/fixed_cache_impl.go` sends the commands.
pub(super) struct Reference(pub(super) Vec<Connection>);

impl Reference {
    /// Counts hits, and returns the count.
    fn hit(&mut self, key: &str, unit: u64, now: u64, hits: u64) -> i64 {
        let name = format!("{key}{}", now / unit * unit);
        let incr = redis::cmd("INCRBY").arg(&name).arg(hits).to_owned();
        let expire = redis::cmd("EXPIRE").arg(&name).arg(unit).to_owned();
        // The node that has the slot answers.
        let mut of_node = |connection: &mut Connection| -> Option<i64> {
            let (count, _): (i64, i64) =
                redis::pipe().add_command(incr.clone()).add_command(expire.clone()).query(connection).ok()?;
            Some(count)
        };
        self.0.iter_mut().find_map(&mut of_node).expect("a node has the slot")
    }

    /// Lets a key stay that was just hit, and returns the seconds to its expiry; `None` if it has
    /// expired meanwhile.
    fn keep(&mut self, name: &str) -> Option<u64> {
        let mut of_node = |connection: &mut Connection| -> Option<(i64, bool)> {
            redis::pipe().ttl(name).persist(name).query(connection).ok()
        };
        let (ttl, _) = self.0.iter_mut().find_map(&mut of_node).expect("a node has the slot");
        u64::try_from(ttl).ok()
    }

    /// Returns the counts and the seconds to their expiry, by the names of their keys.
    pub(super) fn all(&mut self) -> BTreeMap<String, (i64, i64)> {
        let mut all = BTreeMap::new();
        for node in &mut self.0 {
            let names: Vec<String> = redis::cmd("KEYS").arg("*").query(node).unwrap();
            for name in names {
                let read = redis::pipe().get(&name).ttl(&name).query(node).unwrap();
                all.insert(name, read);
            }
        }
        all
    }
}

/// Hits by the store and by the reference, at random times and in any order.
async fn one_count(store: &IncrStore, clock: &TestClock, reference: &mut Reference, steps: u64) {
    let mut counts: HashMap<(String, u64), u64> = HashMap::new();
    let mut state = 0x5DEE_CE66_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for step in 0..steps {
        let passed = [0, 0, 300, 999, 61_000][random(5) as usize];
        clock.advance(Duration::from_millis(passed));
        let now = clock.seconds();
        let (unit, hits, limit) = (UNITS[random(7) as usize], random(4), 1 + random(40));
        // Each descriptor has one limit.
        let key = format!("domain_key_value {}_unit_{unit}_", random(3));
        let start = now / unit * unit;
        let count = counts.entry((key.clone(), start)).or_default();
        let before = *count;
        *count += hits;
        let name = format!("{key}{start}");
        if random(2) == 0 {
            assert_eq!(reference.hit(&key, unit, now, hits), *count as i64, "step {step}");
            let ttl = reference.keep(&name);
            assert!(ttl.is_none_or(|ttl| is_of(ttl, unit)), "step {step}: {ttl:?} s");
            if ttl.is_none() {
                *count = 0;
            }
            continue;
        }
        let amount = Amount { min: random(3) as i64, max: hits as i64, ..Amount::default() };
        let answer = ask(store, &key, fixed(limit, unit), amount).await.unwrap();
        assert_eq!(answer.credits, limit as i64 - *count as i64, "step {step}");
        let there = limit.saturating_sub(before).min(hits) as i64;
        assert_eq!(answer.granted, if there >= amount.min { there } else { 0 }, "step {step}");
        assert_eq!((answer.edge_us, answer.freed), ((start + unit) * 1_000_000, *count), "step {step}");
        if hits > 0 {
            let ttl = reference.keep(&name);
            assert!(ttl.is_none_or(|ttl| is_of(ttl, unit)), "step {step}: {ttl:?} s");
            if ttl.is_none() {
                *count = 0;
            }
        }
    }
    let name = |((key, start), &count): (&(String, u64), &u64)| (format!("{key}{start}"), count as i64);
    let counted: BTreeMap<String, i64> = counts.iter().map(name).filter(|(_, count)| *count > 0).collect();
    // The reference counts no hit as well, and leaves a key.
    let stored = reference.all().into_iter().map(|(name, (count, _))| (name, count));
    assert_eq!(stored.filter(|(_, count)| *count > 0).collect::<BTreeMap<_, _>>(), counted);
}

/// Tells whether a time to an expiry is that of a key that was hit less than a minute ago.
fn is_of(ttl: u64, unit: u64) -> bool {
    (unit.saturating_sub(60)..=unit).contains(&ttl)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_and_reference_have_one_count_in_a_server() {
    let Some(server) = server() else { return };
    let (store, clock) = store_at(&server.url());
    one_count(&store, &clock, &mut Reference(vec![connection(&server)]), 3_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_and_reference_have_one_count_in_a_cluster() {
    if !redis_is_installed() {
        return;
    }
    let cluster = Cluster::start(0, &[]).unwrap();
    let (store, clock) = store_at(&url_of(&cluster));
    let mut reference = Reference(cluster.nodes.iter().map(connection).collect());
    one_count(&store, &clock, &mut reference, 1_000).await;
    let moved = cluster.nodes.iter().filter(|node| node.info("errorstats", "errorstat_MOVED").is_ok());
    // The reference of the test asks each node.
    assert!(moved.count() <= 2, "the store asks the master of the slot first");
}

/// Keys in all slots, in one call; and a slot that moves meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_loses_no_hit_and_counts_none_twice() {
    if !redis_is_installed() {
        return;
    }
    let cluster = Cluster::start(0, &[]).unwrap();
    let (store, _clock) = store_at(&url_of(&cluster));
    // The slot of {a} is 15495, of the last third; those of the others are anywhere.
    let keys: Vec<String> = (0..40).map(|key| format!("{{a}}{key}_")).collect();
    let others: Vec<String> = (0..40).map(|key| format!("other {key}_")).collect();
    let load = async {
        for _ in 0..200 {
            let all = keys.iter().chain(&others);
            let mut ops: Vec<Op<'_>> =
                all.map(|key| Op::new(key.as_bytes(), fixed(9, DAY), take(3))).collect();
            store.acquire(&mut ops).await.unwrap();
            assert!(ops.iter().all(|op| op.answer.now_us > 0));
        }
    };
    let moves = tokio::task::spawn_blocking(move || {
        cluster.migrate(15_495, 2, 0).unwrap();
        cluster
    });
    let (_, cluster) = tokio::join!(load, moves);
    let cluster = cluster.unwrap();
    let all = Reference(cluster.nodes.iter().map(connection).collect()).all();
    assert_eq!(all.len(), 80);
    for (name, (count, ttl)) in all {
        assert_eq!(count, 3 * 200, "{name}");
        assert!(ttl > 0, "{name} never expires");
    }
}

#[tokio::test]
async fn hits_beyond_the_limit_are_counted_and_what_fits_is_granted() {
    let Some(server) = server() else { return };
    let (store, clock) = store_at(&server.url());
    let spec = fixed(10, DAY);
    let spent = |spent, max| Amount { min: 1, max, spent, of_us: 0 };
    // The amount, the tokens granted, and those left.
    for (amount, granted, left) in [
        (LOOK, 0, 10),
        (take(4), 4, 6),
        (LOOK, 0, 6),
        (spent(3, 2), 2, 1),
        (take(5), 1, -4),
        (take(1), 0, -5),
        (spent(2, 0), 0, -7),
        (Amount { min: 3, max: 3, ..Amount::default() }, 0, -10),
        (Amount { min: 0, max: -12, ..Amount::default() }, -12, 2),
        (Amount { min: 3, max: 5, ..Amount::default() }, 0, -3),
        (Amount { min: 0, max: i64::MIN, ..Amount::default() }, -13, 10),
        (Amount { min: 0, max: -1, ..Amount::default() }, 0, 10),
    ] {
        let answer = ask(&store, "key_", spec, amount).await.unwrap();
        assert_eq!((answer.granted, answer.credits), (granted, left), "{amount:?}");
        assert_eq!(answer.credits + answer.freed as i64, 10);
    }
    // Tokens of another window are dropped.
    let today = ask(&store, "key_", spec, take(3)).await.unwrap().edge_us;
    clock.advance(Duration::from_secs(DAY));
    ask(&store, "key_", spec, take(3)).await.unwrap();
    for amount in [Amount { max: -1, of_us: today, ..LOOK }, Amount { spent: 1, of_us: today, ..LOOK }] {
        assert_eq!(ask(&store, "key_", spec, amount).await.unwrap().credits, 7);
    }
    let tomorrow = today + DAY * 1_000_000;
    let back = Amount { max: -1, of_us: tomorrow, ..LOOK };
    assert_eq!(ask(&store, "key_", spec, back).await.unwrap().credits, 8);
    let most = ask(&store, "most_", fixed(10, DAY), Amount { max: i64::MAX, ..LOOK }).await.unwrap();
    assert_eq!((most.granted, most.credits), (10, 10 - ((1 << 53) - 1)));
}

#[tokio::test]
async fn calls_all_or_none_give_back_what_was_granted() {
    let Some(server) = server() else { return };
    let (store, _clock) = store_at(&server.url());
    let calls =
        [("wide_", 9), ("narrow_", 1)].map(|(key, limit)| Op::new(key.as_bytes(), fixed(limit, DAY), ONE));
    for (refused, left) in [(None, [8, 0]), (Some(1), [8, 0])] {
        let mut ops = calls;
        assert_eq!(store.acquire_all(&mut ops).await.unwrap(), refused);
        assert_eq!(ask(&store, "wide_", fixed(9, DAY), LOOK).await.unwrap().credits, left[0]);
        assert!(ask(&store, "narrow_", fixed(1, DAY), LOOK).await.unwrap().credits <= left[1]);
    }
}

#[tokio::test]
async fn laws_that_the_reference_lacks_are_errors_of_their_calls_with_the_reason() {
    let Some(server) = server() else { return };
    let (store, _clock) = store_at(&server.url());
    let count = |rule: &str| Law::from(CountSpec::new(rule.parse().unwrap(), Duration::ZERO).unwrap());
    for (law, why) in [
        (Law::from(counted(5)), "a bucket is no count"),
        (count("5/d sliding"), "sliding"),
        (count("5/d fixed"), "first use"),
        (count("5/month fixed utc"), "month"),
        (count("5/1500ms fixed utc"), "whole seconds"),
    ] {
        let checked = IncrStore::check(&law).unwrap_err();
        let mut ops = [Op::new(b"bad_", law, ONE), Op::new(b"good_", fixed(5, DAY), ONE)];
        let error = store.acquire(&mut ops).await.unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (StoreErrorKind::Permanent, checked.to_string()));
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!([ops[0].answer.now_us > 0, ops[1].answer.now_us > 0], [false, true]);
    }
    let leased = ask(&store, "good_", fixed(5, DAY).leased(), take(3)).await.unwrap_err();
    assert!(leased.to_string().contains("no lease"), "{leased}");
    IncrStore::check(&fixed(5, DAY).into()).unwrap();
}

#[tokio::test]
async fn a_key_that_holds_no_number_fails_its_call_alone() {
    let Some(server) = server() else { return };
    let (store, _clock) = store_at(&server.url());
    let start = now_us() / 1_000_000 / DAY * DAY;
    let name = format!("bad_{start}");
    let mut raw = connection(&server);
    let mut bad = 0;
    for make in
        [&["SADD", &name, "member"][..], &["SET", &name, "text"], &["SET", &name, "9223372036854775807"]]
    {
        server.command(&["DEL", &name]).unwrap();
        server.command(make).unwrap();
        for amount in [ONE, LOOK, Amount { max: -1, ..LOOK }] {
            let mut ops =
                [Op::new(b"bad_", fixed(9_000, DAY), amount), Op::new(b"good_", fixed(9_000, DAY), ONE)];
            let called = store.acquire(&mut ops).await;
            assert!(ops[1].answer.granted == 1, "{make:?}: {called:?}");
            let Err(error) = called else {
                // A large number can be read, and given back from.
                assert!(make[2].starts_with('9') && amount != ONE, "{make:?} {amount:?}");
                continue;
            };
            bad += 1;
            assert_eq!(
                (error.kind(), ops[0].answer),
                (StoreErrorKind::Permanent, StoreAnswer::default()),
                "{error}"
            );
            assert!(error.to_string().contains(&name), "{error}");
        }
    }
    assert_eq!(bad, 7);
    let good: i64 = redis::cmd("GET").arg(format!("good_{start}")).query(&mut raw).unwrap();
    assert_eq!(good, 9);
}

#[tokio::test]
async fn an_expiry_is_the_period_and_a_part_of_the_jitter() {
    let Some(server) = server() else { return };
    let (store, _clock) = store_at(&server.url());
    let store = store.jitter(Duration::from_secs(300)).prefix("prefix:");
    let mut longer = Vec::new();
    for key in 0..40 {
        ask(&store, &format!("{key}_"), fixed(9, DAY), ONE).await.unwrap();
    }
    for (name, (_, ttl)) in Reference(vec![connection(&server)]).all() {
        assert!(name.starts_with("prefix:"), "{name}");
        let by = ttl - DAY as i64;
        // A second may pass meanwhile.
        assert!((-1..300).contains(&by), "{name}: {by} s");
        longer.push(by);
    }
    longer.sort_unstable();
    assert!(longer.len() == 40 && longer[39] - longer[0] > 100, "{longer:?}");
}
