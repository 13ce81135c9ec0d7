// promise: state
//! State over a restart: a restored limiter beside one that went on, under the same calls.

mod full;
mod restarts;
mod shared;

use std::hash::{BuildHasher, DefaultHasher, Hasher as _};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use tollgate::{
    Clock, KeyBytes, NotRestored, Places, Quota, RateLimiter, TokenBucket, Window, WindowCounter,
};

/// A hasher of a process, whose keys may outlive it.
#[derive(Clone, Copy, Default)]
struct Hasher {
    process: u64,
}

impl BuildHasher for Hasher {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.process);
        hasher
    }
}

type Keys<R> = RateLimiter<u64, R, Hasher>;

fn reason(result: Result<(), NotRestored>) -> String {
    result.expect_err("it is refused").to_string()
}

#[test]
fn a_state_that_is_not_of_the_limiter_changes_nothing() {
    let (clock, _mock) = Clock::mock();
    let build = |quota: Quota| RateLimiter::<String>::builder(quota).clock(clock.clone());
    let limiter = build(Quota::per_hour(5)).build();
    assert!(limiter.key("ada").n(3).try_acquire().is_ok());
    let bytes = limiter.save();

    let other = build(Quota::per_hour(5)).max_keys(8).build();
    for len in 0..bytes.len() {
        assert!(other.restore(&bytes[..len]).is_err(), "cut to {len} bytes");
    }
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(other.restore(&damaged).is_err(), "damaged at {at}");
    }
    assert!(other.is_empty());
    let mut next = bytes.clone();
    next[8] = 2;
    assert_eq!(reason(other.restore(&next)), "the state has version 2, and this program reads version 1");
    assert_eq!(
        reason(build(Quota::per_hour(6)).build().restore(&bytes)),
        "the state is of `5/h burst 5`, and the limiter has `6/h burst 6`"
    );
    let roomy = build(Quota::per_hour(5)).headroom(Quota::per_hour(9_000)).unwrap().build();
    assert!(reason(roomy.restore(&bytes)).starts_with("the state is of words with other room"));
    let table = build(Quota::per_hour(5)).max_keys(8).inline().unwrap().build();
    assert_eq!(
        reason(table.restore(&bytes)),
        "the state is of a map of keys, and the limiter is a table of keys"
    );
    assert!(table.try_acquire("ada").is_ok());
    let another = build(Quota::per_hour(5)).max_keys(8).inline().unwrap().build();
    assert!(reason(another.restore(&table.save())).contains("another hasher"));
    let numbers = RateLimiter::<u32>::builder(Quota::per_hour(5)).clock(clock.clone()).build();
    assert!(reason(numbers.restore(&bytes)).contains("a key or a word"));

    other.restore(&bytes).expect("it is the state of such a limiter");
    assert_eq!(other.peek("ada").remaining(), 2);
}

#[test]
fn takes_of_before_and_of_another_state_count_as_well() {
    let (clock, _mock) = Clock::mock();
    let build = || RateLimiter::<u64>::builder(Quota::per_hour(9)).clock(clock.clone()).max_keys(1).build();
    let limiter = build();
    assert!(limiter.key(&1).n(4).try_acquire().is_ok());
    assert!(limiter.key(&2).n(3).try_acquire().is_ok(), "it shares a bucket");
    assert!(limiter.shared().n(5).try_acquire().is_ok());
    let bytes = limiter.save();
    let restored = build();
    restored.restore(&bytes).unwrap();
    let left = |key| restored.peek(&key).remaining();
    // By another hasher each bucket that keys share may be that of the key.
    assert_eq!((left(1), left(2), left(3)), (5, 6, 6));
    assert_eq!(restored.shared().peek().remaining(), 4);
    restored.restore(&bytes).unwrap();
    assert_eq!((left(1), left(2), left(3)), (1, 3, 3));
    assert_eq!(restored.shared().peek().remaining(), 0);

    let twice = RateLimiter::<u64>::builder(Quota::per_hour(9)).clock(clock.clone()).build();
    assert!(twice.key(&1).n(2).try_acquire().is_ok());
    twice.restore(&bytes.clone()).unwrap();
    assert_eq!(twice.peek(&1).remaining(), 3);
    twice.restore(&bytes).unwrap();
    assert_eq!(twice.peek(&1).remaining(), 0);
}

/// A table takes the keys of a full one, of any size that has room for them, fresh or in use.
#[test]
fn a_table_takes_the_keys_of_another_one() {
    let (clock, _mock) = Clock::mock();
    let build = |keys: usize| -> Keys<Quota> {
        let builder = RateLimiter::builder(Quota::per_hour(90)).clock(clock.clone());
        builder.hasher(Hasher::default()).max_keys(keys).inline().expect("a small table").build()
    };
    let used = |key: u64| 1 + key % 7;
    let full = build(6_000);
    let held = |keys: &Keys<Quota>| (0..6_600).filter(|key| keys.contains(key)).count();
    for key in 0..6_600 {
        assert!(full.key(&key).n(used(key)).try_acquire().is_ok());
    }
    let keys = held(&full);
    assert!(keys > 6_400 && full.stats().shared > 0, "{keys} keys have a slot");
    let bytes = full.save();
    for (size, before) in [(6_000, 0), (6_000, 1), (20_000, 0), (20_000, 7_000), (6_007, 0)] {
        let restored = build(size);
        for key in 0..before {
            assert!(restored.key(&key).n(2).try_acquire().is_ok());
        }
        restored.restore(&bytes).expect("there is room");
        // Keys for which there is no room share buckets, whose tokens others lack then.
        let all_fit = size == 20_000 || (size, before) == (6_000, 0);
        for key in (0..6_600).filter(|key| full.contains(key)) {
            let left = full.peek(&key).remaining() - if key < before { 2 } else { 0 };
            let found = restored.peek(&key).remaining();
            assert!(found == left || !all_fit && found < left, "{size}: key {key} has {found}, not {left}");
        }
        assert!(before > 0 || size == 6_007 || held(&restored) == keys, "{size}");
        assert!(restored.stats().keys >= held(&restored));
    }
}

#[test]
fn a_bucket_keeps_its_leases_its_debt_and_its_calendar() {
    let (clock, mock) = Clock::mock();
    let spread = || {
        let builder = TokenBucket::builder(Quota::per_second(1_000).burst(10_000));
        builder.clock(clock.clone()).spread().build()
    };
    let hot = spread();
    assert_eq!((0..200).filter(|_| hot.try_acquire().is_ok()).count(), 200);
    let restored = spread();
    restored.restore(&hot.save()).unwrap();
    assert_eq!(restored.peek().remaining(), 9_800);

    let owes = || TokenBucket::builder(Quota::per_second(1).burst(2)).clock(clock.clone()).build();
    let bucket = owes();
    assert!(bucket.try_acquire_n(2).is_ok());
    let _ = bucket.ask().n(2).reserve().unwrap().commit();
    let bytes = bucket.save();
    mock.advance(Duration::from_millis(1_500));
    let restored = owes();
    restored.restore(&bytes).unwrap();
    let wait = restored.try_acquire().unwrap_err().retry_after();
    assert_eq!(wait, Some(Duration::from_millis(1_500)));
    // A wall clock that is behind the save earns nothing.
    mock.rewind(Duration::from_secs(60));
    let behind = owes();
    behind.restore(&bytes).unwrap();
    assert_eq!(behind.try_acquire().unwrap_err().retry_after(), Some(Duration::from_secs(3)));

    let daily = || WindowCounter::builder(Window::per_day(5).utc()).clock(clock.clone()).build();
    let window = daily();
    assert!(window.try_acquire_n(5).is_ok());
    let bytes = window.save();
    let restored = daily();
    restored.restore(&bytes).unwrap();
    assert!(restored.try_acquire().is_err());
    mock.advance(Duration::from_secs(86_400));
    let next_day = daily();
    next_day.restore(&bytes).unwrap();
    assert!(next_day.try_acquire_n(5).is_ok());
}

#[test]
fn places_in_use_end_with_their_process() {
    let limiter = RateLimiter::<u8, _>::new(Places::new(2));
    assert!(limiter.try_acquire(&1).is_ok());
    let restored = RateLimiter::<u8, _>::new(Places::new(2));
    restored.restore(&limiter.save()).unwrap();
    assert!(restored.is_empty());
}

#[test]
fn keys_have_a_form_in_bytes() {
    fn back<K: KeyBytes + PartialEq>(key: K) -> bool {
        let mut bytes = Vec::new();
        key.write(&mut bytes);
        K::read(&bytes) == Some(key)
    }
    assert!(back(7_u128) && back(-7_i16) && back("ada".to_owned()) && back(vec![1_u8, 2]));
    assert!(back(IpAddr::from([192, 0, 2, 7])) && back(IpAddr::from([7_u16; 8])) && back([1_u8; 3]));
    assert!(back(("ada".to_owned(), ("".to_owned(), 9_u32))));
    assert_eq!(<(String, u8)>::read(&[255; 9]), None);
    assert_eq!(String::read(&[255]), None);
}

#[test]
fn decisions_go_on_while_a_limiter_is_saved_and_restored() {
    let quota = Quota::per_day(1).burst(1_000);
    let build = || RateLimiter::<u64>::builder(quota).hasher(Hasher::default());
    let stores: [&dyn Fn() -> RateLimiter<u64, Quota, Hasher>; 2] =
        [&|| build().build(), &|| build().max_keys(4_000).inline().unwrap().build()];
    for store in stores {
        let limiter = store();
        let (stop, granted) = (AtomicBool::new(false), AtomicU64::new(0));
        let bytes = thread::scope(|scope| {
            let caller = scope.spawn(|| {
                let mut key = 0;
                while !stop.load(Relaxed) || key < 4_000 {
                    granted.fetch_add(limiter.try_acquire(&(key % 1_000)).is_ok().into(), Relaxed);
                    key += 1;
                }
            });
            let saves: Vec<_> = (0..20).map(|_| limiter.save()).collect();
            stop.store(true, Relaxed);
            caller.join().expect("the caller ends");
            saves
        });
        let granted_since = |bytes: &[u8]| {
            let restored = store();
            restored.restore(bytes).expect("each save is whole");
            (0..1_000).map(|key| 1_000 - restored.peek(&key).remaining()).sum::<u64>()
        };
        let taken: Vec<_> = bytes.iter().map(|bytes| granted_since(bytes)).collect();
        assert!(taken.is_sorted() && taken[19] <= granted.load(Relaxed), "{taken:?}");
        assert_eq!(granted_since(&limiter.save()), granted.load(Relaxed));
    }
}
