//! The shape of the crate: forms that must compile, and the text of printed values.

use std::collections::HashSet;
use std::error::Error;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tollgate::{
    Builder, Clock, Denied, Equivalent, Granted, InvalidRule, Janitor, MockClock, Pinned, Places, Quota,
    RateLimiter, Reason, Rule, Snapshot, Stats, ToKey, TokenBucket, WhenFull, Window, all_of,
};

use crate::support::file_of_panic;

/// A hasher that a user has written.
#[derive(Clone, Copy, Debug, Default)]
struct Fold(u64);

impl BuildHasher for Fold {
    type Hasher = Fold;

    fn build_hasher(&self) -> Fold {
        *self
    }
}

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A hasher that counts its hashes.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicU64>);

impl BuildHasher for Counted {
    type Hasher = Fold;

    fn build_hasher(&self) -> Fold {
        self.0.fetch_add(1, Relaxed);
        Fold::default()
    }
}

static LIMIT: TokenBucket = TokenBucket::new(Quota::per_second(100));

#[test]
fn a_bucket_is_a_static() {
    assert_eq!(LIMIT.rule(), Quota::per_second(100));
    let granted = LIMIT.try_acquire().expect("it starts full");
    assert_eq!(granted.remaining(), 99);
    assert!(granted.reset_after() <= Duration::from_millis(10));
}

#[test]
fn a_limiter_is_built_in_each_form() {
    let q = Quota::per_hour(2);
    let strings = RateLimiter::<String>::builder(q).build();
    let folded = RateLimiter::<u64>::builder(q).hasher(Fold::default()).build();
    let l: RateLimiter<u64, Quota, Fold> = RateLimiter::builder(q).hasher(Fold::default()).build();
    let seeded = RateLimiter::<u64>::builder(q).hasher(Fold(0xcbf2_9ce4_8422_2325)).build();
    let plain: RateLimiter<u64> = RateLimiter::new(q);
    assert!(strings.try_acquire("a").is_ok());
    for limiter in [&folded, &l, &seeded] {
        assert!(limiter.try_acquire(&1).is_ok());
        assert_eq!((limiter.len(), limiter.rule()), (1, q));
    }
    assert!(plain.try_acquire_n(&1, 2).is_ok());
    assert!(!plain.is_empty());
}

/// As `HashMap::new` does, a builder names the default hasher. No caller of these names one.
#[test]
fn a_builder_infers_its_hasher_as_a_map_of_std_does() {
    fn any<K, S>(_: &RateLimiter<K, Quota, S>) {}
    let (clock, _mock) = Clock::mock();
    any::<u64, _>(&RateLimiter::builder(Quota::per_hour(1)).clock(clock.clone()).build());
    let windows = RateLimiter::builder(Window::per_hour(1)).clock(clock).build();
    assert!(windows.try_acquire(&1_u64).is_ok());
    let places = RateLimiter::builder(Places::new(1)).build();
    assert!(places.try_acquire(&1_u64).is_ok());
}

/// Keys that are shared or boxed are looked up by the slice that they hold, as those of std are.
#[test]
fn a_key_behind_a_pointer_is_found_by_its_slice() {
    fn asked<K: Hash + Eq + Clone, Q: ToKey<K> + ?Sized>(slice: &Q, owned: K) {
        let limiter = RateLimiter::<K>::new(Quota::per_hour(3));
        assert!(limiter.try_acquire(slice).is_ok() && limiter.try_acquire(slice).is_ok());
        // It is one key, in whatever form it is asked.
        assert_eq!(limiter.try_acquire(&owned).map(|granted| granted.remaining()), Ok(0));
        assert_eq!((limiter.len(), limiter.remove(slice)), (1, true));
    }
    asked("ada", Arc::<str>::from("ada"));
    asked("ada", Box::<str>::from("ada"));
    asked("ada", std::rc::Rc::<str>::from("ada"));
    let bytes = &b"ada"[..];
    asked(bytes, Arc::<[u8]>::from(bytes));
    asked(bytes, Box::<[u8]>::from(bytes));
    asked(bytes, std::rc::Rc::<[u8]>::from(bytes));
    asked(&["ada".to_owned()][..], Arc::<[String]>::from(["ada".to_owned()]));
}

#[test]
fn a_decision_hashes_its_key_once_by_the_hasher_of_its_builder() {
    fn hashes_once<R: Rule>(rule: R) {
        let hashes = Counted::default();
        let limiter = RateLimiter::<u64, _>::builder(rule).hasher(hashes.clone()).build();
        for decision in 1..9 {
            assert!(limiter.try_acquire(&(decision % 3)).is_ok());
            assert_eq!(hashes.0.load(Relaxed), decision);
        }
    }
    hashes_once(Quota::per_hour(9));
    hashes_once(Window::per_hour(9));
    hashes_once(Places::new(9));
}

/// A struct whose types can be written from memory.
struct Service {
    by_user: RateLimiter<String>,
    by_peer: RateLimiter<IpAddr>,
    all: Arc<TokenBucket>,
}

#[test]
fn limiters_live_in_a_struct_and_clones_are_one_limiter() {
    let q = Quota::per_hour(1);
    let service = Service {
        by_user: RateLimiter::new(q),
        by_peer: RateLimiter::new(q),
        all: Arc::new(TokenBucket::new(q)),
    };
    let clone = service.by_user.clone();
    assert!(service.by_user.try_acquire("ada").is_ok());
    assert!(clone.try_acquire("ada").is_err(), "a clone is another handle to the same limiter");
    assert!(service.by_peer.try_acquire(&IpAddr::V4(Ipv4Addr::LOCALHOST)).is_ok());
    assert!(service.all.try_acquire().is_ok());
    assert!(service.all.try_acquire().is_err());
}

type Route = (String, IpAddr);

#[derive(Hash)]
struct RouteRef<'a>(&'a str, IpAddr);

impl Equivalent<Route> for RouteRef<'_> {
    fn equivalent(&self, key: &Route) -> bool {
        self.0 == key.0 && self.1 == key.1
    }
}

impl ToKey<Route> for RouteRef<'_> {
    fn to_key(&self) -> Route {
        (self.0.to_owned(), self.1)
    }
}

#[test]
fn a_key_is_found_by_what_is_borrowed_of_it() {
    let q = Quota::per_hour(2);
    let strings = RateLimiter::<String>::new(q);
    assert_eq!(strings.try_acquire("ada").map(|granted| granted.remaining()), Ok(1));
    assert_eq!(strings.try_acquire(&"ada".to_owned()).map(|granted| granted.remaining()), Ok(0));
    assert!(strings.try_acquire("ada").is_err() && strings.try_acquire("bob").is_ok());
    assert!(strings.pin().try_acquire("ada").is_err());
    assert_eq!((strings.peek("ada").remaining(), strings.len()), (0, 2));
    assert!(strings.remove("ada") && !strings.remove("ada"));

    let bytes = RateLimiter::<Vec<u8>>::new(q);
    assert!(bytes.try_acquire_n(&[1_u8, 2, 3][..], 2).is_ok());
    assert!(bytes.try_acquire(&vec![1, 2, 3]).is_err());
    assert_eq!((bytes.peek(&b"\x01\x02\x03"[..]).remaining(), bytes.len()), (0, 1));

    let routes = RateLimiter::<Route>::new(q);
    let (here, there) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::BROADCAST));
    assert!(routes.try_acquire_n(&RouteRef("/login", here), 2).is_ok());
    assert!(routes.try_acquire(&("/login".to_owned(), here)).is_err());
    assert!(routes.try_acquire(&RouteRef("/login", there)).is_ok());
    assert!(routes.remove(&RouteRef("/login", here)));
    assert_eq!(routes.len(), 1);
}

fn send<T: Send + ?Sized>() {}
fn sync<T: Sync + ?Sized>() {}
fn value<T: Copy + PartialEq + Debug + Send + Sync + 'static>() {}

/// Tells whether a type is `Send` or `Sync` without requiring it. An inherent item comes before a
/// trait's.
macro_rules! implements {
    ($type:ty: $trait:ident) => {{
        struct Probe<T: ?Sized>(std::marker::PhantomData<T>);
        trait Otherwise {
            const IT: bool = false;
        }
        impl<T: ?Sized> Otherwise for Probe<T> {}
        impl<T: ?Sized + $trait> Probe<T> {
            const IT: bool = true;
        }
        // `u8` has both constants.
        assert!(Probe::<u8>::IT && !<Probe<u8> as Otherwise>::IT);
        Probe::<$type>::IT
    }};
}

#[test]
fn everything_public_crosses_threads_but_a_pinned_handle() {
    sync::<TokenBucket>();
    send::<TokenBucket>();
    sync::<RateLimiter<String>>();
    send::<RateLimiter<String>>();
    sync::<RateLimiter<Vec<u8>, Quota, Fold>>();
    send::<Builder<String, Quota, Fold>>();
    sync::<Builder<String, Quota, Fold>>();
    send::<Clock>();
    sync::<Clock>();
    send::<MockClock>();
    sync::<MockClock>();
    send::<Janitor>();
    send::<InvalidRule>();
    sync::<InvalidRule>();
    value::<Quota>();
    value::<Granted>();
    value::<Denied>();
    value::<Snapshot>();
    value::<Reason>();
    value::<Stats>();
    value::<WhenFull>();

    assert!(implements!(RateLimiter<String>: Send));
    assert!(!implements!(Pinned<'static, String>: Send) && !implements!(Pinned<'static, String>: Sync));
    // A key that cannot leave its thread keeps its limiter on that thread.
    assert!(!implements!(RateLimiter<std::rc::Rc<str>>: Send));
    assert!(!implements!(RateLimiter<std::cell::Cell<u8>>: Sync));
}

#[test]
fn no_debug_output_has_a_key_in_it() {
    const SECRET: &str = "hunter2";
    let builder = RateLimiter::<String>::builder(Quota::per_hour(1)).max_keys(1);
    let mut printed = vec![format!("{builder:?}"), format!("{builder:#?}")];
    let limiter = builder.build();
    let granted = limiter.try_acquire(SECRET);
    let denied = limiter.try_acquire(SECRET);
    let too_many = limiter.try_acquire_n(SECRET, 2);
    // A key without room.
    let shared = limiter.try_acquire(&format!("{SECRET}{SECRET}"));
    printed.push(format!("{limiter:?} {limiter:#?} {:?} {:?}", limiter.stats(), limiter.pin()));
    printed.push(format!("{granted:?} {denied:?} {too_many:?} {shared:?} {:?}", limiter.peek(SECRET)));
    printed.push(format!("{} {}", denied.unwrap_err(), too_many.unwrap_err()));
    printed.push(format!("{:?}", limiter.janitor(Duration::from_secs(3_600))));
    let (reserved, held) = (limiter.key(SECRET).n(0).reserve(), limiter.key(SECRET).n(0).hold());
    printed.push(format!("{reserved:?} {held:?} {:?}", limiter.key(SECRET)));
    printed.push(format!(
        "{:?} {:?}",
        all_of([limiter.key(SECRET)]),
        limiter.key(SECRET).limited(|_: u8| ())
    ));
    printed.push(format!("{:?}", limiter.key(SECRET).keep(7)));
    let uploads = RateLimiter::<String, _>::new(Places::new(9));
    printed.push(format!(
        "{uploads:?} {:?} {:?}",
        uploads.key(SECRET).hold(),
        uploads.key(SECRET).hold_owned()
    ));
    for text in &printed {
        assert!(!text.contains(SECRET), "{text}");
    }
    // The text has the names of the types all the same.
    let all = printed.concat();
    for name in ["RateLimiter", "1/h burst 1", "Pinned", "Janitor", "Hold", "Ask", "Limited"] {
        assert!(all.contains(name), "{name} is not in {all}");
    }
    for name in ["keep: 7", "rule: 9 places"] {
        assert!(all.contains(name), "{name} is not in {all}");
    }
    assert!(format!("{:?}", TokenBucket::new(Quota::per_hour(7))).contains("7/h burst 7"));
    let clocks = [Clock::new(), Clock::default(), Clock::mock().0];
    assert_eq!(clocks.map(|clock| format!("{clock:?}")), ["Clock(counter)", "Clock(counter)", "Clock(mock)"]);
}

#[test]
fn a_refusal_is_an_error_that_says_why() {
    let (clock, _mock) = Clock::mock();
    let limiter = RateLimiter::<u8>::builder(Quota::per_minute(2)).clock(clock).max_keys(1);
    let limiter = limiter.when_full(WhenFull::Deny).build();
    let _ = limiter.try_acquire(&0);
    let refused = [limiter.try_acquire_n(&0, 2), limiter.try_acquire_n(&0, 3), limiter.try_acquire(&1)];
    let refused = refused.map(|refused| refused.expect_err("it is refused"));
    assert_eq!(refused.map(|denied| denied.reason()), [Reason::Empty, Reason::TooMany, Reason::Full]);
    let said = refused.map(|denied| {
        let error: Box<dyn Error + Send + Sync> = denied.into();
        error.to_string()
    });
    assert_eq!(said[0], "not enough tokens: 1 left, retry after 30s");
    assert_eq!(said[1], "more tokens than the bucket ever holds: hold(1), then settle(3)");
    assert!(said[2].starts_with("no room for a new key, retry after 32.0"), "{}", said[2]);
    assert_eq!(HashSet::from(refused.map(|denied| denied.reason())).len(), 3);
}

#[test]
fn each_reason_is_said_in_words() {
    let bucket = TokenBucket::builder(Quota::per_second(1)).clock(Clock::mock().0).build();
    let other = RateLimiter::<u8>::new(Quota::per_second(1));
    let foreign = other.plan(Quota::per_second(1)).unwrap();
    let limiter = RateLimiter::<u8>::new(Quota::per_second(1));
    assert!(bucket.try_acquire().is_ok());
    let late = bucket.ask().within(Duration::from_millis(5)).blocking_acquire().unwrap_err();
    let _first = bucket.ask().reserve().unwrap();
    let owed = bucket.ask().reserve().unwrap_err();
    let many = vec![bucket.ask(); 65];
    let said = [
        late,
        owed,
        limiter.key(&1).under(&foreign).try_acquire().unwrap_err(),
        all_of(&many[..]).try_acquire().unwrap_err().denied(),
    ];
    let said = said.map(|denied| denied.to_string());
    assert_eq!(said[0], "the tokens come too late, retry after 995ms");
    assert_eq!(
        said[1],
        "1 more tokens do not fit under the bound of 1 promised tokens (max_debt), retry after 1s"
    );
    assert_eq!(said[2], "the plan was made for another limiter");
    assert_eq!(said[3], "more than 64 limits at once");
}

/// A wait is printed as a time, a quota and an error as their texts: no field of a word is.
#[test]
fn debug_output_tells_times_and_texts() {
    let (clock, mock) = Clock::mock();
    let limiter = RateLimiter::<u8>::builder(Quota::per_second(1)).clock(clock.clone()).build();
    let granted = limiter.try_acquire(&1).expect("it is full");
    mock.advance(Duration::from_millis(1));
    let denied = limiter.try_acquire(&1).expect_err("it is empty");
    let never = limiter.try_acquire_n(&1, 2).expect_err("it is over the burst");
    let plan = limiter.plan(Quota::per_minute(1)).expect("there is room");
    let windows = RateLimiter::<u8, _>::new(Window::per_minute(5).sliding());
    let all = all_of([limiter.key(&1), limiter.key(&2)]).try_acquire().expect_err("one is empty");
    let printed = [
        (format!("{granted:?}"), "Granted { tokens: 1, remaining: 0, reset_after: 1s }"),
        (format!("{:?}", limiter.peek(&1)), "Snapshot { remaining: 0, reset_after: 999ms }"),
        (format!("{denied:?}"), "Denied { reason: Empty, asked: 1, remaining: 0, retry_after: 999ms }"),
        (format!("{never:?}"), "Denied { reason: TooMany, asked: 2, remaining: 0, retry_after: None }"),
        (
            format!("{all:?}"),
            "AllDenied { which: 0, denied: Denied { reason: Empty, asked: 1, remaining: 0, retry_after: 999ms } }",
        ),
        (format!("{plan:?}"), "Plan(1/m burst 1)"),
        (format!("{:?}", Quota::per_second(100).burst(200)), "Quota(100/s burst 200)"),
        (format!("{:?}", Quota::at_most(5, Duration::from_secs(60))), "AtMost(at most 5/m)"),
        (format!("{:?}", Window::per_minute(5).sliding()), "Window(5/m sliding)"),
        (
            format!("{:?}", windows.plan(windows.rule().with_limit(3).unwrap()).expect("there is room")),
            "Plan(3/m sliding)",
        ),
        (format!("{:?}", limiter.now()), "Moment(1ms)"),
        (format!("{mock:?}"), "MockClock(1ms)"),
        (
            format!("{:?}", Quota::try_per(0, Duration::from_secs(1)).expect_err("nothing is earned")),
            "InvalidRule(\"a quota of 0 tokens grants nothing: the least is 1\")",
        ),
        (
            format!("{:?}", Window::try_per(0, Duration::from_secs(1)).expect_err("nothing is granted")),
            "InvalidRule(\"a limit of 0 tokens grants nothing: the least is 1\")",
        ),
    ];
    for (text, wanted) in printed {
        assert_eq!(text, wanted);
    }
}

/// The location of a panic on an argument is the line that gave it.
#[test]
fn a_panic_on_an_argument_is_at_the_line_of_its_caller() {
    let calls: [(&str, fn()); 19] = [
        ("per_second", || _ = Quota::per_second(0)),
        ("per_minute", || _ = Quota::per_minute(0)),
        ("per_hour", || _ = Quota::per_hour(0)),
        ("per_day", || _ = Quota::per_day(0)),
        ("per", || _ = Quota::per(0, Duration::from_secs(1))),
        ("every", || _ = Quota::every(Duration::ZERO)),
        ("burst", || _ = Quota::per_second(1).burst(0)),
        ("at_most", || _ = Quota::at_most(1, Duration::from_secs(1)).burst(1)),
        ("window per_second", || _ = Window::per_second(0)),
        ("window per_minute", || _ = Window::per_minute(0)),
        ("window per_hour", || _ = Window::per_hour(0)),
        ("window per_day", || _ = Window::per_day(0)),
        ("window per_month", || _ = Window::per_month(0)),
        ("window per", || _ = Window::per(0, Duration::from_secs(1))),
        ("utc of a long period", || _ = Window::per(1, Duration::MAX).utc()),
        ("utc_offset", || _ = Window::per_day(1).utc_offset(99)),
        ("sliding", || _ = Window::per_hour(1 << 40).sliding()),
        ("weighted", || _ = Window::per_month(1).weighted()),
        ("places", || _ = Places::new(0)),
    ];
    for (name, call) in calls {
        assert_eq!(file_of_panic(call), file!(), "{name}");
    }
}

/// A decision outlives its limiter, and prints the same wait at any later time.
#[test]
fn a_decision_is_a_value() {
    let (clock, mock) = Clock::mock();
    let bucket = TokenBucket::builder(Quota::per_second(4)).clock(clock).build();
    let granted = bucket.try_acquire_n(3).expect("it is full");
    let denied = bucket.try_acquire_n(3).expect_err("one is left");
    mock.advance(Duration::from_secs(100));
    drop(bucket);
    let (again, copy) = (granted, denied);
    assert_eq!((again.remaining(), again.reset_after()), (1, Duration::from_millis(750)));
    assert_eq!((copy.remaining(), copy.retry_after()), (1, Some(Duration::from_millis(500))));
    assert_eq!((granted, denied), (again, copy));
}
