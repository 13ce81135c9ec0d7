//! The sources of settings, and the variables that are not followed.

use std::collections::BTreeSet;
use std::fs;

use super::super::environment;
use super::super::options::ServeOptions;
use super::super::settings::ServeSettings;
use super::super::sources::load;
use super::super::tables::ServeTable;
use super::variables;
use tollgate_common::settings::options::Table;
use tollgate_common::settings::table::{Setting, Value};
use tollgate_common::settings::values::Address;
use tollgate_common::testing::Folder;

fn tcp(text: &str) -> Address {
    Address::Tcp(text.parse().unwrap())
}

#[test]
fn defaults_are_valid_and_names_are_told_once() {
    let settings = ServeSettings::new(Vec::new());
    assert_eq!(settings.grpc(), tcp("0.0.0.0:8081"));
    assert_eq!(
        (settings.http, settings.admin),
        ("0.0.0.0:8080".parse().unwrap(), "127.0.0.1:6070".parse().unwrap())
    );
    let names: BTreeSet<&str> = ServeTable::settings().map(|setting| setting.name).collect();
    assert_eq!(names.len(), ServeTable::settings().count());
    for setting in ServeTable::settings() {
        let own = if setting.option.is_empty() { setting.variable } else { setting.long() };
        // Those of the store are a table of the file.
        assert_eq!(
            setting.name.replace('.', "_").replace("store_url", "store"),
            own.to_lowercase().replace('-', "_")
        );
    }
}

#[test]
fn flags_override_the_file_and_that_the_variables_and_those_the_defaults() {
    let folder = Folder::new();
    let file = folder.path("serve.toml");
    fs::write(
        &file,
        "grpc = \"127.0.0.1:2\"\nhttp = \"127.0.0.1:3\"\nshadow = true\ntls_cert = \"a.pem\"\n\
                      tls_key = \"/b.pem\"\nclient_ca = \"ca.pem\"\nclient_san = [\"one\", \"two\"]\n",
    )
    .unwrap();
    let given = variables(&[
        ("GRPC_PORT", "1"),
        ("PORT", "1"),
        ("DEBUG_PORT", "1"),
        ("HOST", ""),
        ("LOG_FORMAT", "json"),
    ]);
    let options = ServeOptions { config: Some(file), ..ServeOptions::default() };
    let settings = load(&ServeOptions::default(), &given).unwrap();
    assert_eq!((settings.grpc(), settings.http.port(), settings.admin.port()), (tcp("0.0.0.0:1"), 1, 1));
    assert!(settings.log_json && settings.tls().is_none());
    let settings =
        load(&options.clone().with_flag("grpc", "unix:/s").with_flag("log", "text"), &given).unwrap();
    assert_eq!(
        (settings.grpc(), settings.http.port(), settings.admin.port()),
        (Address::Unix("/s".into()), 3, 1)
    );
    assert!(!settings.log_json && settings.decision.is_shadow);
    let (certificate, clients) = settings.tls().unwrap();
    assert_eq!((certificate.chain, certificate.key), (folder.path("a.pem"), "/b.pem".into()));
    assert_eq!(clients.unwrap().names, ["one", "two"]);
    let settings = load(&options.with_flag("shadow", "false"), &given).unwrap();
    assert_eq!((settings.grpc(), settings.decision.is_shadow), (tcp("127.0.0.1:2"), false));
}

#[test]
fn the_folder_of_the_configuration_is_that_of_the_variables_unless_paths_are_given() {
    let given = variables(&[("RUNTIME_ROOT", "/r"), ("RUNTIME_SUBDIRECTORY", "s")]);
    let settings = load(&ServeOptions::default(), &given).unwrap();
    assert_eq!(settings.paths, [std::path::PathBuf::from("/r/s/config")]);
    let options = ServeOptions { paths: vec!["a".into(), "b".into()], ..ServeOptions::default() };
    assert_eq!(load(&options, &given).unwrap().paths, options.paths);
}

/// Others than this host see the built-in limits only if an address is named.
#[test]
fn the_built_in_limits_are_served_to_this_host() {
    let options = ServeOptions { is_built_in: true, ..ServeOptions::default() };
    for (host, at) in [("", "127.0.0.1"), ("0.0.0.0", "0.0.0.0")] {
        let settings = load(&options, &variables(&[("GRPC_HOST", host), ("HOST", host)])).unwrap();
        let grpc = Address::Tcp(format!("{at}:8081").parse().unwrap());
        assert_eq!((settings.grpc(), settings.http.to_string()), (grpc, format!("{at}:8080")));
        assert!(settings.paths.is_empty());
    }
}

#[test]
fn a_mistake_names_its_source_the_value_and_the_bound() {
    let of_variable = |name, value| load(&ServeOptions::default(), &variables(&[(name, value)])).unwrap_err();
    for (name, value, why) in [
        ("GRPC_PORT", "65536", "GRPC_PORT=65536: expected a whole number from 0 to 65535"),
        ("SHADOW_MODE", "yes", "SHADOW_MODE=yes: expected true or false"),
        ("NEAR_LIMIT_RATIO", "1.1", "NEAR_LIMIT_RATIO=1.1: expected a number from 0 to 1"),
        ("GRPC_MAX_CONNECTION_AGE", "1", "GRPC_MAX_CONNECTION_AGE=1: expected a time such as 10s"),
        ("GRPC_MAX_CONNECTION_AGE", "1ms", "GRPC_MAX_CONNECTION_AGE=1ms: the least is 1s, and 0s is never"),
        ("LOG_LEVEL", "loud", "LOG_LEVEL=loud: expected one of `trace`, `debug`, `info`"),
        ("GRPC_SERVER_USE_TLS", "true", "TLS needs a certificate and its key"),
        ("GRPC_CLIENT_TLS_CACERT", "a", "--client-ca needs --tls-cert"),
    ] {
        assert!(of_variable(name, value).starts_with(why), "{}", of_variable(name, value));
    }
    let of_flag =
        |flag, text| load(&ServeOptions::default().with_flag(flag, text), &variables(&[])).unwrap_err();
    assert_eq!(
        of_flag("max_keys", "1"),
        "invalid value '1' for '--max-keys <N>': expected a whole number from 1024 to 268435456"
    );
    assert!(of_flag("spread_retries", "20ms").ends_with(": the least is 1s, and 0s is none"));
    assert!(of_flag("admin", "10.0.0.1:1").ends_with("so it needs --admin-public"));
    let folder = Folder::new();
    let file = folder.path("serve.toml");
    let options = ServeOptions { config: Some(file.clone()), ..ServeOptions::default() };
    for (text, why) in [
        ("http = \"[::]:1\"\nshadw = true\n", ":2:1: unknown field `shadw`, did you mean `shadow`?"),
        ("\ndrain = 5\n", ":2:9: 5: expected a time such as 10s"),
        ("[drain]\n", ":1:1: expected a text in quotes, a number, true or false"),
        ("drain = \"5s\"", "the file may have been cut"),
    ] {
        fs::write(&file, text).unwrap();
        let error = load(&options, &variables(&[])).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

/// As the reference reads them.
#[test]
fn a_level_a_format_and_an_age_are_read_in_each_spelling() {
    let of = |name, value| load(&ServeOptions::default(), &variables(&[(name, value)])).unwrap();
    for (level, read) in [("FATAL", "ERROR"), ("panic", "ERROR"), ("Warning", "WARN"), ("debug", "DEBUG")] {
        assert_eq!(of("LOG_LEVEL", level).log_level.as_str(), read);
    }
    assert!(of("LOG_FORMAT", "JSON").log_json && !of("LOG_FORMAT", "TEXT").log_json);
    let years = std::time::Duration::from_secs(99 * 365 * 86_400);
    assert!(of("GRPC_MAX_CONNECTION_AGE", "0s").max_age > years);
    assert!(of("GRPC_MAX_CONNECTION_AGE_GRACE", "0").max_age_grace > years);
}

/// A public address of the debug pages is asked for by a variable, or by a flag of its own.
#[test]
fn the_debug_pages_are_public_only_where_that_is_asked_for() {
    let given = variables(&[("DEBUG_HOST", "0.0.0.0")]);
    assert_eq!(load(&ServeOptions::default(), &given).unwrap().admin, "0.0.0.0:6070".parse().unwrap());
    let options = ServeOptions::default().with_flag("admin", "0.0.0.0:1");
    load(&options, &given).unwrap_err();
    load(&options.with_flag("admin_public", "true"), &given).unwrap();
}

#[test]
fn variables_without_an_effect_are_named_once_and_others_refuse_the_start() {
    let check = |given: &[(&str, &str)]| environment::check(&variables(given), false, false, &[]);
    for (name, value) in [("BACKEND_TYPE", "memcache"), ("USE_DOG_STATSD", "true")] {
        assert!(
            check(&[(name, value)]).unwrap_err().starts_with(&format!("{name}={value} is not supported: "))
        );
    }
    let silent =
        [("USE_STATSD", "false"), ("USE_DOG_STATSD", "false"), ("CONFIG_TYPE", "FILE"), ("REDIS_URL", "")];
    assert_eq!(check(&silent).unwrap(), Vec::<String>::new());
    let unused = [
        ("USE_STATSD", "true"),
        ("STATSD_HOST", "a"),
        ("TRACING_ENABLED", "true"),
        ("CONFIG_TYPE", "FILE"),
        ("CONFIG_GRPC_XDS_NODE_ID", "a"),
        ("USE_DOG_STATSD_MOGRIFIERS", "HITS"),
        ("DOG_STATSD_MOGRIFIERS_HITS_NAME", "a"),
    ];
    assert_eq!(
        check(&unused).unwrap(),
        ["not used: CONFIG_GRPC_XDS_NODE_ID, DOG_STATSD_MOGRIFIERS_HITS_NAME, \
          STATSD_HOST, TRACING_ENABLED, USE_DOG_STATSD_MOGRIFIERS, USE_STATSD"]
    );
    let of_store = [("BACKEND_TYPE", "redis"), ("REDIS_URL", "a"), ("CACHE_KEY_PREFIX", "b")];
    let warnings = check(&of_store).unwrap();
    assert!(warnings[0].contains("two replicas grant up to twice each limit"), "{warnings:?}");
    assert!(warnings[0].contains("BACKEND_TYPE, CACHE_KEY_PREFIX, REDIS_URL"), "{warnings:?}");
    assert_eq!(
        check(&[&of_store[..], &[("TOLLGATE_STORE", "memory")]].concat()).unwrap(),
        Vec::<String>::new()
    );
}

#[test]
#[cfg(feature = "redis")]
fn the_redis_of_the_reference_is_the_store_unless_another_is_named() {
    use crate::serve::shared::settings::Layout;
    let redis = [("REDIS_URL", "a:1"), ("CACHE_KEY_PREFIX", "p"), ("LOCAL_CACHE_SIZE_IN_BYTES", "4096")];
    let of = |more: &[(&str, &str)]| load(&ServeOptions::default(), &variables(&[&redis[..], more].concat()));
    let store = of(&[]).unwrap().store;
    let url = store.url.as_ref().map(ToString::to_string);
    assert_eq!((url.as_deref(), store.layout, &*store.prefix), (Some("redis://a:1"), Layout::Envoy, "p"));
    assert_eq!((store.caches_over, store.cache_bytes), (true, Some(4_096)));
    assert!(!of(&[("LOCAL_CACHE_SIZE_IN_BYTES", "0")]).unwrap().store.caches_over);
    let store = of(&[("TOLLGATE_STORE_LAYOUT", "tollgate"), ("REDIS_PIPELINE_LIMIT", "8")]).unwrap().store;
    assert_eq!((store.layout, store.caches_over, store.notes.len()), (Layout::Tollgate, true, 3));
    let store = of(&[("TOLLGATE_STORE", "redis://b")]).unwrap().store;
    assert_eq!(
        (store.url.map(|url| url.to_string()).as_deref(), store.layout),
        (Some("redis://b"), Layout::Tollgate)
    );
    assert!(of(&[("TOLLGATE_STORE", "none")]).unwrap().store.url.is_none());
    for (given, told) in [
        (&[("TOLLGATE_STORE", "redis://u:secret@a:b")][..], "TOLLGATE_STORE: "),
        (&[("REDIS_TYPE", "ring")], "REDIS_TYPE=ring: "),
        (&[("TOLLGATE_STORE_LEASE", "5ms")], "TOLLGATE_STORE_LEASE=5ms: the least is 10ms"),
        (&[("TOLLGATE_STORE_SHARE", "0")], "TOLLGATE_STORE_SHARE=0: expected a number above 0"),
        (&[("TOLLGATE_STATE", "/s")], "--state keeps the counts of this process"),
        (&[("TOLLGATE_STORE_NAME", "a:b")], "TOLLGATE_STORE_NAME=a:b: expected 1 to 16 letters"),
    ] {
        let why = of(given).map(drop).unwrap_err();
        assert!(why.starts_with(told) && !why.contains("secret"), "{why}");
    }
}

/// A bad value of a variable is told with the value and the bound, and none has a password.
#[test]
fn the_settings_of_a_control_plane_are_those_of_the_reference() {
    let of = |given: &[(&str, &str)]| {
        let used = [("CONFIG_TYPE", "GRPC_XDS_SOTW")];
        load(&ServeOptions::default(), &variables(&[&used[..], given].concat()))
    };
    for (name, value, why) in [
        ("CONFIG_TYPE", "xds", "CONFIG_TYPE=xds: expected one of `FILE`, `GRPC_XDS_SOTW`"),
        (
            "CONFIG_GRPC_XDS_SERVER_URL",
            "plane",
            "CONFIG_GRPC_XDS_SERVER_URL=plane: expected a host and a port",
        ),
        ("CONFIG_GRPC_XDS_SERVER_URL", "u@plane:1", "CONFIG_GRPC_XDS_SERVER_URL=u@plane:1: expected a host"),
        (
            "CONFIG_GRPC_XDS_NODE_METADATA",
            "a",
            "CONFIG_GRPC_XDS_NODE_METADATA=a: expected pairs such as zone=eu",
        ),
        (
            "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
            "3",
            "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL=3: ",
        ),
        (
            "CONFIG_GRPC_XDS_SERVER_USE_TLS",
            "yes",
            "CONFIG_GRPC_XDS_SERVER_USE_TLS=yes: expected true or false",
        ),
        (
            "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
            "ca",
            "--xds-tls-cert, --xds-tls-key, --xds-ca and --xds-san need",
        ),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "a", "--xds-tls-cert and --xds-tls-key: one needs the other"),
        (
            "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
            "0s",
            "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=0s: out of the bounds of",
        ),
        (
            "XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
            "0",
            "XDS_CLIENT_BACKOFF_RANDOM_FACTOR=0: expected a number above 0",
        ),
        ("XDS_CLIENT_BACKOFF_JITTER", "2", "XDS_CLIENT_BACKOFF_JITTER=2: expected true or false"),
        (
            "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
            "1G",
            "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=1G: expected a whole number",
        ),
        (
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
            "te:secret",
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: the",
        ),
        (
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
            "a:sec\nret",
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: ",
        ),
        (
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
            "a:b,sec ret:secret",
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: ",
        ),
        (
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
            "Upgrade:secret",
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: HTTP/2 has no header `upgrade`",
        ),
    ] {
        let told = of(&[(name, value)]).map(drop).unwrap_err();
        assert!(told.starts_with(why) && !told.contains("secret"), "{told}");
    }
    assert!(of(&[]).unwrap().paths.is_empty());
    let files = load(&ServeOptions::default(), &variables(&[])).unwrap();
    assert!(!files.xds.is_used && files.xds.server == "localhost:18000");
    let by_flag = ServeOptions::default().with_flag("xds.server", "[::1]:18000");
    assert!(load(&by_flag, &variables(&[])).unwrap().xds.is_used);
    assert_eq!(of(&[]).unwrap().needing_restart(&files), ["xds"]);
    let both = by_flag.with_flag("config_type", "file");
    let why = "--config-type FILE beside --xds-server: the rules are those of one of both";
    assert_eq!(load(&both, &variables(&[])).map(drop).unwrap_err(), why);
    let folder = Folder::new();
    let config = folder.write("serve.toml", "config_type = \"FILE\"\n[xds]\nserver = \"a:1\"\n");
    let both = ServeOptions { config: Some(config.into()), ..ServeOptions::default() };
    let told = load(&both, &variables(&[])).map(drop).unwrap_err();
    assert!(told.contains(":3:10: config_type = \"FILE\" beside xds.server: the rules"), "{told}");
    let san = [("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"), ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "a b")];
    let told = of(&san).map(drop).unwrap_err();
    assert_eq!(told, "--xds-san: \"a b\" is no name of a certificate");
    let used = environment::check(&variables(&[("CONFIG_GRPC_XDS_NODE_ID", "a")]), false, true, &[]);
    assert_eq!(used, Ok(Vec::new()));
}

/// The page has a line for each row: this test prints those that it lacks.
#[test]
fn the_readme_has_each_setting() {
    let readme = include_str!("../../../README.md");
    let or_none = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
    let line = |setting: &Setting<ServeSettings>| {
        let Setting { option, variable, help, .. } = setting;
        let flag =
            if option.is_empty() { String::new() } else { format!("--{}", option.replace('|', "\\|")) };
        let Value::Usual(default) = setting.value else { unreachable!("each has a default") };
        format!("| {} | {} | {} | {help} |", or_none(variable), or_none(&flag), or_none(default))
    };
    let lines = ServeTable::settings().map(line);
    let missing: Vec<String> = lines.filter(|line| !readme.contains(line.as_str())).collect();
    assert!(missing.is_empty(), "\n{}\n", missing.join("\n"));
}
