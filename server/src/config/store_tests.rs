//! The settings of the store, in a file and as options.

use super::settings::{Settings, StoreUrl};
use super::tests::{by_options, load_text};

fn url(text: &str) -> StoreUrl {
    StoreUrl(text.to_owned())
}

#[test]
fn a_url_names_an_engine_that_is_there() {
    let form =
        "expected sqlite:PATH, redis://HOST, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE";
    for text in
        ["", "limits.db", "sqlite:", "sqlite", "redis:", "redis://", "redis:/a", "http://a", "memcached://a"]
    {
        let error = by_options(&["--store", text]).expect_err(text);
        let engine = text.split(':').next().unwrap_or_default();
        let not_built = format!("--store: this program was built without {engine}: ");
        assert!(error == format!("--store: {form}") || error.starts_with(&not_built), "{text}: {error}");
    }
    let engines = [
        ("sqlite", cfg!(feature = "sqlite"), "sqlite:/tmp/a.db"),
        ("redis", cfg!(feature = "redis"), "redis://127.0.0.1"),
        ("postgres", cfg!(feature = "postgres"), "postgres://a@127.0.0.1/b"),
        ("mysql", cfg!(feature = "mysql"), "mysql://a@127.0.0.1/b"),
    ];
    for (engine, is_there, text) in engines {
        let given = by_options(&["--store", text]).map(|settings| settings.store.map(|store| store.url));
        let told = format!("--store: this program was built without {engine}: `--features {engine}` adds it");
        assert_eq!(given, if is_there { Ok(Some(url(text))) } else { Err(told) });
    }
}

#[test]
fn a_url_is_told_without_its_password() {
    for (text, told) in [
        ("sqlite:/tmp/a:b@c.db", "sqlite:/tmp/a:b@c.db"),
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("redis://[::1]:6379", "redis://[::1]:6379"),
        ("redis://:hunter2@host", "redis://:***@host"),
        ("postgres://ada@host/limits", "postgres://ada@host/limits"),
        ("postgres://ada:hun:t@er2@host/limits", "postgres://ada:***@host/limits"),
        ("postgres://ada:hun/ter2@host/limits", "postgres://ada:***@host/limits"),
        ("postgres://ada:hun?ter2@host/limits", "postgres://***?..."),
        ("postgres://ada:hun#ter2@host/limits", "postgres://***?..."),
        ("postgres://ada@host/limits?password=hunter2", "postgres://ada@host/limits?..."),
        ("postgres://ada@host/limits?password=hun@ter2", "postgres://***?..."),
        ("mysql://ada:hunter2@host:3306/limits?a=b", "mysql://ada:***@host:3306/limits?..."),
    ] {
        assert_eq!((url(text).to_string(), format!("{:?}", url(text))), (told.to_owned(), told.to_owned()));
    }
}

/// No library's error, no parser of options and none of files may repeat it.
#[test]
fn a_bad_url_is_an_error_without_its_password() {
    for text in [
        "postgres://ada:hunter2@host:port/limits",
        "postgres://ada:hunter2@host/limits?password=hunter2&a=b",
        "mysql://ada:hunter2@host:port/limits",
        "mysql://ada:hunter2@host/limits?a=hunter2",
        "redis://ada:hunter2@host:port",
        "redis://ada:hun/hunter2@host",
        "redis://ada:hunter2%FF@host",
        "rediss://ada:hunter2@host",
        "postgresql://ada:hunter2@host/limits",
        "http://ada:hunter2@host",
        "hunter2",
    ] {
        let by_option = by_options(&["--store", text]).expect_err(text);
        let by_file = load_text(&format!("[store]\nurl = {text:?}\n")).expect_err(text);
        let why = by_option.strip_prefix("--store: ").expect(&by_option);
        assert_eq!(by_file, format!("2:7: the store: {why}"));
        assert!(!why.contains("hunter2") && !why.is_empty() && !why.contains('\n'), "{why}");
    }
    let cut = load_text("[store]\nurl = \"redis://ada:hunter2@host\n").expect_err("the text does not end");
    assert!(cut.starts_with("2:") && !cut.contains("hunter2"), "{cut}");
}

#[test]
fn an_option_that_needs_a_store_says_so() {
    for (args, error) in [
        (["--store-mode", "exact"], "--store-mode needs --store"),
        (["--store-share", "0.5"], "--store-share needs --store"),
        (["--store-deadline", "5ms"], "--store-deadline needs --store"),
        (["--store-on-outage", "deny"], "--store-on-outage needs --store"),
        (["--store-name", "edge"], "--store-name needs --store"),
    ] {
        assert_eq!(by_options(&args), Err(error.to_owned()));
        let off = [&["--store", "none"][..], &args].concat();
        assert_eq!(by_options(&off), Err(error.to_owned()));
    }
    for (args, part) in [
        (["--store-mode", "fast"], "expected `leased` or `exact`"),
        (["--store-share", "0"], "expected a number above 0 and at most 1"),
        (["--store-share", "1.01"], "expected a number above 0 and at most 1"),
        (["--store-share", "NaN"], "expected a number above 0 and at most 1"),
        (["--store-deadline", "11s"], "11s is out of the bounds of 1ms and 10s"),
        (["--store-deadline", "999us"], "999us is out of the bounds of 1ms and 10s"),
        (["--store-on-outage", "open"], "expected `local`, `deny` or `allow`"),
        (["--store-name", "a:b"], "expected a name of 1 to 24 letters, digits and -._"),
        (["--store-name", ""], "expected a name of 1 to 24 letters, digits and -._"),
    ] {
        let error = by_options(&args).expect_err(part);
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(load_text("[store]\nshare = 0.5\n"), Err("2:9: a store needs its `url`".to_owned()));
    assert_eq!(load_text("[store]\nurl = \"none\"\nshare = 0.5\n"), Ok(Settings::default()));
}

#[cfg(feature = "sqlite")]
mod with_sqlite {
    use std::time::Duration;

    use super::*;
    use crate::config::describe::describe;
    use crate::config::describe::entries;
    use crate::config::settings::{Outage, Store};
    use crate::config::tests::TempFile;

    /// All there is; each setting differs from the default one.
    const RICH: &str = "limit = \"9/s\"\n[store]\nurl = \"sqlite:limits.db\"\nname = \"edge\"\nmode = \"exact\"\n\
        deadline = \"20ms\"\non_outage = \"deny\"\nshare = 0.25\n";

    fn rich(file: &TempFile) -> Store {
        let folder = file.0.parent().expect("a file is in a folder");
        Store {
            url: url(&format!("sqlite:{}", folder.join("limits.db").display())),
            name: "edge".to_owned(),
            exact: true,
            deadline: Duration::from_millis(20),
            on_outage: Outage::Deny,
            share: 0.25,
        }
    }

    #[test]
    fn every_setting_can_be_in_the_file_and_every_option_overrides_it() {
        let file = TempFile::new(RICH);
        assert_eq!(file.load(&[]).expect("the file is valid").store, Some(rich(&file)));
        let args = "--store sqlite:other.db --store-name core --store-mode leased --store-deadline 1s \
            --store-on-outage allow --store-share 1";
        let args: Vec<&str> = args.split_whitespace().collect();
        let store = Store {
            url: url("sqlite:other.db"),
            name: "core".to_owned(),
            exact: false,
            deadline: Duration::from_secs(1),
            on_outage: Outage::Allow,
            share: 1.0,
        };
        assert_eq!(file.load(&args).expect("the options are valid").store, Some(store));
        assert_eq!(file.load(&["--store", "none"]).expect("it is turned off").store, None);
        let default = by_options(&["--store", "sqlite:a"]).expect("the options are valid").store;
        let default = default.expect("there is a store");
        assert_eq!((&*default.name, default.exact, default.share), ("tollgate", false, 1.0));
        assert_eq!((default.deadline, default.on_outage), (Duration::from_millis(50), Outage::Local));
    }

    #[test]
    fn a_window_and_a_quota_that_no_store_counts_are_errors_with_their_place() {
        let window = "is a window, and a store shares quotas only, such as 100/s burst 200";
        let store = "[store]\nurl = \"sqlite:a\"\n";
        for (text, error) in [
            (format!("limit = \"5/15m sliding\"\n{store}"), format!("1:9: 5/15m sliding {window}")),
            (
                format!("{store}[[route]]\nprefix = \"/a\"\nlimit = \"5/d fixed utc\"\n"),
                format!("5:9: the route \"/a\": 5/d fixed utc {window}"),
            ),
        ] {
            assert_eq!(load_text(&text), Err(error));
        }
        let error = by_options(&["--store", "sqlite:a", "--limit", "5/15m sliding"]).expect_err("a window");
        assert_eq!(error, format!("5/15m sliding {window}"));
        let quota = "1000003/7919000003ns burst 1099511627776";
        let error = by_options(&["--store", "sqlite:a", "--limit", quota]).expect_err("it is too fine");
        assert!(error.contains("credits"), "{error}");
        // Without a store each of them is a limit.
        assert!(by_options(&["--limit", quota]).is_ok());
    }

    /// The beginnings of a file are errors or change nothing.
    #[test]
    fn a_file_that_was_cut_leaves_the_store() {
        let file = TempFile::new(RICH);
        let before = file.load(&[]).expect("the file is valid");
        let mut taken = 0;
        for end in 0..RICH.len() {
            file.write(&RICH[..end]);
            if let Ok((after, lines)) = file.reload(&before) {
                assert_eq!(after, before, "after {:?}", &RICH[..end]);
                assert!(lines.iter().all(|line| line.contains(": stays ")), "{lines:?}");
                taken += 1;
            }
        }
        // After each line but the last.
        assert_eq!(taken, 7);
    }

    #[test]
    fn a_reload_tells_what_it_changed() {
        let file = TempFile::new(RICH);
        let before = file.load(&[]).expect("the file is valid");
        file.write("[store]\nshare = 0.5\nmode = \"leased\"\n");
        let changed = file.reload(&before);
        // At a restart the file alone has no store.
        assert_eq!(changed, Err("3:8: a store needs its `url`".to_owned()));
        file.write("[store]\nurl = \"sqlite:limits.db\"\nshare = 0.5\nmode = \"leased\"\n");
        let (after, lines) = file.reload(&before).expect("the file is valid");
        let store = Store { exact: false, share: 0.5, ..rich(&file) };
        assert_eq!(after.store, Some(store));
        assert_eq!(lines[..2], ["store.mode: leased, was exact", "store.share: 0.5, was 0.25"]);
        file.write("[store]\nurl = \"none\"\n");
        let (after, lines) = file.reload(&before).expect("the file is valid");
        assert_eq!((after.store, lines[0].starts_with("store: none, was sqlite:")), (None, true));
    }

    #[test]
    fn a_description_has_the_store() {
        let file = TempFile::new(RICH);
        let settings = file.load(&[]).expect("the file is valid");
        let text = describe(&settings);
        for entry in entries(&settings).iter().filter(|entry| entry.name.starts_with("store")) {
            assert!(text.contains(&entry.value), "{} in {text}", entry.name);
        }
        for part in
            ["store.share ", " 0.25 ", "without the store, requests get 503", "each decision asks the store"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        let none = describe(&Settings::default());
        assert!(
            none.contains("the limits are those of this process") && !none.contains("store.share"),
            "{none}"
        );
    }
}
