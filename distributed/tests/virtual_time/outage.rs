//! The limiter while the store does not answer.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::{Quota, Reason};
use tollgate_distributed::{
    DistributedLimiter, OnOutage, Op, Source, Store, StoreAnswer, StoreError, StoreErrorKind,
};

use crate::world::{Limiter, Network, World};

const RTT: Duration = Duration::from_millis(2);
const DEADLINE: Duration = Duration::from_millis(50);
const QUOTA: Quota = Quota::per_second(1_000);

fn with_policy(world: &World, policy: OnOutage) -> Limiter {
    world.process(QUOTA).exact().on_outage(policy).build().unwrap()
}

/// Asks until the breaker is open. Returns the longest time of a request.
pub(crate) async fn open(world: &World, limiter: &Limiter) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..40 {
        let before = world.now();
        let _ = limiter.ask(&1).await;
        longest = longest.max(world.now() - before);
        if limiter.stats().breaker_open {
            return longest;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("the breaker is closed: {:?}", limiter.stats());
}

#[tokio::test(start_paused = true)]
async fn no_request_takes_longer_than_the_deadline() {
    let world = World::new(RTT);
    let limiter = with_policy(&world, OnOutage::Deny);
    limiter.ask(&1).await.unwrap();
    world.hangs.store(true, Relaxed);
    let longest = open(&world, &limiter).await;
    assert!(longest <= DEADLINE + Duration::from_millis(1), "{longest:?}");
    // From now on no request waits.
    let before = world.now();
    for key in 0..1_000 {
        let denied = limiter.ask(&key).await.unwrap_err();
        assert_eq!((denied.reason(), denied.source()), (Reason::Unavailable, Source::FailOpen));
        assert!(denied.retry_after().is_some_and(|wait| wait <= Duration::from_millis(500)));
    }
    assert_eq!(world.now(), before);
    // One call and four probes were late.
    assert!(before < DEADLINE * 6, "{before:?} until the breaker opened");
}

/// Hung calls do not hold up the calls after the store answers again.
#[tokio::test(start_paused = true)]
async fn it_heals_within_a_second() {
    for hangs in [true, false] {
        let world = World::new(RTT);
        let limiter = with_policy(&world, OnOutage::Deny);
        let down = if hangs { &world.hangs } else { &world.down };
        down.store(true, Relaxed);
        open(&world, &limiter).await;
        for _ in 0..100 {
            sleep(Duration::from_millis(100)).await;
            assert!(limiter.ask(&1).await.is_err());
        }
        let probes = world.probes.load(Relaxed);
        assert!((20..=60).contains(&probes), "{probes} probes in ten seconds");
        down.store(false, Relaxed);
        let healed = world.now();
        while limiter.ask(&1).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
        let took = world.now() - healed;
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert_eq!(limiter.stats().breaker_opened, 1);
    }
}

/// It answers reads, as a locked file or a replica does.
#[tokio::test(start_paused = true)]
async fn a_store_that_takes_no_writes_is_away() {
    let world = World::new(RTT);
    let limiter = with_policy(&world, OnOutage::Deny);
    world.read_only.store(true, Relaxed);
    open(&world, &limiter).await;
    for _ in 0..100 {
        sleep(Duration::from_millis(100)).await;
        assert!(limiter.stats().breaker_open);
        assert!(limiter.ask(&1).await.is_err());
    }
    assert_eq!(limiter.stats().breaker_opened, 1);
    world.read_only.store(false, Relaxed);
    sleep(Duration::from_secs(1)).await;
    assert!(limiter.ask(&1).await.is_ok());
}

/// An outage grants at most the share of the quota: the bucket begins with that share of the tokens
/// that were left.
#[tokio::test(start_paused = true)]
async fn a_share_of_the_quota_during_an_outage() {
    let world = World::new(RTT);
    let limiter = with_policy(&world, OnOutage::Local { share: 0.25 });
    limiter.key(&7).n(600).ask().await.unwrap();
    world.down.store(true, Relaxed);
    open(&world, &limiter).await;
    let begun = world.now();
    let (mut granted, mut denied) = (0, 0);
    while world.now() - begun < Duration::from_secs(4) {
        match limiter.ask(&7).await {
            Ok(answer) => {
                assert_eq!(answer.source(), Source::Fallback);
                granted += 1;
            }
            Err(answer) => {
                assert_eq!(answer.source(), Source::Fallback);
                denied += 1;
            }
        }
        sleep(Duration::from_millis(1)).await;
    }
    // 400 tokens were left, and some were earned: a quarter of them, and of the rate.
    assert!((1_100..=1_115).contains(&granted), "{granted} granted");
    assert!(denied > 2_000);
    // When the store is back, they are charged there.
    world.down.store(false, Relaxed);
    sleep(Duration::from_secs(1)).await;
    let _ = limiter.ask(&7).await;
    sleep(RTT * 2).await;
    let left = limiter.peek(&7).await.unwrap().remaining();
    assert!(left < 1_000, "{left} left: the bucket was full without the charge");
    let stats = limiter.stats();
    assert_eq!(stats.by_fallback, granted + denied + 5);
}

/// The store answers a probe now and then, and no request of the key.
#[tokio::test(start_paused = true)]
async fn the_share_of_a_key_goes_on_until_the_store_answers_for_it() {
    let world = World::new(RTT);
    let limiter = with_policy(&world, OnOutage::Local { share: 0.5 });
    limiter.key(&7).n(1_000).ask().await.unwrap();
    let (begun, mut granted) = (world.now(), 0);
    for _ in 0..8 {
        world.down.store(true, Relaxed);
        open(&world, &limiter).await;
        while limiter.ask(&7).await.is_ok() {
            granted += 1;
        }
        world.down.store(false, Relaxed);
        while limiter.stats().breaker_open {
            sleep(Duration::from_millis(1)).await;
        }
    }
    let earned = (world.now() - begun).as_millis() as u64 / 2;
    assert!(granted <= earned + 1, "{granted} granted, {earned} earned by the share");
}

pub(crate) async fn heal(world: &World, limiter: &Limiter) {
    world.down.store(false, Relaxed);
    while limiter.stats().breaker_open {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Returns the requests of a key that are granted before the first refusal.
pub(crate) async fn granted(limiter: &Limiter, key: u64) -> u64 {
    let mut granted = 0;
    while limiter.ask(&key).await.is_ok() {
        granted += 1;
    }
    granted
}

/// An answer of the store for the key ends its share, and the next outage has the share of the
/// tokens that are left.
#[tokio::test(start_paused = true)]
async fn an_answer_begins_a_new_share() {
    let world = World::new(RTT);
    let builder = world.process(Quota::per_hour(1_000)).exact();
    let limiter = builder.on_outage(OnOutage::Local { share: 0.5 }).build().unwrap();
    let mut left = 1_000;
    for _ in 0..3 {
        assert_eq!(limiter.ask(&7).await.unwrap().source(), Source::Store);
        left -= 1;
        world.down.store(true, Relaxed);
        open(&world, &limiter).await;
        assert_eq!(granted(&limiter, 7).await, left / 2);
        left -= left / 2;
        heal(&world, &limiter).await;
    }
}

/// A charge that the store has not taken yet is missing in the share.
#[tokio::test(start_paused = true)]
async fn a_share_begins_without_the_tokens_that_are_spent() {
    let world = World::new(RTT);
    let builder = world.process(Quota::per_hour(1_000)).exact();
    let limiter = builder.on_outage(OnOutage::Local { share: 0.5 }).build().unwrap();
    limiter.ask(&7).await.unwrap();
    world.down.store(true, Relaxed);
    open(&world, &limiter).await;
    limiter.charge(&7, 399);
    assert_eq!(granted(&limiter, 7).await, 300, "half of 600");
}

/// A store that answers its probes, and hangs at all other calls.
struct Stuck(Network);

impl Store for Stuck {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        if ops.iter().any(|op| op.key != b":probe") {
            std::future::pending::<()>().await;
        }
        self.0.acquire(ops).await
    }
}

/// A call is given up five seconds after its deadline, and the next one hangs anew. Each is one
/// failure.
#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_opens_no_breaker() {
    let world = World::new(RTT);
    let builder = DistributedLimiter::<u64, _>::builder(QUOTA, Stuck(world.network())).name("stuck");
    let limiter = builder.clock(world.clock()).exact().on_outage(OnOutage::Deny).build().unwrap();
    let mut longest = Duration::ZERO;
    while world.now() < Duration::from_secs(9) {
        let before = world.now();
        assert!(limiter.ask(&1).await.is_err());
        longest = longest.max(world.now() - before);
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(limiter.stats().breaker_opened, 0);
    let probes = world.probes.load(Relaxed);
    assert!((150..=180).contains(&probes), "one in a deadline: {probes}");
    assert!(longest <= DEADLINE + Duration::from_millis(1), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn all_is_granted_and_charged_later() {
    let world = World::new(RTT);
    let limiter = with_policy(&world, OnOutage::Allow);
    world.down.store(true, Relaxed);
    open(&world, &limiter).await;
    for _ in 0..700 {
        assert_eq!(limiter.ask(&7).await.unwrap().source(), Source::FailOpen);
    }
    world.down.store(false, Relaxed);
    // The probe, and a sweep after a second without a request.
    sleep(Duration::from_secs(2)).await;
    let left = limiter.peek(&7).await.unwrap().remaining();
    assert!((300..1_000).contains(&left), "700 were charged, {left} are left");
    for _ in 0..2 {
        world.down.store(true, Relaxed);
        open(&world, &limiter).await;
        for _ in 0..5_000 {
            let _ = limiter.ask(&8).await;
        }
        world.down.store(false, Relaxed);
        while limiter.stats().breaker_open {
            sleep(Duration::from_millis(10)).await;
        }
        // A debt of one burst at most: a second to 0.
        assert!(limiter.ask(&8).await.is_err());
        sleep(Duration::from_millis(990)).await;
        assert!(limiter.ask(&8).await.is_err());
        sleep(Duration::from_millis(20)).await;
        assert!(limiter.ask(&8).await.is_ok());
    }
}

/// A request is decided at the deadline. A lease keeps the tokens of a late answer, and the exact
/// mode gives them back.
#[tokio::test(start_paused = true)]
async fn a_late_grant_is_kept_or_goes_back() {
    late(false).await;
    late(true).await;
}

async fn late(is_exact: bool) {
    let world = World::new(RTT);
    let builder = world.process(Quota::per_hour(10)).on_outage(OnOutage::Deny);
    let limiter = if is_exact { builder.exact() } else { builder }.build().unwrap();
    world.hangs.store(true, Relaxed);
    assert_eq!(limiter.key(&7).n(4).ask().await.unwrap_err().reason(), Reason::Unavailable);
    world.hangs.store(false, Relaxed);
    sleep(Duration::from_millis(10)).await;
    let stats = limiter.stats();
    assert_eq!((stats.calls_late, stats.tokens_granted, stats.tokens_lost), (1, 4, 0));
    assert_eq!((stats.calls_answered, stats.tokens_returned), if is_exact { (1, 4) } else { (0, 0) });
    if is_exact {
        assert_eq!(limiter.peek(&7).await.unwrap().remaining(), 10);
    } else {
        let granted = limiter.key(&7).n(4).try_acquire_local().unwrap();
        assert_eq!((granted.source(), granted.remaining()), (Source::Lease, 6));
    }
}

/// Requests that wait are bounded: one beyond them is decided by the policy.
#[tokio::test(start_paused = true)]
async fn waiting_requests_are_bounded() {
    let world = World::new(RTT);
    let limiter = world.process(QUOTA).exact().on_outage(OnOutage::Deny).max_waiting(10).build().unwrap();
    world.hangs.store(true, Relaxed);
    let mut requests = JoinSet::new();
    for key in 0..100 {
        let (limiter, world) = (limiter.clone(), world.clone());
        requests.spawn(async move {
            let before = world.now();
            assert!(limiter.ask(&key).await.is_err());
            world.now() - before
        });
    }
    let times = requests.join_all().await;
    assert_eq!(times.iter().filter(|time| time.is_zero()).count(), 90);
}

/// A panic of the store ends neither the requests nor the background task.
#[tokio::test(start_paused = true)]
async fn a_panic_of_the_store_is_a_failed_call() {
    let world = World::new(RTT);
    let limiter = with_policy(&world, OnOutage::Deny);
    world.panics.store(true, Relaxed);
    let denied = limiter.ask(&7).await.unwrap_err();
    assert_eq!(denied.reason(), Reason::Unavailable);
    world.panics.store(false, Relaxed);
    assert!(limiter.ask(&7).await.is_ok());
}

/// A store whose answers are any numbers.
struct Liar;

impl Store for Liar {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        for op in ops {
            let number = || RandomState::new().build_hasher().finish() as i64;
            let any = [i64::MIN, i64::MAX, 0, number(), number() % 1_000, op.amount.max];
            let choose = || any[number().rem_euclid(6) as usize];
            op.answer = StoreAnswer {
                granted: choose(),
                credits: choose(),
                now_us: choose() as u64,
                ..StoreAnswer::default()
            };
        }
        Ok(())
    }
}

/// Impossible numbers of a server are clamped to those of the call, and no request hangs.
#[tokio::test(start_paused = true)]
async fn no_number_of_a_server_panics() {
    let world = World::new(RTT);
    for horizon in [Duration::ZERO, Duration::from_millis(100)] {
        let builder = DistributedLimiter::<u64, _>::builder(QUOTA, Liar).name("liar").clock(world.clock());
        let limiter = if horizon.is_zero() { builder.exact() } else { builder.leased(horizon) };
        let limiter = limiter.build().unwrap();
        for request in 0..5_000 {
            let _ = limiter.key(&(request % 7)).n(1 + request % 50).ask().await;
            let _ = limiter.peek(&(request % 7)).await;
            sleep(Duration::from_micros(request % 900)).await;
        }
        let stats = limiter.stats();
        assert_eq!((stats.by_policy, stats.by_fallback, stats.breaker_opened), (0, 0, 0));
        limiter.shutdown().await;
    }
}

/// Keys beyond `max_keys` share one bucket, so an outage does not give each of them a new one.
#[tokio::test(start_paused = true)]
async fn keys_without_room_share_one_local_bucket() {
    let world = World::new(RTT);
    let builder = world.process(QUOTA).exact().on_outage(OnOutage::Local { share: 0.25 });
    let limiter = builder.max_keys(1).build().unwrap();
    world.down.store(true, Relaxed);
    open(&world, &limiter).await;
    let mut granted = 0;
    for request in 0..2_000 {
        granted += u64::from(limiter.ask(&(100 + request % 500)).await.is_ok());
    }
    assert_eq!(granted, 250);
    sleep(Duration::from_secs(1)).await;
    for request in 0..1_000 {
        granted += u64::from(limiter.ask(&(5_000 + request)).await.is_ok());
    }
    assert_eq!(granted, 500);
    // Neither an answer in between nor another quota fills it.
    world.down.store(false, Relaxed);
    while limiter.stats().breaker_open {
        sleep(Duration::from_millis(1)).await;
    }
    world.down.store(true, Relaxed);
    open(&world, &limiter).await;
    let ask_all = async || {
        let mut granted = 0;
        for request in 0..1_000 {
            granted += u64::from(limiter.ask(&(9_000 + request)).await.is_ok());
        }
        granted
    };
    let granted = ask_all().await;
    assert!(granted < 250, "{granted}");
    limiter.set_rule(QUOTA).unwrap();
    assert_eq!(ask_all().await, 0);
}

/// A store of two servers, of which one is down: it has the keys that end with an odd digit.
struct Halved;

impl Store for Halved {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        let mut failed = Ok(());
        for op in ops {
            if op.key.last().is_some_and(|digit| digit % 2 == 1) {
                failed = Err(StoreError::new(StoreErrorKind::Unknown, "a server is down"));
            } else {
                op.answer = StoreAnswer { granted: op.amount.max, now_us: 1, ..StoreAnswer::default() };
            }
        }
        failed
    }
}

/// A call that fails in part grants the tokens of the answers that came.
#[tokio::test(start_paused = true)]
async fn a_call_that_fails_in_part_has_the_other_answers() {
    let limiter =
        DistributedLimiter::<u64, _>::builder(QUOTA, Halved).name("halved").exact().on_outage(OnOutage::Deny);
    let limiter = limiter.build().unwrap();
    let asked = tokio::join!(limiter.ask(&1), limiter.ask(&2), limiter.ask(&3), limiter.ask(&4));
    let sources = [asked.0, asked.1, asked.2, asked.3].map(|of| of.map(|granted| granted.source()).ok());
    assert_eq!(sources, [None, Some(Source::Store), None, Some(Source::Store)]);
    let stats = limiter.stats();
    assert_eq!((stats.calls_unknown, stats.tokens_used, stats.tokens_lost), (1, 2, 2));
}
