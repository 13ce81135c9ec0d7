//! The process whose rules come from a control plane. The limits are of a year, so that no window
//! ends under a test.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use serde_json::{Value, json};
use tollgate_common::testing::{Running, block_on, until};

use crate::client::{Caller, PATIENCE, Service};
use crate::control_plane::ControlPlane;

const NOW: [&str; 4] = ["--lame-duck", "0s", "--drain", "0s"];
/// The client comes back at once.
const AT_ONCE: [&str; 6] = ["--xds-backoff", "1ms", "--xds-backoff-max", "1ms", "--xds-connect-retry", "1ms"];

/// Returns a configuration of a limit of each user.
fn users(requests: u64) -> Value {
    let limit = json!({"unit": "year", "requests_per_unit": requests});
    json!({"name": "users", "domain": "shop", "descriptors": [{"key": "user", "rate_limit": limit}]})
}

fn request(user: &str, hits: u32) -> Value {
    let entries = json!([{"key": "user", "value": user}]);
    json!({"domain": "shop", "descriptors": [{"entries": entries, "hitsAddend": hits}]})
}

fn start(plane: &ControlPlane, options: &[&str], env: &[(&str, &str)]) -> Service {
    let at = plane.address.to_string();
    let options = [&["--xds-server", &at], &NOW[..], &AT_ONCE, options].concat();
    Service::of_paths(&[], &options, env).unwrap_or_else(|error| panic!("{error}"))
}

fn await_line(process: &Running, part: &str) {
    while !process.out.recv_timeout(PATIENCE).expect("a line").contains(part) {}
}

fn left(service: &Service, user: &str, hits: u32) -> Value {
    service.should_rate_limit(&request(user, hits))["statuses"][0]["remaining"].clone()
}

fn page(service: &Service, path: &str) -> String {
    service.http(true, "GET", path, None)["body"].as_str().expect("text").to_owned()
}

#[test]
fn updates_reloads_and_the_end_of_the_control_plane_lose_no_call_and_no_count() {
    let plane = ControlPlane::start();
    plane.put("first", &[users(1_000_000)]);
    let mut service = start(&plane, &[], &[]);
    assert_eq!(plane.answer("first"), ("first".to_owned(), None));
    let (stop, asked, at) = (AtomicBool::new(false), AtomicU64::new(0), service.grpc());
    thread::scope(|scope| {
        scope.spawn(|| {
            block_on(async {
                let mut caller = Caller::connect(at).await;
                while !stop.load(Relaxed) {
                    let answer = caller.should_rate_limit(&request("ada", 1)).await;
                    assert_eq!(answer["code"], "OK", "{answer}");
                    asked.fetch_add(1, Relaxed);
                }
            });
        });
        for turn in 0..100 {
            plane.update(&format!("{turn}"), &[users(1_000_000 + turn)]);
            assert!(service.reload());
        }
        service.signal("-HUP");
        plane.put("bad", &[users(1), json!({"name": "other", "domain": "shop"})]);
        let (version, refusal) = plane.answer("bad");
        let why = "other: duplicate domain 'shop' in config file; the first is at users, ";
        assert_eq!(version, "99");
        assert!(refusal.as_ref().is_some_and(|refusal| refusal.starts_with(why)), "{refusal:?}");
        stop.store(true, Relaxed);
    });
    let limit = 1_000_099;
    assert_eq!(left(&service, "ada", 0), limit - asked.load(Relaxed));
    let told = page(&service, "/rlconfig");
    let at = plane.address;
    assert_eq!(
        told,
        format!(
            "# version \"99\" of the control plane {at}\n\
             shop.user: unit=YEAR requests_per_unit={limit}, shadow_mode: false, quota_mode: false\n"
        )
    );
    let told = page(&service, "/explain?domain=shop&descriptor=user=ada");
    assert!(told.contains("users, descriptor 1"), "{told}");
    // A control plane that is gone changes nothing, and one that is back goes on.
    drop(plane);
    until("noticed", || page(&service, "/metrics").contains("\ntollgate_serve_xds_connected 0\n"));
    assert_eq!(service.http(true, "GET", "/readyz", None)["status"], 200);
    assert_eq!(left(&service, "ada", 1), limit - asked.load(Relaxed) - 1);
    let line = page(&service, "/rlconfig");
    assert!(
        line.starts_with(&format!("# version \"99\" of the control plane {at}, which is away\n")),
        "{line}"
    );
    let plane = ControlPlane::start_at(at);
    plane.update("back", &[users(7)]);
    assert_eq!(left(&service, "bob", 1), 6);
    // A stop is no call of the control plane: it ends as the drain does.
    assert!(service.stop("-TERM").is_some());
}

#[test]
fn the_start_waits_for_the_first_configuration_until_a_signal() {
    let plane = ControlPlane::start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(["serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let at = plane.address.to_string();
    command.env_clear().env("CONFIG_TYPE", "GRPC_XDS_SOTW").env("CONFIG_GRPC_XDS_SERVER_URL", at);
    let [waits, served] = [(); 2].map(|()| {
        let process = Running::merged(&mut command);
        await_line(&process, "waiting for the first configuration of 127.0.0.1:");
        process
    });
    // A first update that is refused is none.
    plane.put("bad", &[json!({"name": "a"})]);
    for _ in 0..2 {
        let why = "a: config file cannot have empty domain";
        assert!(plane.answer("bad").1.is_some_and(|told| told.starts_with(why)));
    }
    waits.signal("-TERM");
    assert_eq!(waits.exit_code(), Some(0));
    plane.put("good", &[users(1)]);
    await_line(&served, "debug pages on ");
}

#[test]
fn a_forced_start_answers_at_once_and_its_counts_go_on_after_a_restart() {
    let (plane, folder) = (ControlPlane::start(), tempfile::tempdir().expect("a folder"));
    let state = folder.path().join("state");
    let options = ["--state", state.to_str().expect("ASCII")];
    let env =
        [("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"), ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true")];
    let mut service = start(&plane, &options, &env);
    let error = &service.should_rate_limit(&request("ada", 1))["error"];
    assert_eq!(error["message"], "no rate limit configuration loaded");
    assert_eq!(service.health("ratelimit"), "NOT_SERVING");
    let first_line = page(&service, "/rlconfig");
    assert!(first_line.starts_with("# no version yet of the control plane"), "{first_line}");
    plane.update("1", &[users(5)]);
    assert_eq!((left(&service, "ada", 3), service.health("ratelimit")), (json!(2), json!("SERVING")));
    assert!(service.stop("-TERM").is_some());
    // Its counts are restored before its rules come.
    plane.put("none", &[json!({"name": "a"})]);
    let again = start(&plane, &options, &env);
    assert!(plane.answer("none").1.is_some());
    plane.update("2", &[users(6)]);
    assert_eq!(left(&again, "ada", 0), 3);
}

#[test]
#[cfg(feature = "sqlite")]
fn replicas_of_a_control_plane_and_a_store_have_one_limit() {
    let (plane, folder) = (ControlPlane::start(), tempfile::tempdir().expect("a folder"));
    plane.put("1", &[users(10)]);
    let url = format!("sqlite:{}", folder.path().join("counts").display());
    let options = ["--store", &url, "--store-deadline", "5s", "--store-lease", "0s"];
    let replicas = [(); 2].map(|()| start(&plane, &options, &[]));
    let ask = |turn: usize| replicas[turn % 2].should_rate_limit(&request("ada", 1))["code"] == "OK";
    assert_eq!((0..20).filter(|turn| ask(*turn)).count(), 10);
    plane.update("2", &[users(15)]);
    plane.answer("2");
    assert_eq!((0..20).filter(|turn| ask(*turn)).count(), 0, "refused hits stay counted");
}

#[test]
fn a_path_beside_a_control_plane_is_an_error_that_names_both() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/edge.yaml");
    let told = Service::of_paths(&[path.as_ref()], &["--xds-server", "plane:18000"], &[]);
    let told = told.map(|_| ()).expect_err("it is refused");
    let why = format!("the rules are those of {path} or of the control plane plane:18000, and not of both");
    assert!(told.contains(&why), "{told}");
    // The built-in limits are no rules of a control plane.
    let told = Service::of_paths(&[], &["--xds-server", "plane"], &[]).map(|_| ()).expect_err("no port");
    assert!(told.contains("invalid value 'plane' for '--xds-server <HOST:PORT>': expected a host"), "{told}");
}
