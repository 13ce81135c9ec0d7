//! Updates over a stream in virtual time: each is accepted with its version, or refused with a
//! sentence, and the rules are those of the last accepted one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tollgate_common::log::LogHandle;

use super::super::back_off::BackOff;
use super::super::messages::{AnyMessage, ConfigDescriptor, ConfigMessage, DiscoveryRequest, TYPE};
use super::super::settings::BackOffSettings;
use super::control_plane::{Stream, World, limited, update, yearly};
use crate::serve::counts::Algorithm;
use crate::serve::messages::{Code, ValueKind};
use crate::serve::pages;
use crate::serve::reload::{Looks, Source};
use crate::serve::shared::settings::{Layout, StoreSettings, StoreUrl};
use crate::serve::shared::tests as shared;
use crate::serve::state::Condition;

/// The version, the nonce and the reason of an answer.
fn told(answer: &DiscoveryRequest) -> (&str, &str, Option<&str>) {
    let why = answer.error_detail.as_ref().map(|detail| {
        assert_eq!(detail.code, 3, "INVALID_ARGUMENT");
        &*detail.message
    });
    (&answer.version_info, &answer.response_nonce, why)
}

#[tokio::test(start_paused = true)]
async fn the_first_request_names_the_node_and_each_answer_the_version() {
    let world = World::new(&[
        ("CONFIG_GRPC_XDS_NODE_ID", "edge-7"),
        ("CONFIG_GRPC_XDS_NODE_METADATA", "zone=eu,stage=a=b"),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "x-key:secret,x-other: two"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "dns:///plane:18000"),
    ]);
    let mut pipes = world.follow();
    let mut stream = pipes.stream().await;
    let path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
    assert_eq!(stream.head.uri().to_string(), format!("http://plane:18000{path}"));
    for (name, value) in
        [("x-key", "secret"), ("x-other", "two"), ("content-type", "application/grpc"), ("te", "trailers")]
    {
        assert_eq!(stream.head.headers()[name], value);
    }
    let first = stream.request().await.unwrap();
    assert_eq!(told(&first), ("", "", None));
    assert_eq!(first.type_url, TYPE);
    let node = first.node.clone().unwrap();
    let metadata: Vec<_> = node.metadata.unwrap().fields.into_iter().collect();
    assert_eq!(node.id, "edge-7");
    let text = |value: &str| Some(ValueKind::Text(value.to_owned()));
    assert_eq!(
        metadata.iter().map(|(name, value)| (&**name, value.kind.clone())).collect::<Vec<_>>(),
        [("stage", text("a=b")), ("zone", text("eu")),]
    );
    let answer = stream.update(&update("1", &[yearly("shop", "user", 3)])).await;
    assert_eq!(told(&answer), ("1", "n1", None));
    assert_eq!((&answer.node, &answer.type_url), (&first.node, &first.type_url));
    assert_eq!(world.ask("shop", &[("user", "a")], 1).await, (Code::Ok, 2));
    assert_eq!(
        world.rlconfig(),
        "# version \"1\" of the control plane plane:18000\n\
         shop.user: unit=YEAR requests_per_unit=3, shadow_mode: false, quota_mode: false\n"
    );
}

/// The counts go on over each update: a raised limit has the difference at once.
#[tokio::test(start_paused = true)]
async fn a_refused_update_keeps_the_rules_and_a_good_one_moves_no_count() {
    let world = World::new(&[]);
    let mut pipes = world.follow();
    let mut stream = pipes.stream().await;
    stream.request().await.unwrap();
    let good = update("1", &[yearly("shop", "user", 5)]);
    assert_eq!(told(&stream.update(&good).await), ("1", "n1", None));
    assert_eq!(world.ask("shop", &[("user", "a")], 4).await, (Code::Ok, 1));
    let doubled = [yearly("shop", "user", 9), ConfigMessage { name: "b".into(), ..yearly("shop", "x", 1) }];
    let answer = stream.update(&update("2", &doubled)).await;
    let why = "b: duplicate domain 'shop' in config file; the first is at shop-config, \
               MERGE_DOMAIN_CONFIG=true merges both";
    assert_eq!(told(&answer), ("1", "n2", Some(why)));
    assert_eq!(world.ask("shop", &[("user", "a")], 0).await, (Code::Ok, 1), "the rules stay");
    let raised = stream.update(&update("3", &[yearly("shop", "user", 9)])).await;
    assert_eq!(told(&raised), ("3", "n3", None));
    assert_eq!(world.ask("shop", &[("user", "a")], 1).await, (Code::Ok, 4));
    // A version that is older by its name is one as any other.
    assert_eq!(told(&stream.update(&good).await), ("1", "n1", None));
    assert_eq!(world.ask("shop", &[("user", "a")], 1).await, (Code::OverLimit, 0));
    let counted = ["config_load_success", "config_load_error"].map(|name| world.counted(name));
    assert_eq!(counted, [3, 1]);
    let metrics = pages::metrics(world.service());
    for line in [
        "tollgate_serve_xds_connected 1",
        "tollgate_serve_xds_updates_total{outcome=\"accepted\"} 3",
        "tollgate_serve_xds_updates_total{outcome=\"refused\"} 1",
    ] {
        assert!(metrics.contains(&format!("\n{line}\n")), "{line}: {metrics}");
    }
}

/// Neither is a load: the same version once more, and a stream that begins anew.
#[tokio::test(start_paused = true)]
async fn the_same_version_is_accepted_without_a_load() {
    let world = World::new(&[]);
    let mut pipes = world.follow();
    let mut stream = pipes.stream().await;
    stream.request().await.unwrap();
    let mut same = update("1", &[yearly("shop", "user", 5)]);
    for nonce in ["a", "b"] {
        same.nonce = nonce.to_owned();
        assert_eq!(told(&stream.update(&same).await), ("1", nonce, None));
    }
    assert_eq!(world.counted("config_load_success"), 1);
    drop(stream);
    let mut again = pipes.stream().await;
    assert_eq!(told(&again.request().await.unwrap()), ("", "", None), "both are of their stream");
    assert_eq!(told(&again.update(&same).await), ("1", "b", None));
    assert_eq!(world.counted("config_load_success"), 1);
    // One version with other rules is a fault of the control plane, and its last word holds.
    let mut two = [yearly("shop", "user", 6), yearly("mall", "user", 6)];
    assert_eq!(told(&again.update(&update("1", &two)).await), ("1", "n1", None));
    assert_eq!(world.ask("shop", &[("user", "a")], 1).await, (Code::Ok, 5));
    // Some control planes send the same configurations in another order each time.
    two.reverse();
    assert_eq!(told(&again.update(&update("1", &two)).await), ("1", "n1", None));
    assert_eq!(world.counted("config_load_success"), 2);
}

/// A control plane that begins anew may number from 1 again, and hold back a version that is known.
#[tokio::test(start_paused = true)]
async fn other_rules_under_the_version_of_an_earlier_control_plane_are_taken() {
    let world = World::new(&[]);
    let mut pipes = world.follow();
    for requests in [5, 7] {
        let mut stream = pipes.stream().await;
        let first = stream.request().await.unwrap();
        if first.version_info != "1" {
            let answer = stream.update(&update("1", &[yearly("shop", "user", requests)])).await;
            assert_eq!(told(&answer), ("1", "n1", None));
        }
        assert_eq!(world.ask("shop", &[("user", "a")], 0).await, (Code::Ok, requests));
    }
}

/// A control plane that sends a refused update at once again is answered after a wait, up to the
/// longest of the settings.
#[tokio::test(start_paused = true)]
async fn an_update_that_is_refused_again_and_again_is_answered_ever_more_slowly() {
    let world = World::new(&[("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "10s")]);
    let mut pipes = world.follow();
    let mut stream = pipes.stream().await;
    stream.request().await.unwrap();
    let wrong = update("1", &[yearly("shop", "", 5)]);
    let mut waits = Vec::new();
    for turn in 0..8 {
        if turn == 6 {
            drop(stream);
            stream = pipes.stream().await;
            stream.request().await.unwrap();
        }
        let began = Instant::now();
        let answer = stream.update(&wrong).await;
        waits.push(began.elapsed().as_secs());
        let why = "shop-config, descriptor 1: descriptor has empty key; it needs key: NAME";
        assert_eq!(told(&answer), ("", "n1", Some(why)));
    }
    assert_eq!(waits, [0, 1, 2, 4, 8, 10, 10, 10]);
    assert_eq!(world.counted("config_load_error"), 1, "it is read and told once");
    // Under other settings it may be right.
    world.source.load().unwrap();
    let began = Instant::now();
    stream.update(&wrong).await;
    stream.update(&update("2", &[yearly("shop", "user", 5)])).await;
    assert_eq!(began.elapsed().as_secs(), 0);
    assert_eq!(world.counted("config_load_error"), 2);
    assert_eq!(world.ask("shop", &[("user", "a")], 0).await, (Code::Ok, 5));
}

#[tokio::test(start_paused = true)]
async fn an_empty_set_is_no_rule() {
    let world = World::new(&[("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true")]);
    let health = world.service().health.subscribe();
    let mut pipes = world.follow();
    let mut stream = pipes.stream().await;
    stream.request().await.unwrap();
    assert_eq!(*health.borrow(), Condition::NotServing);
    stream.update(&update("1", &[yearly("shop", "user", 0)])).await;
    assert_eq!(*health.borrow(), Condition::Serving);
    assert_eq!(world.ask("shop", &[("user", "a")], 1).await.0, Code::OverLimit);
    assert_eq!(told(&stream.update(&update("2", &[])).await), ("2", "n2", None));
    assert_eq!(world.ask("shop", &[("user", "a")], 1).await.0, Code::Ok);
    assert_eq!(*health.borrow(), Condition::NotServing);
    assert!(world.rlconfig().starts_with("# version \"2\" of"), "{}", world.rlconfig());
}

/// The text of a refusal is that of `check`, up to a bound.
#[tokio::test(start_paused = true)]
async fn what_is_no_configuration_is_refused_by_a_sentence() {
    let world = World::new(&[]);
    let mut pipes = world.follow();
    let mut stream = pipes.stream().await;
    stream.request().await.unwrap();
    let shop = yearly("shop", "user", 5);
    assert_eq!(told(&stream.update(&update("good", std::slice::from_ref(&shop))).await).2, None);
    let of = |type_url: &str, value: &'static [u8]| AnyMessage {
        type_url: type_url.to_owned(),
        value: value.into(),
    };
    let with = |resource: AnyMessage| {
        let mut update = update("1", std::slice::from_ref(&shop));
        update.resources.push(resource);
        update
    };
    let mut of_other_type = update("1", &[]);
    of_other_type.type_url = "type.googleapis.com/a.Cluster".to_owned();
    let mut keyless = shop.clone();
    keyless.descriptors[0].descriptors = vec![limited("a", "", 1), limited("", "", 1)];
    let mut unit = shop.clone();
    unit.descriptors[0].rate_limit.as_mut().unwrap().unit = 9;
    let mut unknown = shop.clone();
    unknown.descriptors[0].rate_limit.as_mut().unwrap().unit = 0;
    let mut twice = shop.clone();
    twice.descriptors.push(limited("user", "", 1));
    let deep = |levels: usize| {
        let mut deep = shop.clone();
        for _ in 0..levels {
            deep.descriptors[0] = ConfigDescriptor {
                key: "k".to_owned(),
                descriptors: vec![deep.descriptors[0].clone()],
                ..ConfigDescriptor::default()
            };
        }
        deep
    };
    let wide = |descriptors| ConfigMessage {
        name: format!("{descriptors}"),
        descriptors: vec![ConfigDescriptor::default(); descriptors],
        ..ConfigMessage::default()
    };
    for (update, why) in [
        (of_other_type, "the update is of the type \"type.googleapis.com/a.Cluster\", expected type."),
        (with(of("a", b"")), "resource 2 is of the type \"a\", expected type.googleapis.com/ratelimit."),
        (with(of(TYPE, b"\xff")), "resource 2 cannot be read: failed to decode Protobuf message"),
        (with(of(TYPE, b"\x0a\x01\xff")), "resource 2 cannot be read: failed to decode Protobuf message"),
        (
            update("1", &[shop.clone(), shop.clone()]),
            "resource 2 has the name \"shop-config\", as one before",
        ),
        (update("1", &[ConfigMessage::default()]), "resource 1: config file cannot have empty domain"),
        (update("1", &[keyless]), "shop-config, descriptor 3: descriptor has empty key"),
        (update("1", &[unit]), "shop-config, descriptor 1: invalid rate limit unit '9'"),
        (update("1", &[unknown]), "shop-config, descriptor 1: invalid rate limit unit 'UNKNOWN'"),
        (update("1", &[twice]), "shop-config, descriptor 2: duplicate descriptor composite key 'shop.user'"),
        (update("1", &[deep(64)]), "shop-config, descriptor 65: config error, more than 64 levels"),
        (update("1", &[wide(100_001), yearly("b", "x", 1), wide(99_999)]), "the update has more than 200000"),
        (update("1", &[deep(300)]), "resource 1 cannot be read: failed to decode Protobuf message"),
    ] {
        let answer = stream.update(&update).await;
        let (version, nonce, told) = told(&answer);
        assert_eq!((version, nonce), ("good", "n1"), "{why}");
        assert!(told.is_some_and(|told| told.starts_with(why)), "{told:?}, not {why}");
    }
    let mut many = shop.clone();
    let long = "k".repeat(3_000);
    many.descriptors = (0..50).flat_map(|_| [limited(&long, "", 1), limited(&long, "", 1)]).collect();
    let answer = stream.update(&update("1", &[many])).await;
    let length = told(&answer).2.expect("a refusal").len();
    assert!((4_000..=4_100).contains(&length), "{length}");
    assert_eq!(told(&stream.update(&update("2", std::slice::from_ref(&shop))).await), ("2", "n2", None));
    assert_eq!(told(&stream.update(&update("3", &[deep(63)])).await), ("3", "n3", None));
}

/// The settings are read again, the rules stay, and no count moves.
#[tokio::test(start_paused = true)]
async fn a_reload_keeps_the_rules_that_were_received() {
    let folder = tollgate_common::testing::Folder::new();
    let config = folder.write("serve.toml", "shadow = false\n");
    let mut world = World::new(&[]);
    Arc::get_mut(&mut world.source).unwrap().options.config = Some(config.into());
    // Before the first update a reload is one of the settings alone.
    world.source.reload().unwrap();
    assert!(world.service().in_force().loaded.is_none());
    world.load(update("1", &[yearly("shop", "user", 2)])).unwrap();
    assert_eq!(world.ask("shop", &[("user", "a")], 2).await, (Code::Ok, 0));
    folder.write("serve.toml", "shadow = true\n");
    world.source.reload().unwrap();
    assert_eq!(world.ask("shop", &[("user", "a")], 1).await, (Code::Ok, 0), "in shadow mode");
    assert!(world.service().in_force().settings.decision.is_shadow);
    // A wrong file of settings is no fault of an update.
    folder.write("serve.toml", "shadow = 1.5\n");
    assert!(world.source.reload().is_err());
    world.load(update("2", &[yearly("shop", "user", 4)])).unwrap();
    assert!(world.service().in_force().settings.decision.is_shadow);
    assert_eq!(world.ask("shop", &[("user", "a")], 0).await, (Code::Ok, 1));
    folder.write("serve.toml", "config_type = \"FILE\"\n");
    let why = "a change from files to a control plane, or back, needs a restart";
    assert_eq!(world.source.reload(), Err(why.to_owned()));
}

/// A change of the file of settings is seen, and the rules stay.
#[tokio::test(start_paused = true)]
async fn the_file_of_settings_is_watched_beside_a_control_plane() {
    let folder = tollgate_common::testing::Folder::new();
    let config = folder.write("serve.toml", "shadow = false\n");
    let mut world = World::new(&[]);
    Arc::get_mut(&mut world.source).unwrap().options.config = Some(config.into());
    world.source.load().unwrap();
    let Source { options, environment, service, .. } = &*world.source;
    let (options, service) = (options.clone(), service.clone());
    let begun = Source::new(options, environment.clone(), service, None, LogHandle::of_tests());
    let mut looks = Looks::default();
    assert_eq!([(); 3].map(|()| looks.is_settled(&begun)), [false; 3], "a start has read it");
    world.load(update("1", &[yearly("shop", "user", 0)])).unwrap();
    let mut looks = Looks::default();
    assert_eq!([(); 3].map(|()| looks.is_settled(&world.source)), [false; 3], "an update is no file");
    folder.write("serve.toml", "shadow = true # on\n");
    assert_eq!([(); 2].map(|()| looks.is_settled(&world.source)), [false, true]);
    world.source.load().unwrap();
    assert_eq!(world.ask("shop", &[("user", "a")], 1).await, (Code::Ok, 0));
    assert_eq!(world.service().in_force().version, "1");
}

/// As with files, a limit that the store cannot count is an error of the whole.
#[tokio::test(start_paused = true)]
#[cfg(feature = "sqlite")]
async fn an_update_that_the_store_cannot_count_is_refused() {
    let (clock, _) = tollgate::Clock::mock();
    let url = StoreUrl::read("sqlite:counts", std::path::Path::new("")).unwrap();
    let settings = StoreSettings { url: Some(url), layout: Layout::Envoy, ..shared::settings() };
    let shared = shared::replica(&shared::TestStore::new(&clock), &settings, &clock);
    let world = World::with(&[], |service| {
        service.shared = Some(shared);
        service.counts.options.algorithm = Algorithm::TokenBucket;
    });
    let why =
        "shop-config, descriptor 1: no store counts it: the layout of envoyproxy/ratelimit has no token";
    let told = world.load(update("1", &[yearly("shop", "user", 5)])).unwrap_err();
    assert!(told.starts_with(why), "{told}");
    assert!(world.service().in_force().loaded.is_none());
    assert_eq!(world.load(update("2", &[])), Ok(()));
}

/// After a connection that brought a configuration the waits begin anew.
#[tokio::test(start_paused = true)]
async fn the_waits_between_connections_are_those_of_the_settings() {
    let world = World::new(&[
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "2s"),
        ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "10s"),
        ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "3"),
        ("XDS_CLIENT_BACKOFF_JITTER", "false"),
    ]);
    let mut pipes = world.follow();
    let (mut ended, mut waits) = (Instant::now(), Vec::new());
    for turn in 0..8 {
        let io = pipes.next().await;
        waits.push(ended.elapsed().as_secs());
        if turn == 4 {
            let mut stream = Stream::over(io).await.unwrap();
            stream.request().await.unwrap();
            stream.update(&update("1", &[yearly("shop", "user", 2)])).await;
        }
        ended = Instant::now();
    }
    assert_eq!(waits, [0, 2, 6, 10, 10, 2, 6, 10]);
}

/// Processes of one moment do not connect at one moment.
#[test]
fn a_wait_with_jitter_is_between_the_first_interval_and_the_grown_one() {
    let wait = |factor: f64, before: i32| {
        let [first, most] = [10, 60].map(Duration::from_secs);
        let settings = BackOffSettings { first, most, factor, has_jitter: true };
        let mut back_off = BackOff::new(&settings);
        (0..=before).map(|_| back_off.next()).last().unwrap()
    };
    for (factor, before, most) in [(0.5, 0, 15), (0.5, 9, 15), (2.0, 1, 20), (2.0, 2, 40), (2.0, 99, 60)] {
        let waits: Vec<Duration> = (0..50).map(|_| wait(factor, before)).collect();
        let within = Duration::from_secs(10)..=Duration::from_secs(most);
        assert!(waits.iter().all(|wait| within.contains(wait)), "{factor} {before}: {waits:?}");
        assert!(waits.iter().any(|wait| wait != &waits[0]), "{waits:?}");
    }
}
