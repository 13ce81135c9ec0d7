//! The files of `packaging/`, read as their programs would read them.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_common::testing::{Certificate, Folder, until};
use tollgate_test_servers::redis::{Redis, redis_is_installed};
use tollgate_testing::wire::Connection;

use crate::client::Service;
use crate::{moves, yaml};

fn packaged(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name);
    fs::read_to_string(path).expect("a file of the repository")
}

/// The store of replicas. A drop of this value ends its server.
struct Store {
    url: String,
    is_there: bool,
    _server: Option<Redis>,
    _folder: TempDir,
}

impl Store {
    /// A Redis, as the manifest has one; without the program a file. A program without that engine
    /// starts without its store, and says so.
    fn start() -> Store {
        let folder = tempfile::tempdir().expect("a folder");
        let server = (cfg!(feature = "redis") && redis_is_installed())
            .then(|| Redis::start(&[]).unwrap_or_else(|error| panic!("{error}")));
        let file = || format!("sqlite:{}", folder.path().join("counts").display());
        let (url, is_there) = match &server {
            Some(server) => (server.url(), true),
            None if cfg!(feature = "sqlite") => (file(), true),
            None => ("redis://127.0.0.1:1".to_owned(), false),
        };
        Store { url, is_there, _server: server, _folder: folder }
    }
}

/// The objects of a manifest.
struct Manifest(Vec<Value>);

impl Manifest {
    fn packaged(name: &str) -> Manifest {
        Manifest(yaml::documents(&packaged(name)))
    }

    fn object(&self, kind: &str) -> &Value {
        let found = self.0.iter().find(|object| object["kind"] == kind);
        found.unwrap_or_else(|| panic!("no {kind}"))
    }

    fn container(&self, kind: &str) -> &Value {
        &self.object(kind)["spec"]["template"]["spec"]["containers"][0]
    }

    /// The variables of the container that have their value here.
    fn variables(&self, kind: &str) -> Vec<(&str, &str)> {
        let variables = self.container(kind)["env"].as_array().expect("variables").iter();
        variables.filter_map(|each| Some((each["name"].as_str()?, each["value"].as_str()?))).collect()
    }

    /// The files of its map. Their minute is a year, so that no window ends under a test.
    fn rules(&self) -> TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = self.object("ConfigMap")["data"]["edge.yaml"].as_str().expect("a file");
        let rules = rules.replace("unit: minute", "unit: year");
        fs::write(folder.path().join("edge.yaml"), rules).expect("it is written");
        folder
    }

    /// Asserts what all containers of the chart have: `Service::start` gives the addresses.
    fn assert_started_and_probed(&self, kind: &str) {
        let container = self.container(kind);
        assert_eq!(
            container["args"],
            json!(["serve", "/etc/tollgate", "--admin", "0.0.0.0:6070", "--admin-public"])
        );
        for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
            assert_eq!(container[probe]["httpGet"], json!({"path": path, "port": "admin"}));
        }
    }
}

/// A replica of the service, as the manifest starts it: with its options, its variables and its map
/// of files.
fn replica(store: &Store) -> Service {
    let manifest = Manifest::packaged("kubernetes.yaml");
    manifest.assert_started_and_probed("Deployment");
    // A restart of both replicas has one that is ready at each time.
    let replicas = &manifest.object("Deployment")["spec"];
    assert_eq!([&replicas["replicas"], &replicas["strategy"]["rollingUpdate"]["maxUnavailable"]], [2, 0]);
    assert_eq!(manifest.object("PodDisruptionBudget")["spec"]["maxUnavailable"], 1);
    let url = &manifest.container("Deployment")["env"][0];
    let (secret, key) = (manifest.object("Secret"), &url["valueFrom"]["secretKeyRef"]);
    assert_eq!([&url["name"], &key["name"]], [&json!("TOLLGATE_STORE"), &secret["metadata"]["name"]]);
    assert!(secret["stringData"][key["key"].as_str().expect("text")].is_string(), "{secret}");
    let mut variables = manifest.variables("Deployment");
    assert_eq!(variables, [("TOLLGATE_STORE_SHARE", "0.5")]);
    variables.push(("TOLLGATE_STORE", &store.url));
    // The deadline is for machines that are busy.
    let options = ["--admin-public", "--store-deadline", "10s"];
    let folder = manifest.rules();
    let mut service =
        Service::start(folder.path(), &options, &variables).unwrap_or_else(|error| panic!("{error}"));
    service.folder = Some(folder);
    // The tables of an engine may come after the first line.
    until("answered by the store", || {
        service.http(true, "GET", "/explain?domain=edge&descriptor=remote_address=probe", None);
        let page = service.http(true, "GET", "/metrics", None);
        let told = page["body"].as_str().expect("text");
        !store.is_there || !told.contains("tollgate_store_calls_total{outcome=\"answered\"} 0\n")
    });
    service
}

fn request() -> Value {
    json!({"domain": "edge", "descriptors": [{"entries": [{"key": "remote_address", "value": "a"}]}]})
}

#[test]
fn two_replicas_of_the_manifest_have_one_count() {
    let store = Store::start();
    let replicas = [replica(&store), replica(&store)];
    if !store.is_there {
        println!("left out: the count, for want of redis-server or the feature sqlite");
        return;
    }
    for (turn, replica) in replicas.iter().cycle().take(6).enumerate() {
        let answer = replica.should_rate_limit(&request());
        assert_eq!(answer["statuses"][0]["remaining"], 599 - turn, "{answer}");
    }
}

#[test]
fn the_counts_of_the_one_replica_go_along_on_its_volume() {
    let manifest = Manifest::packaged("kubernetes-volume.yaml");
    manifest.assert_started_and_probed("StatefulSet");
    assert_eq!(manifest.object("StatefulSet")["spec"]["replicas"], 1);
    let [(name, path)] = manifest.variables("StatefulSet")[..] else { panic!("one variable") };
    let mounted = Path::new(path).parent().expect("a folder").to_str();
    assert_eq!(manifest.container("StatefulSet")["volumeMounts"][1]["mountPath"].as_str(), mounted);
    let (rules, volume) = (manifest.rules(), Folder::new());
    for left in [599, 598] {
        let options = ["--admin-public", "--lame-duck", "0s", "--drain", "0s"];
        let mut service = Service::start(rules.path(), &options, &[(name, &volume.text("state"))])
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(service.should_rate_limit(&request())["statuses"][0]["remaining"], left);
        service.stop("-TERM");
    }
}

/// Starts a program by the name and the variables of a Deployment, but without its control plane
/// and the store, and on any ports. Root starts it under another account, which may write nothing.
fn started_by_its_deployment(manifest: &Manifest) -> (Service, Folder) {
    let folder = Folder::new();
    for name in ["bin", "ratelimit", "ratelimit/config"] {
        fs::create_dir(folder.path(name)).expect("it is made");
    }
    folder.write("ratelimit/config/edge.yaml", "domain: edge\ndescriptors: []\n");
    let program = folder.path(&manifest.container("Deployment")["command"][0].as_str().expect("a path")[1..]);
    // By another process: a file that a fork of this one may write cannot be run.
    let copy = Command::new("cp").arg(env!("CARGO_BIN_EXE_tollgate")).arg(&program).status();
    assert!(copy.expect("cp runs").success());
    let (chain, key) = Certificate::new().write(&folder);
    fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o755)).expect("its owner");
    let others = ["REDIS_", "TOLLGATE_"];
    let is_kept = |name: &str| !others.iter().any(|begin| name.starts_with(begin));
    let variables = manifest.variables("Deployment").into_iter().filter(|(name, _)| is_kept(name));
    let here = |(name, value)| match value {
        "/certs/tls.crt" | "/certs/ca.crt" => (name, &*chain),
        "/certs/tls.key" => (name, &*key),
        _ => (name, value),
    };
    let mut command = Command::new(program);
    command.current_dir("/").env_clear().envs(variables.map(here)).envs([
        ("RUNTIME_ROOT", &*folder.text("")),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("PROMETHEUS_ADDR", "127.0.0.1:0"),
    ]);
    command.envs(["GRPC_PORT", "PORT", "DEBUG_PORT"].map(|name| (name, "0")));
    if fs::metadata("/proc/self").expect("Linux").uid() == 0 {
        // One that the Deployment names, or any.
        let user = manifest.container("Deployment")["securityContext"]["runAsUser"].as_u64();
        let user = user.map_or(54_321, |user| user as u32);
        command.uid(user).gid(user);
    }
    (Service::of(&mut command).unwrap_or_else(|error| panic!("{error}")), folder)
}

#[test]
fn as_the_deployments_of_gateways_start_it_it_is_healthy_and_scraped() {
    let of_envoy_gateway = Manifest(yaml::documents(include_str!("envoy_gateway.yaml")));
    assert_eq!(of_envoy_gateway.object("Service")["spec"]["ports"][1]["port"], 19001);
    for manifest in [of_envoy_gateway, Manifest::packaged("envoy-ai-gateway.yaml")] {
        let container = manifest.container("Deployment");
        assert_eq!(container["command"], json!(["/bin/ratelimit"]));
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/healthcheck");
        let variables = manifest.variables("Deployment");
        let unknown = |name: &&str| !name.starts_with("TOLLGATE_") && !moves::has_row(name);
        let unknown: Vec<&str> = variables.iter().map(|(name, _)| *name).filter(unknown).collect();
        assert!(unknown.is_empty(), "no row for {unknown:?}");
        let address = variables.iter().find(|(name, _)| *name == "PROMETHEUS_ADDR");
        let metrics = container["ports"].as_array().and_then(|ports| ports.last()).expect("a port");
        assert_eq!(
            address.map_or(":9090", |(_, address)| *address),
            format!(":{}", metrics["containerPort"])
        );
        let (service, _folder) = started_by_its_deployment(&manifest);
        assert_eq!(service.http(false, "GET", "/healthcheck", None)["status"], 200);
        let page = Connection::connect(service.scraped.expect("a listener")).get("/metrics");
        assert!(page.status == 200 && page.body.contains("ratelimit_service_"), "{page:?}");
    }
}

#[test]
fn the_image_has_the_programs_and_the_ports_of_the_reference() {
    let image = packaged("Containerfile");
    let copied = image.lines().filter_map(|line| line.strip_prefix("COPY --from=build "));
    let programs: Vec<&str> = copied.filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(programs, ["/usr/bin/tollgate", "/bin/ratelimit"]);
    let last = image.lines().rfind(|line| line.starts_with("FROM ") || line.starts_with("USER "));
    assert_eq!(last, Some("FROM gcr.io/distroless/cc-debian12:nonroot"));
    let ports = image.lines().find_map(|line| line.strip_prefix("EXPOSE ")).expect("ports");
    let of_settings = ["PORT", "GRPC_PORT", "PROMETHEUS_ADDR"].map(|name| {
        let row = format!("| `{name}` |  | `");
        let value = include_str!("../../README.md").split_once(&row).expect("a row").1.split('`').next();
        value.expect("a default").trim_start_matches(':')
    });
    assert_eq!(ports.split(' ').collect::<Vec<_>>(), of_settings);
}

#[test]
fn the_manifest_serves_and_its_probes_are_answered() {
    let store = Store::start();
    let service = replica(&store);
    assert_eq!(service.should_rate_limit(&request())["code"], "OK");
    for probe in ["/readyz", "/healthz"] {
        assert_eq!(service.http(true, "GET", probe, None)["status"], 200, "{probe}");
    }
}

#[test]
fn each_metric_of_the_dashboard_and_of_replicas_is_told() {
    let store = Store::start();
    let service = replica(&store);
    service.should_rate_limit(&request());
    let page = service.http(true, "GET", "/metrics", None);
    let told = page["body"].as_str().expect("text");
    let dashboard: Value = serde_json::from_str(&packaged("dashboard.json")).expect("JSON");
    let mut names = HashSet::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let words =
                target["expr"].as_str().expect("text").split(|c: char| c != '_' && !c.is_alphanumeric());
            let metrics =
                words.filter(|word| word.starts_with("ratelimit_") || word.starts_with("tollgate_"));
            names.extend(metrics.map(str::to_owned));
        }
    }
    let page = include_str!("../../README.md").lines();
    let of_table = page.filter_map(|line| line.strip_prefix("| `tollgate_")?.split(['`', '{']).next());
    names.extend(of_table.map(|name| format!("tollgate_{name}")));
    assert_eq!(names.len(), 18);
    for name in names {
        let is_told = |line: &str| line.strip_prefix(&name).is_some_and(|rest| rest.starts_with([' ', '{']));
        assert!(told.lines().any(is_told), "no {name} in\n{told}");
    }
}
