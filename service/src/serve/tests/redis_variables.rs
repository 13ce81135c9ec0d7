//! The variables of the Redis of envoyproxy/ratelimit: the URLs, and the sentences on wrong values.

use std::time::Duration;

use super::variables;
use crate::serve::redis_variables::{AT_ONCE, NO_SENTINEL, NO_TLS, POOL, RedisSettings, store_of};

fn store(given: &[(&str, &str)]) -> Result<Option<RedisSettings>, String> {
    store_of(&variables(given))
}

type Variables = &'static [(&'static str, &'static str)];

const TCP: (&str, &str) = ("REDIS_SOCKET_TYPE", "tcp");

/// The variables beside `REDIS_SOCKET_TYPE=tcp`, and the URLs.
#[test]
fn variables_are_urls() {
    const CASES: &[(Variables, &str, &str)] = &[
        (&[("REDIS_URL", "redis:6379")], "redis://redis:6379", ""),
        (&[("REDIS_URL", "[::1]:6379"), ("REDIS_AUTH", "p@ss/w")], "redis://:p%40ss%2Fw@[::1]:6379", ""),
        (&[("REDIS_URL", "a:1"), ("REDIS_AUTH", "ada:b:c")], "redis://ada:b%3Ac@a:1", ""),
        (
            &[("REDIS_URL", "redis://u:p%40@a:1/3"), ("REDIS_AUTH", "other"), ("REDIS_TYPE", "Single")],
            "redis://u:p%40@a:1/3",
            "",
        ),
        (&[("REDIS_URL", "redis://a:1?db=2")], "redis://a:1/2", ""),
        (&[("REDIS_URL", "a:1"), ("REDIS_TIMEOUT", "1s")], "redis://a:1?connect_timeout_ms=1000", ""),
        (&[("REDIS_URL", "a:1"), ("REDIS_TIMEOUT", "0")], "redis://a:1", ""),
        (&[("REDIS_URL", "/run/r s.sock"), ("REDIS_SOCKET_TYPE", "")], "redis+unix:///run/r%20s.sock", ""),
        (
            &[("REDIS_URL", "/r"), ("REDIS_SOCKET_TYPE", "unix"), ("REDIS_AUTH", "u:p&")],
            "redis+unix:///r?user=u&pass=p%26",
            "",
        ),
        (
            &[("BACKEND_TYPE", "redis"), ("REDIS_SOCKET_TYPE", "")],
            "redis+unix:///var/run/nutcracker/ratelimit.sock",
            "",
        ),
        (
            &[
                ("REDIS_URL", "a:1,b:2"),
                ("REDIS_TYPE", "CLUSTER"),
                ("REDIS_AUTH", "x"),
                ("REDIS_TLS", "true"),
            ],
            "rediss+cluster://:x@a:1,b:2",
            "",
        ),
        (
            &[("REDIS_URL", "main,a:1,b:2"), ("REDIS_TYPE", "sentinel"), ("REDIS_AUTH", "x")],
            "redis+sentinel://:x@a:1,b:2/main",
            "",
        ),
        (
            &[
                ("REDIS_URL", "main,redis://:s@a:1,redis://:s@b:2"),
                ("REDIS_TYPE", "sentinel"),
                ("REDIS_SENTINEL_AUTH", "other"),
            ],
            "redis+sentinel://a:1,b:2/main?sentinel_password=s",
            "",
        ),
        (
            &[("REDIS_URL", "main,a:1"), ("REDIS_TYPE", "sentinel"), ("REDIS_SENTINEL_AUTH", "u:s/t")],
            "redis+sentinel://a:1/main?sentinel_user=u&sentinel_password=s%2Ft",
            "",
        ),
        (
            &[
                ("REDIS_URL", "a:1"),
                ("REDIS_TLS", "1"),
                ("REDIS_TLS_CACERT", "/ca.pem"),
                ("REDIS_TLS_CLIENT_CERT", "/c.pem"),
                ("REDIS_TLS_CLIENT_KEY", "/k.pem"),
                ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "t"),
                ("REDIS_PERSECOND", "true"),
                ("REDIS_PERSECOND_SOCKET_TYPE", "tcp"),
                ("REDIS_PERSECOND_URL", "b:2"),
                ("REDIS_PERSECOND_AUTH", "p"),
                ("REDIS_PERSECOND_TIMEOUT", "2500us"),
            ],
            "rediss://a:1?tls_ca=/ca.pem&tls_cert=/c.pem&tls_key=/k.pem&tls_skip_hostname=true",
            "redis://:p@b:2?connect_timeout_ms=2",
        ),
        (
            &[("REDIS_URL", "a:1"), ("REDIS_PERSECOND", "TRUE")],
            "redis://a:1",
            "redis+unix:///var/run/nutcracker/ratelimitpersecond.sock",
        ),
    ];
    for (given, url, per_second) in CASES {
        let all = [&[TCP], *given].concat();
        let settings = store(&all).unwrap().expect(url);
        let found = (settings.url.as_str(), settings.per_second_url.as_deref().unwrap_or(""));
        assert_eq!(found, (*url, *per_second), "{given:?}");
        assert_eq!(settings.not_honoured, Vec::<String>::new(), "{given:?}");
    }
    for given in
        [&[][..], &[TCP], &[("REDIS_URL", "")], &[("BACKEND_TYPE", "memcache"), ("REDIS_URL", "a:1")]]
    {
        assert_eq!(store(given).unwrap(), None, "{given:?}");
    }
}

#[test]
fn numbers_and_variables_without_an_effect() {
    let settings = store(&[TCP, ("REDIS_URL", "a:1")]).unwrap().unwrap();
    assert_eq!((settings.keys.jitter, settings.keys.over_limit_cache_bytes), (Duration::from_secs(300), 0));
    assert_eq!(settings.keys.prefix, "");
    let given = [
        TCP,
        ("REDIS_URL", "a:1"),
        ("CACHE_KEY_PREFIX", "p:"),
        ("EXPIRATION_JITTER_MAX_SECONDS", "-1"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "1048576"),
        ("REDIS_POOL_SIZE", "20"),
        ("REDIS_PIPELINE_WINDOW", "150us"),
        ("REDIS_PIPELINE_LIMIT", "0"),
        ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "false"),
        ("REDIS_TLS_CACERT", "/ca"),
        ("REDIS_SENTINEL_AUTH", "secret"),
        ("REDIS_PERSECOND_URL", "b:2"),
    ];
    let settings = store(&given).unwrap().unwrap();
    assert_eq!((settings.keys.jitter, settings.keys.over_limit_cache_bytes), (Duration::ZERO, 1 << 20));
    assert_eq!(settings.keys.prefix, "p:");
    let expected = [
        ("REDIS_POOL_SIZE", POOL),
        ("REDIS_PIPELINE_WINDOW", AT_ONCE),
        ("REDIS_TLS_CACERT", NO_TLS),
        ("REDIS_SENTINEL_AUTH", NO_SENTINEL),
        ("REDIS_PERSECOND_URL", "REDIS_PERSECOND is not true"),
    ];
    assert_eq!(settings.not_honoured, expected.map(|(name, why)| format!("{name}: {why}")));
}

/// Each wrong value, and the sentence.
#[test]
fn a_wrong_value_is_a_sentence_without_a_password() {
    const CASES: &[(Variables, &str)] = &[
        (&[("BACKEND_TYPE", "etcd")], "BACKEND_TYPE=etcd: expected redis or memcache"),
        (&[("REDIS_URL", "a")], "REDIS_URL=a: expected HOST:PORT"),
        (&[("REDIS_URL", ":1")], "REDIS_URL=:1: expected HOST:PORT"),
        (&[("REDIS_URL", "a:70000")], "REDIS_URL=a:70000: expected HOST:PORT"),
        (&[("REDIS_URL", "u:secret@a:1")], "REDIS_URL=*****@a:1: expected HOST:PORT"),
        (
            &[("REDIS_URL", "redis://u:secret@a:1/x")],
            "REDIS_URL=*****@a:1/x: expected the number of a database",
        ),
        (&[("REDIS_URL", "a:1,b"), ("REDIS_TYPE", "cluster")], "REDIS_URL=b: expected HOST:PORT"),
        (
            &[("REDIS_URL", "main"), ("REDIS_TYPE", "sentinel")],
            "REDIS_URL=main: expected the name of the master, and sentinels behind it: MASTER,HOST:PORT,HOST:PORT",
        ),
        (
            &[("REDIS_URL", "a:1"), ("REDIS_TYPE", "ring")],
            "REDIS_TYPE=ring: expected single, sentinel or cluster",
        ),
        (
            &[("REDIS_URL", "a:1"), ("REDIS_SOCKET_TYPE", "udp")],
            "REDIS_SOCKET_TYPE=udp: expected tcp or unix",
        ),
        (&[("REDIS_URL", "a:1"), ("REDIS_TLS", "yes")], "REDIS_TLS=yes: expected true or false"),
        (
            &[("REDIS_URL", "/r"), ("REDIS_SOCKET_TYPE", "unix"), ("REDIS_TLS", "true")],
            "REDIS_TLS=true: a unix socket has no TLS",
        ),
        (
            &[("REDIS_URL", "a:1"), ("REDIS_TLS", "true"), ("REDIS_TLS_CLIENT_KEY", "/k")],
            "REDIS_TLS_CLIENT_KEY=/k: expected REDIS_TLS_CLIENT_CERT as well",
        ),
        (
            &[("REDIS_URL", "a:1"), ("REDIS_TLS", "true"), ("REDIS_TLS_CACERT", "/a&b")],
            "REDIS_TLS_CACERT=/a&b: expected a path without ?, &, # and =",
        ),
        (
            &[("REDIS_URL", "a:1"), ("REDIS_TIMEOUT", "2d")],
            "REDIS_TIMEOUT=2d: out of the bounds of 0s and 1day",
        ),
        (
            &[("REDIS_URL", "a:1"), ("LOCAL_CACHE_SIZE_IN_BYTES", "-1")],
            "LOCAL_CACHE_SIZE_IN_BYTES=-1: expected a whole number from 0 to 18446744073709551615",
        ),
        (
            &[("REDIS_URL", "a:1"), ("REDIS_PERSECOND", "true"), ("REDIS_PERSECOND_TYPE", "ring")],
            "REDIS_PERSECOND_TYPE=ring: expected single, sentinel or cluster",
        ),
    ];
    for (given, why) in CASES {
        let all = [&[TCP], *given].concat();
        assert_eq!(store(&all).unwrap_err(), *why, "{given:?}");
    }
}
