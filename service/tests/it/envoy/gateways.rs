//! The pages about gateways. Each configuration makes the questions of its gateway, and they find
//! the limits of its page. Those of Istio and of kgateway are run by Envoy.

use std::fs;

use serde_json::{Value, json};

use super::{Edge, example};
use crate::client::Service;
use crate::{moves, yaml};

const AI_GATEWAY: &str = include_str!("../../../../docs/envoy-ai-gateway.md");
const AGENTGATEWAY: &str = include_str!("../../../../docs/agentgateway.md");
const ENVOY_GATEWAY: &str = include_str!("../../../../docs/envoy-gateway.md");
const ISTIO: &str = include_str!("../../../../docs/istio.md");
const KGATEWAY: &str = include_str!("../../../../docs/kgateway.md");

/// The objects of a page. Of one without a kind, such as the rules, `kind` is a key.
fn object(page: &str, kind: &str) -> Value {
    let mut objects = moves::blocks(page, "yaml").into_iter().flat_map(|block| yaml::documents(&block));
    let found = objects.find(|object| object["kind"] == kind || !object[kind].is_null());
    found.unwrap_or_else(|| panic!("no {kind}"))
}

/// Starts the service on the rules of a page, with years for its seconds and hours.
fn service(page: &str) -> Service {
    let blocks = moves::blocks(page, "yaml");
    let rules = blocks.iter().find(|block| block.starts_with("domain:")).expect("rules");
    let rules = rules.replace("/s", "/7d").replace("/h", "/7d").replace("unit: hour", "unit: year");
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("rules.yaml"), rules).expect("it is written");
    let started = Service::start(folder.path(), &[], &[]);
    let mut service = started.unwrap_or_else(|error| panic!("{error}"));
    service.folder = Some(folder);
    service
}

fn descriptor<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>, hits: u64) -> Value {
    let entries = pairs.into_iter().map(|(key, value)| json!({"key": key, "value": value}));
    json!({"entries": entries.collect::<Value>(), "hitsAddend": hits})
}

/// Asks about a descriptor. Returns the code, and the limit that it has found.
fn ask(service: &Service, domain: &Value, descriptor: Value) -> (String, u64) {
    let request = json!({"domain": domain, "descriptors": [descriptor]}).to_string();
    let answer = service.http(false, "POST", "/json", Some(&request))["json"].take();
    let limit = &answer["statuses"][0]["currentLimit"]["requestsPerUnit"];
    let limit = limit.as_u64().unwrap_or_else(|| panic!("no limit in {answer}"));
    (answer["overallCode"].as_str().expect("a code").to_owned(), limit)
}

#[test]
fn the_descriptors_of_agentgateway_find_their_limits() {
    let service = service(AGENTGATEWAY);
    let route = &object(AGENTGATEWAY, "binds")["binds"][0]["listeners"][0]["routes"][0];
    let alone = &route["policies"]["remoteRateLimit"];
    assert_eq!(alone["host"], "127.0.0.1:8081");
    let in_kubernetes = &object(AGENTGATEWAY, "AgentgatewayPolicy")["spec"]["traffic"]["rateLimit"]["global"];
    assert_eq!(in_kubernetes["backendRef"], json!({"name": "tollgate", "port": 8081}));
    assert_eq!(alone["domain"], in_kubernetes["domain"]);
    for at in 0..2 {
        let [one, other] = [alone, in_kubernetes].map(|each| &each["descriptors"][at]);
        assert_eq!(one["entries"][0]["key"], other["entries"][0]["name"]);
        assert_eq!(one["entries"][0]["value"], other["entries"][0]["expression"]);
        let tokens = [one["type"] == "tokens", other["unit"] == "Tokens"];
        assert_eq!(tokens, [at == 1, at == 1]);
        let key = one["entries"][0]["key"].as_str().expect("a key");
        // Of tokens a request takes none, and its end takes its cost.
        let (limit, hits) = [(5, [1, 19, 1]), (100_000, [0, 150_000, 0])][at];
        let ask = |hits| ask(&service, &alone["domain"], descriptor([(key, "ada")], hits));
        assert_eq!(ask(hits[0]), ("OK".to_owned(), limit));
        ask(hits[1]);
        assert_eq!(ask(hits[2]).0, "OVER_LIMIT", "{key}");
    }
}

#[test]
fn a_quota_of_envoy_ai_gateway_is_charged_at_the_end() {
    let service = service(AI_GATEWAY);
    let policy = &object(AI_GATEWAY, "QuotaPolicy")["spec"];
    let (backend, quota) = (&policy["targetRefs"][0]["name"], &policy["perModelQuotas"][0]);
    let backend = format!("default/{}", backend.as_str().expect("a name"));
    let model = quota["modelName"].as_str().expect("a name");
    let of = |hits| descriptor([("backend_name", &*backend), ("model_name_override", model)], hits);
    let ask = |hits| ask(&service, &json!("ai-gateway-quota"), of(hits));
    assert_eq!(
        ask(1),
        ("OK".to_owned(), quota["quota"]["defaultBucket"]["limit"].as_u64().expect("a limit"))
    );
    ask(100_000);
    assert_eq!(ask(1).0, "OVER_LIMIT");
}

#[test]
fn the_variables_of_the_page_about_envoy_gateway_are_settings() {
    let gateway = object(ENVOY_GATEWAY, "EnvoyGateway");
    assert_eq!(gateway["rateLimit"]["backend"]["redis"]["url"], "redis.redis-system.svc:6379");
    let container = &gateway["provider"]["kubernetes"]["rateLimitDeployment"]["container"];
    let settings = include_str!("../../../README.md");
    for variable in container["env"].as_array().expect("variables") {
        let row = format!("| `{}` |", variable["name"].as_str().expect("a name"));
        assert!(settings.contains(&row), "{row}");
    }
    let rule = &object(ENVOY_GATEWAY, "BackendTrafficPolicy")["spec"]["rateLimit"]["global"]["rules"][0];
    assert_eq!(rule["limit"], json!({"requests": 100, "unit": "Minute"}));
}

/// Runs Envoy with a filter and actions before the service of a page, whose cluster has a name.
fn envoy(page: &str, filter: Value, rate_limits: Value, cluster: &str) -> Edge {
    let text = fs::read_to_string(example("envoy.yaml")).expect("the example");
    let mut config = yaml::documents(&text).swap_remove(0);
    let listener = &mut config["static_resources"]["listeners"][0];
    let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
    manager["http_filters"][0] = filter;
    let host = &mut manager["route_config"]["virtual_hosts"][0];
    host["routes"] = json!([{"match": {"prefix": "/"}, "route": {"cluster": "service"}}]);
    host["rate_limits"] = rate_limits;
    config["static_resources"]["clusters"][1]["name"] = cluster.into();
    // As `Edge` looks for them.
    let config = config.to_string().replace("\"port_value\":", "port_value: ");
    Edge::start_on(service(page), |_| config)
}

/// Asserts that one request is refused after `burst` others. The deadline is for busy machines.
fn assert_limits(edge: &Edge, burst: usize) {
    let statuses: Vec<u16> = (0..=burst).map(|_| edge.get("/", &[]).0).collect();
    assert_eq!(statuses[burst - 1..], [200, 429], "{statuses:?}");
    assert_eq!(edge.get("/", &[]).1["x-ratelimit-remaining"], "0");
}

#[test]
#[ignore = "needs Envoy: verify/rigs/behind-proxies"]
fn the_patches_of_istio_limit() {
    let patches = object(ISTIO, "EnvoyFilter")["spec"]["configPatches"].take();
    let [mut filter, host] = [0, 1].map(|at| patches[at]["patch"]["value"].clone());
    let grpc = &filter["typed_config"]["rate_limit_service"]["grpc_service"]["envoy_grpc"];
    let cluster = grpc["cluster_name"].as_str().expect("a name").to_owned();
    assert_eq!(cluster, format!("outbound|8081||{}", grpc["authority"].as_str().expect("a name")));
    filter["typed_config"]["timeout"] = "10s".into();
    assert_limits(&envoy(ISTIO, filter, host["rate_limits"].clone(), &cluster), 200);
}

/// As `constructGlobalRateLimit` of kgateway and its neighbours make them.
#[test]
#[ignore = "needs Envoy: verify/rigs/behind-proxies"]
fn the_extension_and_the_policy_of_kgateway_limit() {
    let extension = &object(KGATEWAY, "GatewayExtension")["spec"]["rateLimit"];
    assert_eq!(extension["grpcService"]["backendRef"], json!({"name": "tollgate", "port": 8081}));
    assert_eq!([&extension["xRateLimitHeaders"], &extension["timeout"]], ["DraftVersion03", "100ms"]);
    let filter = json!({"name": "envoy.filters.http.ratelimit", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
        "domain": extension["domain"],
        "timeout": "10s",
        "failure_mode_deny": extension["failOpen"] == false,
        "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
        "rate_limit_service": {
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": "kube_default_tollgate_8081"}},
        },
    }});
    let global = &object(KGATEWAY, "TrafficPolicy")["spec"]["rateLimit"]["global"];
    assert_eq!(global["extensionRef"]["name"], object(KGATEWAY, "GatewayExtension")["metadata"]["name"]);
    let entries = global["descriptors"][0]["entries"].as_array().expect("entries");
    let action = |entry: &Value| match entry["type"].as_str() {
        Some("Generic") => json!({"generic_key": {
            "descriptor_key": entry["generic"]["key"], "descriptor_value": entry["generic"]["value"],
        }}),
        Some("RemoteAddress") => json!({"remote_address": {}}),
        other => panic!("{other:?}"),
    };
    let limits = json!([{"actions": entries.iter().map(action).collect::<Value>()}]);
    assert_limits(&envoy(KGATEWAY, filter, limits, "kube_default_tollgate_8081"), 20);
}
