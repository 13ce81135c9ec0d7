// promise: state
//! Limits that outlive their process in the file of `state`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::{Folder, PROGRAM, Proxy, Reloaded, tollgate, until};

/// No bucket earns a token, and no window ends, under a test.
const LIMIT: &str = "--limit 1/7d&burst&2";

/// Starts a proxy with its state in the folder.
fn start(folder: &Folder, options: &str) -> Proxy {
    Proxy::start(&format!("{options} --state {}", folder.text("state")))
}

fn state(folder: &Folder) -> Vec<u8> {
    fs::read(folder.text("state")).unwrap_or_default()
}

fn names(folder: &Folder) -> Vec<String> {
    let files =
        fs::read_dir(folder.text("")).expect("a folder").map(|file| file.expect("a file").file_name());
    files.map(|name| name.into_string().expect("ASCII")).collect()
}

/// Returns the lines that are no news.
fn complaints(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().filter(|line| !line.contains(" INFO ")).collect()
}

/// Waits for a save that has begun after the call: the first one may have begun before it.
fn until_saved(folder: &Folder) {
    for _ in 0..2 {
        let before = state(folder);
        until("saved", || state(folder) != before);
    }
}

#[test]
fn a_client_is_still_refused_after_a_restart() {
    let window_in_map = "--limit 2/30d&fixed --keys-per-limit none";
    let of_value = "--limit 1/7d&burst&2 --key header:x-api-key --key peer";
    for options in [LIMIT, "--limit 2/30d&fixed", window_in_map, of_value] {
        let folder = Folder::new();
        let ask = |proxy: &Proxy, key: &str| {
            let mut client = proxy.connect();
            [(); 3].map(|()| client.get_with("/", &format!("X-Api-Key: {key}\r\n")).status)
        };
        let proxy = start(&folder, options);
        assert_eq!(ask(&proxy, "k1"), [200, 200, 429], "{options}");
        assert_eq!(proxy.stop("-TERM"), Some(0));
        assert_eq!(names(&folder), ["state"], "{options}");
        let mode = fs::metadata(folder.text("state")).expect("it is saved").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "the state is its owner's");
        let restarted = start(&folder, options);
        assert_eq!(ask(&restarted, "k1"), [429; 3], "{options}");
        let other = if options.contains("header") { [200, 200, 429] } else { [429; 3] };
        assert_eq!(ask(&restarted, "k2"), other, "{options}");
    }
}

#[test]
fn a_crash_forgets_what_came_after_the_last_save() {
    let folder = Folder::new();
    let proxy = start(&folder, &format!("{LIMIT} --state-interval 5ms"));
    assert_eq!(proxy.statuses("/"), [200, 200, 429]);
    until_saved(&folder);
    assert_eq!(complaints(proxy.last_words()), [""; 0]);
    assert_eq!(start(&folder, LIMIT).statuses("/"), [429, 429]);
}

#[test]
fn a_file_that_is_cut_is_kept_aside_and_the_start_goes_on() {
    let folder = Folder::new();
    let proxy = start(&folder, LIMIT);
    assert_eq!(proxy.statuses("/"), [200, 200]);
    assert_eq!(proxy.stop("-TERM"), Some(0));
    let whole = state(&folder);
    let cut = &whole[..whole.len() - 1];
    folder.write("state", cut);
    let proxy = start(&folder, LIMIT);
    let (line, bad) = (proxy.error(), folder.text("state.bad"));
    assert!(line.contains(&format!("check sum is another one; it is kept as {bad}")), "{line}");
    assert_eq!(proxy.statuses("/"), [200, 200, 429]);
    assert_eq!(fs::read(bad).expect("it is kept"), cut);
}

/// A process that may write no byte of a file stands for a disk that is full.
#[test]
fn a_full_disk_leaves_the_former_file_and_stops_no_request() {
    let folder = Folder::new();
    let proxy = start(&folder, LIMIT);
    assert_eq!(proxy.statuses("/"), [200]);
    assert_eq!(proxy.stop("-TERM"), Some(0));
    let former = state(&folder);
    let mut command = Command::new("sh");
    let line = format!(
        "trap '' XFSZ; ulimit -f 0; exec {} --listen 127.0.0.1:0 --limit '1/7d burst 2' \
         --state {} --state-interval 5ms",
        PROGRAM,
        folder.text("state")
    );
    let proxy = Proxy::of(command.args(["-c", &line]));
    assert!(proxy.error().contains("1 keys are restored, which were saved at "));
    for _ in 0..2 {
        let line = proxy.error();
        assert!(line.contains("the state is not saved: File too large"), "{line}");
    }
    assert_eq!(proxy.statuses("/"), [200, 429]);
    assert_eq!(proxy.stop("-TERM"), Some(0));
    assert_eq!((state(&folder), names(&folder)), (former, vec!["state".to_owned()]));
    assert_eq!(start(&folder, LIMIT).statuses("/"), [200, 429]);
}

/// The file is that of one of them at any time.
#[test]
fn the_last_of_two_processes_wins() {
    let folder = Folder::new();
    let start_one = || start(&folder, &format!("{LIMIT} --state-interval 1ms"));
    let first = start_one();
    // The second one has the secret of the first.
    until_saved(&folder);
    let second = start_one();
    assert_eq!(first.statuses("/"), [200, 200, 429]);
    for _ in 0..20 {
        until_saved(&folder);
        let copy = Folder::new();
        copy.write("state", state(&folder));
        let reader = start(&copy, LIMIT);
        assert!(matches!(reader.get("/").status, 200 | 429));
        assert_eq!(complaints(reader.last_words()), [""; 0]);
    }
    // The second one has granted nothing, and the first one both tokens.
    assert_eq!((second.stop("-TERM"), first.stop("-TERM")), (Some(0), Some(0)));
    assert_eq!(names(&folder), ["state"]);
    assert_eq!(start(&folder, LIMIT).statuses("/"), [429, 429]);
}

/// The buckets of another rule are carried over at a start, as at a reload.
#[test]
fn a_rule_that_changes_forgets_nothing() {
    let [rule, longer, window] = ["1/7d burst 2", "1/7d burst 3", "3/30d fixed"];
    let folder = Folder::new();
    let file = |rule: &str| format!("limit = \"{rule}\"\nstate = \"{}\"\n", folder.text("state"));
    let reloaded = Reloaded::start(&file(rule));
    assert_eq!(reloaded.statuses("/"), [200, 200, 429]);
    assert_eq!(reloaded.stop("-TERM"), Some(0));
    // A bucket keeps the tokens left, of which there are none.
    let reloaded = Reloaded::start(&file(longer));
    assert_eq!(reloaded.statuses("/"), [429, 429]);
    // A window keeps those used. No request comes before the restart after it.
    assert!(reloaded.read(&file(window)).iter().any(|line| line.contains("are carried over")));
    assert_eq!(reloaded.stop("-TERM"), Some(0));
    let reloaded = Reloaded::start(&file(window));
    assert_eq!(reloaded.statuses("/"), [429]);
}

#[test]
fn another_file_is_used_after_a_restart() {
    let folder = Folder::new();
    let file = |name: &str| format!("limit = \"1/7d burst 2\"\nstate = \"{}\"\n", folder.text(name));
    let reloaded = Reloaded::start(&file("state"));
    let lines = reloaded.read(&file("other"));
    assert_eq!(lines, [format!("state: {} needs a restart", folder.text("other"))]);
    assert_eq!(reloaded.stop("-TERM"), Some(0));
    assert_eq!(names(&folder), ["state"]);
}

#[test]
fn a_limit_that_is_gone_is_a_line_of_the_log() {
    let folder = Folder::new();
    let proxy = start(&folder, LIMIT);
    assert_eq!(proxy.stop("-TERM"), Some(0));
    let proxy = start(&folder, "--limit none");
    let line = proxy.error();
    let part = "the state of `default | 1/7d burst 2 | 1048576 | 1/7d burst 2` is not restored: there is no such limit";
    assert!(line.contains(part), "{line}");
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn an_earlier_rule_without_keys_leaves_the_file() {
    let folder = Folder::new();
    for burst in [2, 3] {
        let proxy = start(&folder, &format!("--limit 1/7d&burst&{burst}"));
        assert_eq!(proxy.stop("-TERM"), Some(0));
    }
    let text = String::from_utf8_lossy(&state(&folder)).into_owned();
    assert!(text.contains("1/7d burst 3") && !text.contains("1/7d burst 2"), "{text}");
}

/// The buckets of another number of keys, or of a map, are carried over as those of another rule.
#[test]
fn the_keys_of_a_limit_have_another_number_after_a_restart() {
    let folder = Folder::new();
    let with = |keys: &str| start(&folder, &format!("{LIMIT} --keys-per-limit {keys}"));
    let proxy = with("50");
    assert_eq!(proxy.statuses("/"), [200, 200, 429]);
    assert_eq!(proxy.stop("-TERM"), Some(0));
    for keys in ["50", "3000000", "none", "1", "none"] {
        // No request, and then one: the buckets are saved as replaced ones, too.
        let [_, errors] = with(keys).end();
        assert_eq!(complaints(errors), [""; 0], "{keys}");
        let proxy = with(keys);
        assert_eq!(proxy.statuses("/"), [429], "{keys}");
        let [_, errors] = proxy.end();
        assert_eq!(complaints(errors), [""; 0], "{keys}");
    }
}

/// A client with the secret can make up keys that meet.
#[test]
fn the_secret_of_the_hasher_stays_and_is_told_to_none() {
    let folder = Folder::new();
    let secret = || -> [u8; 16] {
        let state = state(&folder);
        let name =
            state.windows(14).position(|bytes| bytes == b"secret\x10\0\0\0\0\0\0\0").expect("it has one");
        state[name + 14..name + 30].try_into().expect("16 bytes")
    };
    assert_eq!(start(&folder, LIMIT).stop("-TERM"), Some(0));
    let first = secret();
    let proxy = start(&folder, &format!("{LIMIT} --access-log --log json --log-refusals"));
    assert_eq!(proxy.statuses("/"), [200, 200, 429]);
    let mut told = ["/", "/metrics", "/nothing"].map(|path| proxy.ask_admin("GET", path, "").body).concat();
    told += &proxy.event().to_string();
    told += &proxy.end().concat().concat();
    assert_eq!(secret(), first, "a restart keeps the secret");
    assert!(told.contains("429") && told.contains("tollgate_keys"), "{told}");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for half in first.chunks(8) {
        let number = u64::from_le_bytes(half.try_into().expect("8 bytes"));
        for text in [hex(half), format!("{number:x}"), number.to_string()] {
            assert!(!told.to_lowercase().contains(&text), "{text} in {told}");
        }
    }
    // Each state has a secret of its own.
    let other = Folder::new();
    assert_eq!(start(&other, LIMIT).stop("-TERM"), Some(0));
    assert_ne!(state(&other)[17..], state(&folder)[17..]);
}

/// A state that cannot be restored is no reason to forget it at the next save.
#[test]
fn a_place_that_can_never_work_is_a_mistake_at_the_start_and_of_a_check() {
    let folder = Folder::new();
    let rows = [
        (folder.text("missing/state"), "missing: No such file or directory"),
        (folder.text(""), "it is a folder, and no file"),
        ("/dev/null".to_owned(), "it is a device, and no file"),
    ];
    for (path, part) in rows {
        for verb in ["--listen 127.0.0.1:0", "check"] {
            tollgate(&format!("{verb} --state {path}")).assert_mistake("the state cannot be ", part);
        }
    }
    assert_eq!(names(&folder), [""; 0]);
}
