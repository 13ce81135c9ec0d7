//! The pages about a move from another service: each file, command and variable of theirs.

use std::process::{Command, Output};

use tollgate_common::testing::Folder;

const PAGES: [&str; 9] = [
    include_str!("../../../docs/agentgateway.md"),
    include_str!("../../../docs/envoy-ai-gateway.md"),
    include_str!("../../../docs/istio.md"),
    include_str!("../../../docs/kgateway.md"),
    include_str!("../../README.md"),
    include_str!("../../../docs/envoy.md"),
    FROM_ENVOY,
    include_str!("../../../docs/from-limitador.md"),
    include_str!("../../../docs/model-tokens.md"),
];
const FROM_ENVOY: &str = include_str!("../../../docs/from-envoy-ratelimit.md");

/// The variables of envoyproxy/ratelimit, by its `src/settings/settings.go` and its README of
/// 2026-07-05 (f2fb1577).
const VARIABLES: &str = "
BACKEND_TYPE CACHE_KEY_PREFIX CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS
CONFIG_GRPC_XDS_CLIENT_TLS_CERT CONFIG_GRPC_XDS_CLIENT_TLS_KEY CONFIG_GRPC_XDS_NODE_ID
CONFIG_GRPC_XDS_NODE_METADATA CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL
CONFIG_GRPC_XDS_SERVER_TLS_CACERT CONFIG_GRPC_XDS_SERVER_TLS_SAN CONFIG_GRPC_XDS_SERVER_URL
CONFIG_GRPC_XDS_SERVER_USE_TLS CONFIG_TYPE DEBUG_HOST DEBUG_PORT DISABLE_STATS
EXPIRATION_JITTER_MAX_SECONDS EXTRA_TAGS FORCE_START_WITHOUT_INITIAL_CONFIG
GRPC_CLIENT_TLS_CACERT GRPC_CLIENT_TLS_SAN GRPC_HOST GRPC_MAX_CONNECTION_AGE
GRPC_MAX_CONNECTION_AGE_GRACE GRPC_PORT GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY
GRPC_SERVER_USE_TLS GRPC_UDS HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED HOST LIMIT_LIMIT_HEADER
LIMIT_REMAINING_HEADER LIMIT_RESET_HEADER LIMIT_RESPONSE_HEADERS_ENABLED
LOCAL_CACHE_SIZE_IN_BYTES LOG_FORMAT LOG_LEVEL MEMCACHE_HOST_PORT MEMCACHE_MAX_IDLE_CONNS
MEMCACHE_SRV MEMCACHE_SRV_REFRESH MEMCACHE_TLS MEMCACHE_TLS_CACERT MEMCACHE_TLS_CLIENT_CERT
MEMCACHE_TLS_CLIENT_KEY MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION MERGE_DOMAIN_CONFIG
NEAR_LIMIT_RATIO PORT PROMETHEUS_ADDR PROMETHEUS_MAPPER_YAML PROMETHEUS_PATH
PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS QUOTA_MODE REDIS_AUTH
REDIS_CLUSTER_PIPELINE_PARALLELISM REDIS_HEALTH_CHECK_ACTIVE_CONNECTION REDIS_PERSECOND
REDIS_PERSECOND_AUTH REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM REDIS_PERSECOND_PIPELINE_LIMIT
REDIS_PERSECOND_PIPELINE_WINDOW REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR REDIS_PERSECOND_POOL_SIZE
REDIS_PERSECOND_SENTINEL_AUTH REDIS_PERSECOND_SOCKET_TYPE REDIS_PERSECOND_TIMEOUT
REDIS_PERSECOND_TLS REDIS_PERSECOND_TYPE REDIS_PERSECOND_URL REDIS_PIPELINE_LIMIT
REDIS_PIPELINE_WINDOW REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_POOL_SIZE REDIS_SENTINEL_AUTH
REDIS_SOCKET_TYPE REDIS_STARTUP_INITIAL_INTERVAL REDIS_STARTUP_MAX_ELAPSED_TIME
REDIS_STARTUP_MAX_INTERVAL REDIS_TIMEOUT REDIS_TLS REDIS_TLS_CACERT REDIS_TLS_CLIENT_CERT
REDIS_TLS_CLIENT_KEY REDIS_TLS_SKIP_HOSTNAME_VERIFICATION REDIS_TYPE REDIS_URL
RESPONSE_DYNAMIC_METADATA RUNTIME_APPDIRECTORY RUNTIME_IGNOREDOTFILES RUNTIME_ROOT
RUNTIME_SUBDIRECTORY RUNTIME_WATCH_ROOT SHADOW_MODE STATSD_HOST STATSD_PORT STATS_FLUSH_INTERVAL
STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT TRACING_ENABLED TRACING_EXPORTER_PROTOCOL
TRACING_SAMPLING_RATE TRACING_SERVICE_INSTANCE_ID TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE
USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS USE_PROMETHEUS USE_STATSD
XDS_CLIENT_BACKOFF_INITIAL_INTERVAL XDS_CLIENT_BACKOFF_JITTER XDS_CLIENT_BACKOFF_MAX_INTERVAL
XDS_CLIENT_BACKOFF_RANDOM_FACTOR XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES
DOG_STATSD_MOGRIFIERS DOG_STATSD_MOGRIFIER_DOMAIN_NAME REDIS_POOL_ON_EMPTY_WAIT_DURATION
";

fn check(folder: &Folder, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.arg("check").args(words).current_dir(folder.text("")).env_clear();
    command.output().expect("the program runs")
}

/// Returns the blocks of a kind, without their indent.
pub(crate) fn blocks(page: &str, kind: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if line.trim_start().strip_prefix("```") == Some(kind) {
            let block = lines.by_ref().take_while(|line| line.trim() != "```");
            blocks.push(block.map(|line| format!("{}\n", line.get(indent..).unwrap_or(""))).collect());
        }
    }
    blocks
}

#[test]
fn each_file_of_the_pages_is_shared_by_a_store() {
    let store = match () {
        _ if cfg!(feature = "sqlite") => "sqlite:counts",
        _ if cfg!(feature = "redis") => "redis://localhost",
        _ => "none",
    };
    let files = PAGES.iter().flat_map(|page| blocks(page, "yaml")).filter(|text| text.starts_with("domain:"));
    let mut count = 0;
    for text in files {
        let folder = Folder::new();
        folder.write("edge.yaml", &text);
        let told = check(&folder, &["edge.yaml", "--store", store]);
        let lines = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.status.success() && lines.contains(": 0 errors, 0 warnings\n"), "{text}{lines}{told:?}");
        count += 1;
    }
    assert_eq!(count, 9);
}

/// A limit of a text is for the layout that comes after the move.
#[test]
#[cfg(feature = "redis")]
fn the_check_before_the_move_names_a_limit_that_the_reference_could_not_count() {
    let line = |block: &String| block.strip_prefix("tollgate check ").map(|words| words.trim().to_owned());
    let words = blocks(FROM_ENVOY, "sh").iter().find_map(line).expect("a command");
    let folder = Folder::new();
    std::fs::create_dir(folder.path("config")).expect("it is made");
    let text = blocks(FROM_ENVOY, "yaml").swap_remove(0);
    folder.write("config/edge.yaml", &text);
    let words: Vec<&str> = words.split(' ').collect();
    let told = check(&folder, &words);
    let lines = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    assert!(lines.contains("edge.yaml:6:") && lines.contains(": 1 error, "), "{lines}");
    let (rest, _) = text.split_once("  - key: user").expect("the second limit");
    folder.write("config/edge.yaml", rest);
    assert!(check(&folder, &words).status.success());
}

/// The cells of the table's first column, of which each may name several variables.
fn rows() -> Vec<&'static str> {
    let (_, table) = FROM_ENVOY.split_once("| variable |").expect("a table");
    let rows = table.lines().skip(1).filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    rows.flat_map(|cell| cell.split("`, `")).map(|name| name.trim_matches('`')).collect()
}

pub(crate) fn has_row(name: &str) -> bool {
    rows().iter().any(|row| match row.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => row.split('=').next() == Some(name),
    })
}

#[test]
fn each_variable_of_the_reference_has_a_row() {
    let missing: Vec<&str> = VARIABLES.split_whitespace().filter(|name| !has_row(name)).collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
    let is_one = |row: &&str| {
        let begin = row.split(['*', '=']).next().expect("a text");
        VARIABLES
            .split_whitespace()
            .any(|name| if row.ends_with('*') { name.starts_with(begin) } else { name == begin })
    };
    let others: Vec<&str> = rows().into_iter().filter(|row| !is_one(row)).collect();
    assert!(others.is_empty(), "no variables of the reference: {others:?}");
}
