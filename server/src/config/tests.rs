use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use clap::Parser;
use tollgate::Priority;

use super::describe::describe;
use super::describe::entries;
use super::options::{Options, load, reload, sentence};
use super::settings::{
    Address, Admin, Certificate, ExemptPath, InflightLimit, LogFormat, Route, Settings, Upstream,
};

#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    options: Options,
}

pub(super) fn options(args: &[&str]) -> Result<Options, String> {
    let command = Command::try_parse_from([&["tollgate"], args].concat());
    command.map(|command| command.options).map_err(|error| sentence(&error))
}

/// The settings of options alone.
pub(super) fn by_options(args: &[&str]) -> Result<Settings, String> {
    load(&options(args)?)
}

/// A file that goes with its value.
pub(super) struct TempFile(pub(super) PathBuf);

impl TempFile {
    pub(super) fn new(text: &str) -> TempFile {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("tollgate-config-{}-{}.toml", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let file = TempFile(std::env::temp_dir().join(name));
        file.write(text);
        file
    }

    pub(super) fn write(&self, text: impl AsRef<[u8]>) {
        fs::write(&self.0, text).expect("the folder for temporary files can be written to");
    }

    fn options(&self, args: &[&str]) -> Options {
        let options = options(args).expect("the options of a test are valid");
        Options { config: Some(self.0.clone()), ..options }
    }

    /// The settings, or the error without the name of the file.
    pub(super) fn load(&self, args: &[&str]) -> Result<Settings, String> {
        load(&self.options(args)).map_err(|error| error.replace(&format!("{}:", self.0.display()), ""))
    }

    pub(super) fn reload(&self, before: &Settings) -> Result<(Settings, Vec<String>), String> {
        let options = Options { config: Some(self.0.clone()), ..Options::default() };
        let result = reload(&options, before);
        result.map_err(|error| error.replace(&format!("{}:", self.0.display()), ""))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub(super) fn load_text(text: &str) -> Result<Settings, String> {
    TempFile::new(text).load(&[])
}

/// All there is in a file; each setting differs from the default one.
const RICH: &str = r#"# A comment, with ümläuts.
listen = "0.0.0.0:8443"
proxy_protocol = true
upstream = [
    "http://10.0.0.1:8000",
    "unix:/run/app.sock",
]
preserve_host = true
via = "edge"
limit = "1000/s burst 2000"
key = "header:x-api-key"
trust_proxy = ["10.0.0.0/8", "192.0.2.1"]
ipv4_prefix = 24
ipv6_prefix = 56
case_sensitive = true
shadow = true
lame_duck = "15s"
drain = "1m 30s"
remove_routes = ["old"]

[tls]
cert = "pem/chain.pem"
key = "/etc/key.pem"

[exempt]
networks = ["172.16.0.0/12", "192.0.2.7"]
paths = ["/health", "/static/*"]
methods = ["OPTIONS", "M-SEARCH"]
preflights = true

[admin]
listen = "0.0.0.0:9000"
public = true
hosts = ["Admin.example.org"]

[bounds]
connections_per_address = 100
in_flight = 512
in_flight_per_key = 100
least_rate = 90
keys_per_limit = 5000

[inflight]
limit = 100
target = "300ms"

[timeouts]
request_head = "11s"
keep_alive = "61s"
request_body = "12s"
whole_body = "2h"
queue = "13s"
connect = "14s"
response_head = "15s"
response_body = "16s"
slow_reader = "17s"
tunnel = "1h"

[log]
format = "json"
access = true

[[route]]
prefix = "/login"
limit = "50/m burst 50"
name = "login"
cost = 10

[[route]]
name = "search"
cost = 20
priority = "sheddable"
prefix = "/search"
limit = "100/s"

[[route]]
prefix = "/plain"
limit = "5/m burst 5"
"#;

/// Another file whose settings differ from those of [`RICH`], as do those of its two routes.
const OTHER: &str = r#"limit = "10/s burst 20"
key = "peer"
trust_proxy = ["172.16.0.0/12"]
upstream = ["http://10.0.0.2"]
ipv4_prefix = 16
ipv6_prefix = 48
shadow = false
case_sensitive = false
drain = "25s"
[exempt]
networks = ["198.51.100.0/24"]
paths = ["/ready"]
methods = []
preflights = false
[bounds]
connections_per_address = 25
in_flight_per_key = 12
in_flight = 25
[inflight]
limit = 25
target = "25ms"
[timeouts]
connect = "25s"
[[route]]
prefix = "/login"
cost = 15
limit = "15/m burst 15"
name = "login"
[[route]]
name = "search"
prefix = "/find"
limit = "15/s"
cost = 12
priority = "background"
[[route]]
name = "new"
prefix = "/new"
limit = "15/s"
"#;

fn rule(text: &str) -> tollgate::Rule {
    text.parse().expect("a rule of a test is valid")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn route(name: &str, prefix: &str, limit: &str, cost: u64) -> Route {
    let (name, prefix, priority) = (name.to_owned(), prefix.to_owned(), Priority::Critical);
    Route { name, prefix, rule: rule(limit), cost, priority }
}

fn sheddable(route: Route) -> Route {
    Route { priority: Priority::Sheddable, ..route }
}

#[test]
fn without_options_there_are_the_defaults() {
    assert_eq!(by_options(&[]), Ok(Settings::default()));
    assert_eq!(load_text("shadow = false\n"), Ok(Settings::default()));
}

#[test]
fn every_setting_can_be_in_the_file() {
    let file = TempFile::new(RICH);
    let settings = file.load(&[]).expect("the file is valid");
    let folder = file.0.parent().expect("a file is in a folder").to_owned();
    let default = Settings::default();
    assert_eq!(settings.listen, Address::Tcp("0.0.0.0:8443".parse().expect("an address")));
    assert_eq!(
        settings.tls,
        Some(Certificate { chain: folder.join("pem/chain.pem"), key: PathBuf::from("/etc/key.pem") })
    );
    assert_eq!(list(&settings.upstreams), ["http://10.0.0.1:8000", "unix:/run/app.sock"]);
    assert_eq!(settings.via.as_deref(), Some("edge"));
    assert_eq!(settings.limit, Some(rule("1000/s burst 2000")));
    assert_eq!(settings.key.as_ref().map(|name| name.as_str()), Some("x-api-key"));
    assert_eq!(list(&settings.trust_proxy), ["10.0.0.0/8", "192.0.2.1/32"]);
    assert_eq!((settings.ipv4_prefix, settings.ipv6_prefix), (24, 56));
    assert_eq!(
        settings.routes,
        [
            route("login", "/login", "50/m burst 50", 10),
            sheddable(route("search", "/search", "100/s", 20)),
            route("/plain", "/plain", "5/m", 1),
        ]
    );
    assert_eq!(list(&settings.exempt.networks), ["172.16.0.0/12", "192.0.2.7/32"]);
    let paths = [ExemptPath::Exact("/health".to_owned()), ExemptPath::Under("/static/".to_owned())];
    assert_eq!(settings.exempt.paths, paths);
    assert_eq!(list(&settings.exempt.methods), ["OPTIONS", "M-SEARCH"]);
    assert!(settings.exempt.preflights);
    let admin = Admin {
        at: "0.0.0.0:9000".parse().expect("an address"),
        hosts: vec!["admin.example.org".to_owned()],
    };
    assert_eq!(settings.admin, Some(admin));
    assert_eq!(settings.bounds.connections_per_address, 100);
    assert_eq!((settings.bounds.in_flight, settings.bounds.in_flight_per_key), (512, 100));
    let inflight = InflightLimit { ceiling: 100, target: Some(Duration::from_millis(300)) };
    assert_eq!(settings.inflight, Some(inflight));
    let times = &settings.timeouts;
    assert_eq!((times.request_head, times.request_body), (seconds(11), seconds(12)));
    assert_eq!(times.keep_alive, seconds(61));
    assert_eq!((times.whole_body, settings.bounds.least_rate), (seconds(7_200), Some(90)));
    assert_eq!((times.queue, times.connect), (seconds(13), seconds(14)));
    assert_eq!((times.response_head, times.response_body), (seconds(15), seconds(16)));
    assert_eq!((times.slow_reader, times.tunnel), (seconds(17), seconds(3_600)));
    assert_eq!((times.lame_duck, times.drain), (seconds(15), seconds(90)));
    assert_eq!((settings.log.format, settings.log.access), (LogFormat::Json, true));
    let flags = [settings.proxy_protocol, settings.preserve_host, settings.case_sensitive, settings.shadow];
    assert_eq!(flags, [true; 4]);
    // Or a setting was forgotten here. The store has tests of its own.
    let same: Vec<_> = same_entries(&settings, &default);
    assert_eq!(same, ["store"]);
}

fn list<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(T::to_string).collect()
}

/// The names of the settings that are as in other settings.
fn same_entries(settings: &Settings, other: &Settings) -> Vec<String> {
    let other = entries(other);
    let is_same =
        |name: &str, value: &str| other.iter().any(|other| (&*other.name, &*other.value) == (name, value));
    let same = entries(settings).into_iter().filter(|entry| is_same(&entry.name, &entry.value));
    same.map(|entry| entry.name).collect()
}

#[test]
fn every_option_overrides_the_file() {
    let file = TempFile::new(RICH);
    let args = "--listen unix:/run/t.sock --tls-cert c.pem --tls-key k.pem --proxy-protocol=false \
        --upstream http://a --upstream unix:/run/b.sock --preserve-host=false --via other --limit none \
        --key peer --trust-proxy ::1 --ipv4-prefix 8 --ipv6-prefix 32 --case-sensitive=false \
        --exempt-network ::1 --exempt-path /a --exempt-path /b/* --exempt-method GET --exempt-preflights=false \
        --shadow=false --admin --admin-host other --connections-per-address 2 --in-flight 20 \
        --in-flight-per-key 10 --keys-per-limit none --least-rate none --inflight 5 --target none --timeout request_head=1s --timeout keep_alive=1s --timeout request_body=1s --timeout queue=1s \
        --timeout whole_body=1s \
        --timeout connect=1s --timeout response_head=1s --timeout response_body=1s \
        --timeout slow_reader=1s --timeout tunnel=1s --lame-duck 0s --drain 0s --log text \
        --access-log=false";
    let args: Vec<&str> = args.split_whitespace().collect();
    let settings = file.load(&args).expect("the options are valid");
    let routes = ["route login", "route search", "route /plain", "store"].map(str::to_owned).to_vec();
    assert_eq!(same_entries(&settings, &file.load(&[]).expect("the file is valid")), routes);
    assert_eq!(settings.listen, Address::Unix("/run/t.sock".into()));
    assert_eq!(settings.tls, Some(Certificate { chain: "c.pem".into(), key: "k.pem".into() }));
    assert_eq!(settings.upstreams[1], Upstream::Unix("/run/b.sock".into()));
    assert_eq!(settings.limit, None);
    assert_eq!(list(&settings.exempt.networks), ["::1/128"]);
    assert_eq!(list(&settings.exempt.paths), ["/a", "/b/*"]);
    assert_eq!((list(&settings.exempt.methods), settings.exempt.preflights), (vec!["GET".to_owned()], false));
    assert_eq!(settings.admin.map(|admin| admin.at.to_string()), Some("127.0.0.1:8081".to_owned()));
    assert_eq!(settings.timeouts.tunnel, seconds(1));
    let flags = "--proxy-protocol --preserve-host --case-sensitive --exempt-preflights --shadow --access-log --admin \
         --admin-public";
    let settings = by_options(&flags.split_whitespace().collect::<Vec<_>>()).expect("the options are valid");
    assert!(settings.proxy_protocol && settings.preserve_host && settings.case_sensitive && settings.shadow);
    assert!(settings.log.access && settings.exempt.preflights);
}

#[test]
fn a_bound_of_a_key_follows_the_bound_of_all() {
    let bounds = |args| by_options(args).map(|settings| settings.bounds.in_flight_per_key);
    assert_eq!(bounds(&["--in-flight", "50"]), Ok(50));
    assert_eq!(bounds(&["--in-flight", "1000"]), Ok(64));
    let error = "in_flight_per_key = 101 is above in_flight, 100";
    assert_eq!(bounds(&["--in-flight", "100", "--in-flight-per-key", "101"]), Err(error.to_owned()));
    let file = TempFile::new("[bounds]\nin_flight_per_key = 101\n");
    assert_eq!(file.load(&["--in-flight", "100"]), Err(format!("2:21: {error}")));
    file.write("[bounds]\nin_flight = 50\n");
    let (after, _) = file.reload(&Settings::default()).expect("the file is valid");
    assert_eq!((after.bounds.in_flight, after.bounds.in_flight_per_key), (50, 50));
    file.write("[bounds]\nin_flight = 512\nin_flight_per_key = 513\n");
    let error = "3:21: in_flight_per_key = 513 is above in_flight, 512";
    assert_eq!(file.load(&[]), Err(error.to_owned()));
}

#[test]
fn a_target_needs_a_limit_and_is_within_its_bounds() {
    let inflight = |args: &str| {
        let args: Vec<&str> = args.split_whitespace().collect();
        by_options(&args).map(|settings| settings.inflight.map(|limit| (limit.ceiling, limit.target)))
    };
    assert_eq!(inflight("--inflight 7"), Ok(Some((7, None))));
    assert_eq!(inflight("--inflight 7 --target 2s"), Ok(Some((7, Some(seconds(2))))));
    assert_eq!(inflight("--inflight none"), Ok(None));
    assert_eq!(inflight("--target none"), Ok(None));
    let needs = "--target needs --inflight: the most that the limit may become";
    for (args, error) in [
        ("--target 2s", needs),
        ("--target 2s --inflight none", needs),
        ("--inflight 7 --target 2m", "2m is out of the bounds of 1us and 1m"),
        ("--inflight 7 --target 999ns", "999ns is out of the bounds of 1us and 1m"),
        ("--inflight 0", "expected a whole number from 1 to 100000000"),
        ("--inflight 7 --target 0s", "0s is out of the bounds"),
    ] {
        let told = inflight(args).expect_err(args);
        assert!(told.contains(error), "{args}: {told}");
    }
    let file = TempFile::new("[inflight]\ntarget = \"2s\"\n");
    let in_file = "2:10: target needs a limit: the most that the limit may become";
    assert_eq!(file.load(&[]), Err(in_file.to_owned()));
    let by_both = file.load(&["--inflight", "9"]).expect("the option has the limit");
    assert_eq!(by_both.inflight, Some(InflightLimit { ceiling: 9, target: Some(seconds(2)) }));
    assert_eq!(file.load(&["--inflight", "none"]).expect("the option turns it off").inflight, None);
}

#[test]
fn workers_are_those_of_the_upstream_in_this_process() {
    let demo = |args: &str| {
        let demo = options(&args.split_whitespace().collect::<Vec<_>>()).map(|options| options.demo);
        demo.map(|demo| (demo.workers, demo.service, demo.slow_at))
    };
    assert_eq!(demo(""), Ok((None, Duration::ZERO, None)));
    let all = "--workers 32 --service 50ms --slow-at 30s";
    assert_eq!(demo(all), Ok((Some(32), Duration::from_millis(50), Some(seconds(30)))));
    for (args, part) in [
        ("--workers 0", "expected a whole number from 1 to 1000000"),
        ("--service fast", "expected a time such as 10s"),
        ("--slow-at 30s", "--workers <N>"),
        ("--workers 2 --upstream http://a", "cannot be used with"),
    ] {
        let told = demo(args).expect_err(args);
        assert!(told.contains(part), "{args}: {told}");
    }
}

#[test]
fn an_error_of_the_file_has_its_place_the_value_and_the_bound() {
    let address = "expected an address and a port such as 127.0.0.1:8080, or unix:PATH";
    let token = "expected a token of 1 to 255 letters, digits and !#$%&'*+-.^_`|~";
    let unit = "is not a unit: ns, us, ms, s, m, h, d, w or its word";
    let rule = "as a rule such as \"100/s burst 200\" or \"1000/d fixed utc\"";
    let networks = "expected a network such as 10.0.0.0/8, or an address";
    let form = "expected http://HOST, http://HOST:PORT or unix:PATH";
    let cases = [
        ("listen = \"here\"\n", format!("1:10: \"here\": {address}")),
        ("listen = 80\n", format!("1:10: 80: {address}")),
        ("via = \"a b\"\n", format!("1:7: \"a b\": {token}")),
        (
            "limit = \"0/s\"\n",
            format!("1:9: cannot read \"0/s\" {rule}: a quota of 0 tokens grants nothing: the least is 1"),
        ),
        (
            "limit = \"blocked\"\n",
            "1:9: \"blocked\": a limit of the settings is a rate or a window, and blocked is none; or \"none\" \
             for no limit"
                .to_owned(),
        ),
        ("limit = \"1/x\"\n", format!("1:9: cannot read \"1/x\" {rule}: \"x\" {unit}")),
        ("key = \"host\"\n", "1:7: \"host\": expected `peer` or `header:NAME`".to_owned()),
        ("trust_proxy = [\n  \"::1\",\n  \"é\", \"::/200\"]\n", format!("3:3: \"é\": {networks}")),
        ("trust_proxy = [\"::1\", \"é\"]\n", format!("1:23: \"é\": {networks}")),
        ("\nipv4_prefix = 33\n", "2:15: 33: expected a whole number from 8 to 32".to_owned()),
        ("ipv6_prefix = -1\n", "1:15: -1: expected a whole number from 32 to 64".to_owned()),
        ("[bounds]\nin_flight = 0\n", "2:13: 0: expected a whole number from 1 to 100000000".to_owned()),
        ("drain = \"25h\"\n", "1:9: \"25h\": a time is at most a day, 24h".to_owned()),
        ("[timeouts]\nqueue = \"0s\"\n", "2:9: \"0s\": a time of 0 is under the bound of 1ns".to_owned()),
        (
            "[timeouts]\nqueue = \"1 day\"\nwait = \"1s\"\n",
            "3:8: \"wait\" is no time-out; there are request_head, keep_alive, request_body, whole_body, queue, connect, \
             response_head, response_body, slow_reader, tunnel"
                .to_owned(),
        ),
        ("[log]\nformat = \"xml\"\n", "2:10: \"xml\": expected `text` or `json`".to_owned()),
        ("[log]\nlevel = 1\n", "2:1: unknown field `level`, expected `format` or `access`".to_owned()),
        ("[exempt]\nnetworks = [\"::1\", \"x\"]\n", format!("2:20: \"x\": {networks}")),
        (
            "[exempt]\nmethods = [\"options\"]\n",
            "2:12: \"options\": expected a method in capitals such as OPTIONS".to_owned(),
        ),
        (
            "[exempt]\npaths = [\n  \"/a\",\n  \"b\"]\n",
            "4:3: \"b\": an exempt path begins with `/`".to_owned(),
        ),
        (
            "[exempt]\npath = [\"/a\"]\n",
            "2:1: unknown field `path`, did you mean `paths`?"
                .to_owned(),
        ),
        (
            "[exempt]\npreflights = \"yes\"\n",
            "2:14: invalid type: string \"yes\", expected a boolean".to_owned(),
        ),
        ("[tls]\ncert = \"a\"\n", "1:1: missing field `key`".to_owned()),
        ("[tls]\n", "1:1: missing field `cert`".to_owned()),
        (
            "[admin]\nlisten = \"0.0.0.0:81\"\n",
            "2:10: the admin address 0.0.0.0:81 is not a loopback address: any client that reaches it \
             can change the limit, so it needs `public = true`"
                .to_owned(),
        ),
        ("[[route]]\nprefix = \"/a\"\n", "1:1: missing field `limit`".to_owned()),
        ("[[route]]\nlimit = \"1/s\"\n", "1:1: missing field `prefix`".to_owned()),
        ("[[route]]\nprefix = \"a\"\n", "2:10: \"a\": a prefix begins with `/`".to_owned()),
        (
            "[[route]]\nprefix = \"/api/*/x\"\n",
            "2:10: \"/api/*/x\": a prefix is no pattern, and has no `*`: /a is the prefix of all paths under /a/"
                .to_owned(),
        ),
        (
            "[[route]]\nprefix = \"/api/*\"\n",
            "2:10: \"/api/*\": a prefix is no pattern, and has no `*`: /a is the prefix of all paths under /a/"
                .to_owned(),
        ),
        (
            "[[route]]\nprefix = \"/\u{e9}\"\nlimit = \"5/s\"\n",
            "2:10: the prefix \"/\u{e9}\" is no name of a limit, so the route needs a `name`: character 1 of a name, \
             '\u{e9}', is not printable ASCII, ' ' to '~'"
                .to_owned(),
        ),
        (
            "trust_proxy = [\"10.0.0.0/8\", \"0.0.0.0/0\"]\n",
            "1:30: \"0.0.0.0/0\": the network 0.0.0.0/0 has every address of its version: name some networks alone"
                .to_owned(),
        ),
        (
            "trust_proxy = [\"::ffff:10.0.0.0/104\"]\n",
            "1:16: \"::ffff:10.0.0.0/104\": the network ::ffff:10.0.0.0/104 has no address, as these are canonical: \
             name 10.0.0.0/8"
                .to_owned(),
        ),
        (
            "[exempt]\nnetworks = [\"10.1.2.3/8\"]\n",
            "2:13: \"10.1.2.3/8\": the network 10.1.2.3/8 has bits after its prefix: name 10.0.0.0/8".to_owned(),
        ),
        (
            "[exempt]\nnetworks = [\"::/0\"]\n",
            "2:13: \"::/0\": the network ::/0 has every address of its version: name some networks alone".to_owned(),
        ),
        (
            "[[route]]\nprefix = \"/a?b\"\n",
            "2:10: \"/a?b\": a prefix is a path, without `?`, `#` and control characters".to_owned(),
        ),
        (
            "[[route]]\nprefix = \"/a\"\nlimit = \"5/s\"\npriority = \"high\"\n",
            "4:12: \"high\": expected `critical`, `default`, `sheddable` or `background`".to_owned(),
        ),
        (
            "[[route]]\nprefix = \"/a\"\nlimit = \"5/s\"\ncost = 6\n",
            "4:8: a cost of 6 is out of the bounds of 1 and the burst, 5".to_owned(),
        ),
        (
            "[[route]]\nprefix = \"/a\"\nlimit = \"5/s\"\nname = \"default\"\n",
            "4:8: the name \"default\" is taken".to_owned(),
        ),
        (
            "[[route]]\nprefix = \"/a\"\nlimit = \"5/s\"\n\
             [[route]]\nprefix = \"/a\"\nlimit = \"5/s\"\nname = \"b\"\n",
            "2:10: the route \"b\" has the prefix \"/a\", too".to_owned(),
        ),
        (
            "remove_routes = [\"/a\"]\n[[route]]\nprefix = \"/a\"\nlimit = \"5/s\"\n",
            "3:10: the route \"/a\" is one of remove_routes".to_owned(),
        ),
        ("limitt = \"1/s\"\n", "1:1: unknown field `limitt`, did you mean `limit`?".to_owned()),
        ("[[routes]]\nprefix = \"/a\"\n", "1:3: unknown field `routes`, did you mean `route`?".to_owned()),
        ("[timeouts]\nconnec = \"1s\"\n", "2:10: \"connec\" is no time-out, did you mean \"connect\"?".to_owned()),
        (
            "[[route]]\nprefix = \"/a\"\nlimit = \"1/s\"\n[[route]]\nlimit = \"2/s\"\n",
            "4:1: missing field `prefix`".to_owned(),
        ),
        (
            "[[route]]\nprefix = \"/a\"\nlimit = \"none\"\n",
            "3:9: \"none\": a route has a rate or a window; remove_routes removes a route".to_owned(),
        ),
        (
            "[[route]]\nprefix = \"/a\"\nlimit = \"1/s\"\n[[route]]\nprefix = \"/A/\"\nlimit = \"2/s\"\n",
            "2:10: the route \"/A/\" has the prefix \"/A/\", which has the same paths".to_owned(),
        ),
        ("upstream = 5\n", "1:12: invalid type: integer `5`, expected a list of texts in quotes".to_owned()),
        ("upstream = \"ftp://a\"\n", format!("1:12: \"ftp://a\": {form}")),
        (
            "listen = \"0.0.0.0:80\"\nupstream = \"http://127.0.0.1\"\n",
            "2:12: the upstream http://127.0.0.1 is the address that clients connect to".to_owned(),
        ),
        (
            "listen = \"unix:/a\"\nupstream = [\"unix:/b\", \"unix:/a\"]\n",
            "2:24: the upstream unix:/a is the address that clients connect to".to_owned(),
        ),
        (
            "listen = \"0.0.0.0:8081\"\n[admin]\n",
            "1:10: the admin page cannot listen on 0.0.0.0:8081: clients connect there".to_owned(),
        ),
        (
            "upstream = \"http://[::1]:9\"\n[admin]\nlisten = \"[::1]:9\"\n",
            "1:12: the upstream http://[::1]:9 is the address of the admin page".to_owned(),
        ),
        ("limit = \"1/s\nshadow = true\n", "1:13: invalid basic string, expected `\"`".to_owned()),
        ("shadow = true\nshadow = false\n", "2:1: duplicate key".to_owned()),
        (
            "shadow = true\nipv4_prefix = 10",
            "2:17: the last line does not end with a newline: the file may have been cut".to_owned(),
        ),
        ("", "1:1: the file is empty: no setting is named".to_owned()),
        ("\n # a = 1\n\n", "1:1: the file is empty: no setting is named".to_owned()),
    ];
    for (text, expected) in cases {
        assert_eq!(load_text(text).map(|_| text), Err(expected));
    }
    let file = TempFile::new("");
    file.write(b"via = \"\xc3\xa4\xff\"\n");
    assert_eq!(file.load(&[]), Err("1:9: a byte that is not UTF-8".to_owned()));
    file.write(vec![b'\n'; (1 << 20) + 1]);
    let error = format!("{} is over the bound of 1048576 bytes", file.0.display());
    assert_eq!(file.load(&[]), Err(error));
}

#[test]
fn an_error_of_the_options_is_one_sentence() {
    let form = "expected http://HOST, http://HOST:PORT or unix:PATH";
    let value = "invalid value";
    let cases = [
        (
            "--listen 80",
            "invalid value '80' for '--listen <IP:PORT|unix:PATH>': expected an address and a port \
            such as 127.0.0.1:8080, or unix:PATH"
                .to_owned(),
        ),
        (
            "--tls-cert a.pem",
            "the following required arguments were not provided: --tls-key <FILE>".to_owned(),
        ),
        (
            "--limit 1",
            format!(
                "{value} '1' for '--limit <QUOTA|none>': cannot read \"1\" as a rule such as \"100/s burst 200\" or \
                 \"1000/d fixed utc\": it has no \"/\" between a count and a period; or \"none\" for no limit"
            ),
        ),
        ("--key x", format!("{value} 'x' for '--key <peer|header:NAME>': expected `peer` or `header:NAME`")),
        (
            "--ipv4-prefix 7",
            format!("{value} '7' for '--ipv4-prefix <8..=32>': expected a whole number from 8 to 32"),
        ),
        (
            "--in-flight x",
            format!("{value} 'x' for '--in-flight <N>': expected a whole number from 1 to 100000000"),
        ),
        (
            "--timeout wait=1s",
            "--timeout: \"wait\" is no time-out; there are request_head, keep_alive, request_body, whole_body, queue, connect, \
             response_head, response_body, slow_reader, tunnel"
                .to_owned(),
        ),
        (
            "--timeout drain=0s",
            format!(
                "{value} 'drain=0s' for '--timeout <NAME=DURATION>': a time of 0 is under \
            the bound of 1ns"
            ),
        ),
        ("--drain 25h", format!("{value} '25h' for '--drain <DURATION>': a time is at most a day, 24h")),
        ("--log xml", format!("{value} 'xml' for '--log <text|json>': expected `text` or `json`")),
        ("--admin-public", "--admin-public needs --admin".to_owned()),
        ("--admin-host a", "--admin-host needs --admin".to_owned()),
        (
            "--admin [::]:1",
            "--admin [::]:1 is not a loopback address: any client that reaches it can change the limit, \
            so it needs --admin-public"
                .to_owned(),
        ),
        (
            "--upstream https://a",
            format!(
                "{value} 'https://a' for '--upstream <http://HOST[:PORT]|unix:PATH>': https \
            upstreams are not supported, only http"
            ),
        ),
        (
            "--exempt-network 10.0.0.0/33",
            format!(
                "{value} '10.0.0.0/33' for '--exempt-network <CIDR|IP>': expected a network such as \
                 10.0.0.0/8, or an address"
            ),
        ),
        (
            "--exempt-path /a*",
            format!(
                "{value} '/a*' for '--exempt-path <PATH|PATH/*>': the `*` of an exempt path is its last \
                 segment, as in /static/*"
            ),
        ),
        (
            "--exempt-method get",
            format!(
                "{value} 'get' for '--exempt-method <METHOD>': expected a method in capitals such as OPTIONS"
            ),
        ),
        ("--nothing", "unexpected argument '--nothing' found".to_owned()),
        (
            "--config /no/such/file",
            "cannot read /no/such/file: No such file or directory (os error 2)".to_owned(),
        ),
    ];
    for (args, expected) in cases {
        let args: Vec<&str> = args.split(' ').collect();
        assert_eq!(by_options(&args), Err(expected));
    }
    for upstream in
        ["a", "http://", "http://a/b", "http://a?b", "http://a#b", "http://a b", "ftp://a", "unix"]
    {
        let error = upstream.parse::<Upstream>();
        assert_eq!(error, Err(form), "{upstream}");
    }
    for port in ["http://a:", "http://a:0", "http://a:65536", "http://a:x"] {
        assert!(port.parse::<Upstream>().is_err(), "{port}");
    }
    let user = Err("a user in the URL of an upstream is not supported");
    assert_eq!("http://user@a".parse::<Upstream>(), user);
    assert!("http://[::1]:80/".parse::<Upstream>().is_ok() && "unix:".parse::<Upstream>().is_err());
    assert!(by_options(&["--admin", "[::ffff:127.0.0.1]:1"]).is_ok());
    assert!(by_options(&["--admin", "0.0.0.0:1", "--admin-public"]).is_ok());
}

#[test]
fn an_exempt_path_is_one_that_every_server_reads_as_it_is_spelled() {
    for path in ["/", "/health", "/health/", "/a.b/.c/..d", "/caf%C3%A9", "/a%20b/*", "/x/y/*", "/a,b:c@d"] {
        assert_eq!(path.parse::<ExemptPath>().map(|path| path.to_string()), Ok(path.to_owned()));
    }
    let cases = [
        ("begins with `/`", &["", "*", "health", "http://a/b", "?"][..]),
        ("exempts all requests", &["/*"]),
        ("is its last segment", &["/*/a", "/a*", "/a/*b", "/**", "/a/**", "/*/*"]),
        ("as clients send it", &["/a b", "/caf\u{e9}", "/a?b", "/a?b/*", "/a#b", "/a\tb", "/a\0"]),
        (
            "in several ways",
            &[
                "//",
                "//*",
                "/a//b",
                "/a//*",
                "/.",
                "/..",
                "/a/..",
                "/a/../*",
                "/./a",
                "/a/./*",
                "/a;b",
                "/a;x/*",
                "/a\\b",
                "/%61",
                "/%61/*",
                "/a%2fb",
                "/a%2Fb/*",
                "/a%5cb",
                "/a%3bb",
                "/%2e%2e/a",
                "/a%23b",
                "/a%3Fb",
                "/a%00",
                "/a%25b",
                "/a%ffb",
            ],
        ),
    ];
    for (part, paths) in cases {
        for path in paths {
            let error = path.parse::<ExemptPath>().expect_err(path);
            assert!(error.contains(part), "{path}: {error}");
        }
    }
}

#[test]
fn a_reload_replaces_the_exempt_lists_that_it_names() {
    let file = TempFile::new(RICH);
    let before = file.load(&[]).expect("the file is valid");
    file.write("[exempt]\npaths = [\"/ready\"]\nnetworks = []\n");
    let (after, lines) = file.reload(&before).expect("the file is valid");
    let mut expected = before.clone();
    (expected.exempt.networks, expected.exempt.paths) =
        (vec![], vec![ExemptPath::Exact("/ready".to_owned())]);
    assert_eq!(after, expected);
    for line in [
        "exempt.networks: none, was 172.16.0.0/12, 192.0.2.7/32",
        "exempt.paths: /ready, was /health, /static/*",
        "exempt.methods: stays OPTIONS, M-SEARCH; a restart makes it none",
        "exempt.preflights: stays on; a restart makes it off",
    ] {
        assert!(lines.iter().any(|known| known == line), "{line} is missing in {lines:#?}");
    }
}

/// The other settings are as before: a file that was cut removes and loosens nothing.
#[test]
fn every_beginning_of_the_file_is_refused_or_changes_nothing() {
    let file = TempFile::new(RICH);
    let before = file.load(&[]).expect("the file is valid");
    let (mut taken, mut refused) = (0, 0);
    for end in 0..RICH.len() {
        file.write(&RICH.as_bytes()[..end]);
        match file.reload(&before) {
            Ok((after, _)) => {
                assert_eq!(after, before, "after {:?}", String::from_utf8_lossy(&RICH.as_bytes()[..end]));
                assert!(RICH[..end].ends_with('\n'));
                taken += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 30 && refused > 30, "{taken} taken, {refused} refused");
}

/// Of another file, the settings that it names up to the cut are taken, and the rest is as before.
#[test]
fn a_beginning_of_another_file_changes_what_it_names() {
    let file = TempFile::new(RICH);
    let before = file.load(&[]).expect("the file is valid");
    file.write(OTHER);
    let (whole, _) = file.reload(&before).expect("the file is valid");
    let mut taken = 0;
    for end in 0..OTHER.len() {
        file.write(&OTHER[..end]);
        let Ok((after, _)) = file.reload(&before) else { continue };
        taken += 1;
        let allowed: Vec<_> = entries(&before).into_iter().chain(entries(&whole)).collect();
        for entry in entries(&after).iter().filter(|entry| !entry.name.starts_with("route ")) {
            let known =
                allowed.iter().any(|known| (&known.name, &known.value) == (&entry.name, &entry.value));
            assert!(known, "{} = {} after {:?}", entry.name, entry.value, &OTHER[..end]);
        }
        for old in &before.routes {
            let route = after.routes.iter().find(|route| route.name == old.name).expect("no route goes");
            let new = whole.routes.iter().find(|route| route.name == old.name).expect("no route goes");
            assert!(route.rule == old.rule || route.rule == new.rule);
            assert!(route.cost == old.cost || route.cost == new.cost);
            assert!(route.prefix == old.prefix || route.prefix == new.prefix);
        }
        // What was cut off is as before.
        for (name, line) in [("drain", "drain = \"25s\"\n"), ("bounds.in_flight", "in_flight = 25\n")] {
            let value =
                |settings| entries(settings).into_iter().find(|entry| entry.name == name).map(|e| e.value);
            let source = if OTHER[..end].contains(line) { &whole } else { &before };
            assert_eq!(value(&after), value(source), "{name} after {:?}", &OTHER[..end]);
        }
    }
    assert!(taken > 10, "{taken} taken");
}

/// Each byte of the file, replaced by others.
#[test]
fn no_text_is_a_panic() {
    let file = TempFile::new(RICH);
    let before = file.load(&[]).expect("the file is valid");
    for at in 0..RICH.len() {
        for byte in [b'\n', b'"', b'9'] {
            let mut text = RICH.as_bytes().to_vec();
            text[at] = byte;
            file.write(text);
            if let Ok((after, _)) = file.reload(&before) {
                describe(&after);
            }
        }
    }
}

#[test]
fn a_reload_changes_what_the_file_names_and_nothing_else() {
    let file = TempFile::new(RICH);
    let before = file.load(&[]).expect("the file is valid");
    file.write(
        "limit = \"10/s\"\nremove_routes = [\"login\", \"gone\"]\n\
         [[route]]\nprefix = \"/find\"\nlimit = \"50/s\"\nname = \"search\"\n",
    );
    let (after, lines) = file.reload(&before).expect("the file is valid");
    let mut expected = before.clone();
    expected.limit = Some(rule("10/s"));
    expected.routes =
        vec![sheddable(route("search", "/find", "50/s", 20)), route("/plain", "/plain", "5/m", 1)];
    assert_eq!(after, expected);
    for line in [
        "limit: 10/s burst 10, was 1000/s burst 2000",
        "route search: 50/s burst 50, cost 20, priority sheddable, /find, was 100/s burst 100, cost 20, priority sheddable, /search",
        "route login: removed, was 50/m burst 50, cost 10, /login",
        "route /plain: stays, though the file does not name it; remove_routes removes it",
        "route search: stays 50/s burst 50, cost 20, priority sheddable, /find; a restart makes it 50/s burst 50, cost 1, /find",
        "shadow: stays on; a restart makes it off",
        "listen: 127.0.0.1:8080 needs a restart",
    ] {
        assert!(lines.iter().any(|known| known == line), "{line} is missing in {lines:#?}");
    }
    // The same file once more changes nothing.
    let (again, lines) = file.reload(&after).expect("the file is valid");
    assert_eq!(again, after);
    assert!(lines.iter().all(|line| !line.contains(", was ")), "{lines:#?}");
}

#[test]
fn routes_can_exchange_prefixes_but_not_take_one() {
    let text = |a: &str, b: &str| {
        format!(
            "[[route]]\nname = \"a\"\nprefix = \"{a}\"\nlimit = \"1/s\"\n\
             [[route]]\nname = \"b\"\nprefix = \"{b}\"\nlimit = \"1/s\"\n"
        )
    };
    let file = TempFile::new(&text("/1", "/2"));
    let before = file.load(&[]).expect("the file is valid");
    file.write(text("/2", "/1"));
    let (after, _) = file.reload(&before).expect("the file is valid");
    assert_eq!(after.routes, [route("a", "/2", "1/s", 1), route("b", "/1", "1/s", 1)]);
    file.write("[[route]]\nname = \"a\"\nprefix = \"/2\"\nlimit = \"1/s\"\n");
    let error = "3:10: the route \"b\" has the prefix \"/2\", too; remove_routes removes it";
    assert_eq!(file.reload(&before), Err(error.to_owned()));
    // A cost that stays may be too much for a new limit.
    let before = Settings { routes: vec![route("a", "/1", "9/s", 9)], ..before };
    file.write("[[route]]\nname = \"a\"\nprefix = \"/1\"\nlimit = \"5/s\"\n");
    let error = "4:9: a cost of 9 is out of the bounds of 1 and the burst, 5";
    assert_eq!(file.reload(&before), Err(error.to_owned()));
}

#[test]
fn some_settings_need_a_restart() {
    let file = TempFile::new("shadow = true\n[admin]\n");
    let before = file.load(&[]).expect("the file is valid");
    file.write(
        "listen = \"0.0.0.0:80\"\nproxy_protocol = true\nvia = \"edge\"\nshadow = false\n\
         [tls]\ncert = \"/a\"\nkey = \"/b\"\n[admin]\nlisten = \"127.0.0.1:1\"\nhosts = [\"a\"]\n",
    );
    let (after, lines) = file.reload(&before).expect("the file is valid");
    let mut expected = Settings { shadow: false, ..before.clone() };
    expected.admin.as_mut().expect("there is a listener").hosts = vec!["a".to_owned()];
    assert_eq!(after, expected);
    assert_eq!(
        lines,
        [
            "shadow: off, was on",
            "admin.hosts: a, was none",
            "listen: 0.0.0.0:80 needs a restart",
            "tls: /a, /b needs a restart",
            "proxy_protocol: on needs a restart",
            "via: edge needs a restart",
            "admin: 127.0.0.1:1 needs a restart",
        ]
    );
    // Other certificates do not, nor can a listener appear.
    let tls = Some(Certificate { chain: "/0".into(), key: "/0".into() });
    let before = Settings { tls, admin: None, ..before };
    let (after, lines) = file.reload(&before).expect("the file is valid");
    assert_eq!(after.tls, Some(Certificate { chain: "/a".into(), key: "/b".into() }));
    assert_eq!(after.admin, None);
    assert!(lines.contains(&"tls: /a, /b, was /0, /0".to_owned()), "{lines:#?}");
}

#[test]
fn a_file_that_cannot_be_read_or_started_with_is_an_error_of_a_reload() {
    let file = TempFile::new("[admin]\n");
    let options = file.options(&["--admin-host", "a"]);
    let before = load(&options).expect("the file is valid");
    file.write("shadow = true\n");
    assert_eq!(reload(&options, &before), Err("--admin-host needs --admin".to_owned()));
    for text in ["", "# nothing\n", "limit = \"10\n"] {
        file.write(text);
        assert!(reload(&options, &before).is_err(), "{text:?}");
    }
    fs::remove_file(&file.0).expect("the file is there");
    let error = format!("cannot read {}: No such file or directory (os error 2)", file.0.display());
    assert_eq!(reload(&options, &before), Err(error));
    assert_eq!(reload(&Options::default(), &before), Ok((before, Vec::new())));
}

/// Prefixes that differ by their case have different paths if the case counts.
#[test]
fn a_list_may_be_one_text_and_a_prefix_may_differ_by_its_case() {
    let text = "upstream = \"http://a\"\ntrust_proxy = \"10.0.0.0/8\"\ncase_sensitive = true\n\
                [[route]]\nprefix = \"/a\"\nlimit = \"1/s\"\n[[route]]\nprefix = \"/A\"\nlimit = \"1/s\"\n";
    let settings = load_text(text).expect("the file is valid");
    assert_eq!(
        (list(&settings.upstreams), list(&settings.trust_proxy)),
        (vec!["http://a".to_owned()], vec!["10.0.0.0/8".to_owned()],)
    );
    assert_eq!(settings.routes.len(), 2);
}

/// The file cannot change a limit that an option names, and the admin page can.
#[test]
fn a_reload_leaves_a_limit_that_an_option_names() {
    let file = TempFile::new("limit = \"50/s\"\nshadow = true\n");
    let options = file.options(&["--limit", "100/s"]);
    let mut before = load(&options).expect("the file is valid");
    assert_eq!(before.limit, Some(rule("100/s")));
    before.limit = Some(rule("5/s"));
    let (after, lines) = reload(&options, &before).expect("the file is valid");
    assert_eq!(after.limit, Some(rule("5/s")));
    assert_eq!(lines, ["limit: stays 5/s burst 5; a restart makes it 100/s burst 100"]);
}

#[test]
fn a_description_has_every_setting_and_warnings() {
    let settings = load_text(RICH).expect("the file is valid");
    let text = describe(&settings);
    let names: Vec<&str> = text.lines().filter_map(|line| line.split("  ").next()).collect();
    assert_eq!(names.iter().filter(|name| name.starts_with("timeouts.")).count(), 10);
    for entry in entries(&settings) {
        assert!(names.contains(&&*entry.name) && text.contains(&entry.value), "{}", entry.name);
    }
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("limit ").ends_with(
        "1000/s burst 2000                     of each value of x-api-key, for requests under no route"
    ));
    assert!(line("route login ").ends_with("of each value of x-api-key, for /login and paths below it"));
    assert!(line("inflight.limit").ends_with("the limit begins at 20"));
    assert!(!text.contains("warning") && text.ends_with('\n'));
    assert!(text.lines().all(|line| line == line.trim_end()));
    let warnings = |text: &str| {
        let text = describe(&load_text(text).expect("the file is valid"));
        text.lines().filter_map(|line| line.strip_prefix("warning: ")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        warnings("limit = \"none\"\n"),
        ["limit is none and there are no routes: no request is limited"]
    );
    let exempt = |paths: &str| {
        let routes = "[[route]]\nname = \"login\"\nprefix = \"/login/\"\nlimit = \"1/h\"\n";
        warnings(&format!("[exempt]\npaths = [{paths}]\n{routes}"))
    };
    assert_eq!(exempt("\"/health\", \"/login/static/*\", \"/logins\", \"/l/*\""), [""; 0]);
    for path in ["/login", "/login/", "/login/*"] {
        let warning = format!("exempt.paths {path} takes /login/ out of the limit of route login");
        assert_eq!(exempt(&format!("\"{path}\"")), [warning]);
    }
    let bounds = |each, all| warnings(&format!("[bounds]\nin_flight_per_key = {each}\nin_flight = {all}\n"));
    let few = "bounds.in_flight_per_key, 64, is a quarter of bounds.in_flight, 256, or more: few clients slow \
               all others down";
    assert_eq!((bounds(64, 256), bounds(63, 256)), (vec![few.to_owned()], vec![]));
    let inflight = |limit| warnings(&format!("[inflight]\nlimit = {limit}\ntarget = \"15s\"\n"));
    let late = "inflight.target, 15s, is half of timeouts.response_head, 30s, or more: slow answers end before \
                they show";
    assert_eq!(inflight(1_024), [late]);
    let waits = "inflight.limit allows 1025 requests in flight, but beyond bounds.in_flight, 1024, they wait";
    assert_eq!(inflight(1_025), [waits, late]);
    let route = |limit: &str, cost: u64| {
        warnings(&format!(
            "limit = \"10/s burst 20\"\n[[route]]\nprefix = \"/a\"\nlimit = \"{limit}\"\ncost = {cost}\n"
        ))
    };
    assert_eq!(route("10/s burst 20", 1), Vec::<String>::new());
    assert_eq!(route("20/s burst 40", 2), Vec::<String>::new());
    let warning = "route /a, 10/s burst 21 and cost 1, is looser than limit, 10/s burst 20";
    assert_eq!(route("10/s burst 21", 1), [warning]);
    assert_eq!(route("11/s burst 5", 1).len(), 1);
}
