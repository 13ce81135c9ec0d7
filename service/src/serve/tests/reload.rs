//! Reloads of the configuration: of files that are being written, of wrong ones, and of symlinks.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use super::super::options::ServeOptions;
use super::super::pages::metrics;
use super::super::reload::{Looks, Source};
use super::super::sources::load;
use super::{SHOP, source};
use tollgate_common::net::tls::Tls;
use tollgate_common::testing::Folder;
use tollgate_common::testing::{certificate, until};

fn domains(source: &Source) -> Vec<String> {
    let in_force = source.service.in_force();
    let rules = &in_force.loaded.as_ref().expect("a configuration is loaded").rules;
    ["shop", "mall"].into_iter().filter(|name| rules.domain(name).is_some()).map(str::to_owned).collect()
}

fn folder_of(texts: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    texts.iter().for_each(|(name, text)| write(&folder.path(name), text));
    folder
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

fn root(folder: &Folder) -> std::path::PathBuf {
    folder.path("")
}

/// A change is read at the second look that finds it, and at no other.
#[test]
fn a_file_that_is_being_written_is_not_read() {
    let folder = folder_of(&[("a.yaml", SHOP)]);
    let (source, mut looks) = (source(&root(&folder), &[]), Looks::default());
    source.load().unwrap();
    assert_eq!([looks.is_settled(&source), looks.is_settled(&source)], [false, false]);
    let mall = SHOP.replace("shop", "mall");
    for half in [10, 20, mall.len()] {
        write(&folder.path("b.yaml"), &mall[..half]);
        assert!(!looks.is_settled(&source), "{half} bytes are new");
    }
    assert!(looks.is_settled(&source));
    source.load().unwrap();
    assert_eq!(domains(&source), ["shop", "mall"]);
    assert_eq!([looks.is_settled(&source), looks.is_settled(&source)], [false, false]);
    fs::remove_file(folder.path("b.yaml")).unwrap();
    assert_eq!([looks.is_settled(&source), looks.is_settled(&source)], [false, true]);
}

/// A wrong file is read once: it is not tried again before it changes.
#[test]
fn a_wrong_file_changes_nothing_and_is_read_once() {
    let folder = folder_of(&[("a.yaml", SHOP)]);
    let (source, mut looks) = (source(&root(&folder), &[]), Looks::default());
    source.load().unwrap();
    write(&folder.path("b.yaml"), "domain: mall\ndescriptors:\n  - key: \"\"\n");
    write(&folder.path("c.yaml"), "domain: ''\n");
    assert_eq!([looks.is_settled(&source), looks.is_settled(&source)], [false, true]);
    let error = source.load().unwrap_err();
    assert!(error.contains("b.yaml:3:5: descriptor has empty key"), "{error}");
    assert!(error.contains("c.yaml:1:") && error.contains("config file cannot have empty domain"), "{error}");
    assert_eq!(domains(&source), ["shop"]);
    assert_eq!([looks.is_settled(&source), looks.is_settled(&source)], [false, false]);
    let lines = source.service.counts.statistics.lines();
    assert!(
        lines.contains("config_load_error: 1\n") && lines.contains("config_load_success: 1\n"),
        "{lines}"
    );
}

/// As a ConfigMap is mounted: the files are links into a folder that is a link.
#[test]
fn a_folder_behind_symlinks_is_read_when_the_link_moves() {
    let folder = Folder::new();
    for (name, text) in [("..1", SHOP.to_owned()), ("..2", SHOP.replace("shop", "mall"))] {
        fs::create_dir(folder.path(name)).unwrap();
        write(&folder.path(name).join("a.yaml"), &text);
    }
    symlink("..1", folder.path("..data")).unwrap();
    symlink("..data/a.yaml", folder.path("a.yaml")).unwrap();
    let (source, mut looks) = (source(&root(&folder), &[]), Looks::default());
    source.load().unwrap();
    assert_eq!(domains(&source), ["shop"], "the folders that begin with a dot are not read themselves");
    symlink("..2", folder.path("..new")).unwrap();
    fs::rename(folder.path("..new"), folder.path("..data")).unwrap();
    assert_eq!([looks.is_settled(&source), looks.is_settled(&source)], [false, true]);
    source.load().unwrap();
    assert_eq!(domains(&source), ["mall"]);
}

#[test]
fn only_yaml_of_a_folder_is_read_and_a_path_that_is_missing_is_an_error() {
    let folder = folder_of(&[("a.yml", SHOP), ("b.txt", "{"), (".c.yaml", "{"), ("d.yaml~", "{")]);
    let deeper = folder.path("deeper");
    fs::create_dir(&deeper).unwrap();
    write(&deeper.join("e.yaml"), &SHOP.replace("shop", "mall"));
    let of_folder = source(&root(&folder), &[]);
    of_folder.load().unwrap();
    assert_eq!(domains(&of_folder), ["shop", "mall"]);
    let of_file = source(&folder.path("b.txt"), &[]);
    assert!(of_file.load().unwrap_err().contains("b.txt:"), "a path that is given is read");
    let missing = folder.path("none");
    let error = source(&missing, &[]).load().unwrap_err();
    assert_eq!(error, format!("cannot read {}: No such file or directory (os error 2)", missing.display()));
}

/// Settings of the answer are read again, and a wrong one leaves all as it is.
#[test]
fn a_reload_reads_the_settings_as_well() {
    let folder = folder_of(&[("a.yaml", SHOP), ("serve.toml", "shadow = false\n")]);
    let mut source = source(&folder.path("a.yaml"), &[]);
    let config = Some(folder.path("serve.toml"));
    Arc::get_mut(&mut source).unwrap().options.config = config;
    source.load().unwrap();
    for (text, is_loaded, is_shadow) in
        [("shadow = true\n", true, true), ("shadow = 1.5\n", false, true), ("shadow = false\n", true, false)]
    {
        write(&folder.path("serve.toml"), text);
        let mut looks = Looks::default();
        assert_eq!([looks.is_settled(&source), looks.is_settled(&source)], [false, true]);
        assert_eq!(source.load().is_ok(), is_loaded);
        assert_eq!(source.service.in_force().settings.decision.is_shadow, is_shadow);
    }
}

/// Such a change would have no effect without a word.
#[test]
fn the_settings_that_need_a_restart_are_named() {
    let settings = |flags: &[(&'static str, &str)]| {
        let options = flags.iter().fold(ServeOptions::default(), |to, (flag, text)| to.with_flag(flag, text));
        load(&options, &BTreeMap::new()).unwrap()
    };
    let before = settings(&[]);
    for (flag, text, name) in [
        ("grpc", "127.0.0.1:1", "the address of gRPC"),
        ("http", "127.0.0.1:1", "the address of HTTP"),
        ("admin", "127.0.0.1:1", "the address of the debug pages"),
        ("algorithm", "token_bucket", "algorithm"),
        ("max_keys", "5000", "max_keys"),
        ("state", "s", "state"),
        ("state_interval", "5s", "state"),
    ] {
        assert_eq!(settings(&[(flag, text)]).needing_restart(&before), [name], "{flag}");
    }
    for (flag, text) in [("shadow", "true"), ("lame_duck", "1s"), ("log", "json")] {
        assert_eq!(settings(&[(flag, text)]).needing_restart(&before), [""; 0], "{flag}");
    }
}

/// A configuration holds as a whole or not at all, with its certificate and its statistics.
#[test]
fn a_certificate_that_is_refused_leaves_the_counters_as_they_are() {
    let folder = folder_of(&[("a.yaml", SHOP)]);
    let (files, _) = certificate(&folder, "server");
    let [chain, key] = [&files.chain, &files.key].map(|path| path.to_str().unwrap());
    let given =
        [("GRPC_SERVER_USE_TLS", "true"), ("GRPC_SERVER_TLS_CERT", chain), ("GRPC_SERVER_TLS_KEY", key)];
    let mut source = source(&folder.path("a.yaml"), &given);
    Arc::get_mut(&mut source).unwrap().tls = Some(Arc::new(Tls::read(&files).unwrap()));
    source.load().unwrap();
    let counters = || source.service.counts.statistics.lines().matches("rate_limit.shop.account.").count();
    assert_eq!(counters(), 6);
    write(&files.chain, "no certificate");
    write(&folder.path("a.yaml"), &SHOP.replace("shop", "mall"));
    assert_eq!(source.load(), Err(format!("no certificate in {chain}")));
    assert_eq!((domains(&source), counters()), (vec!["shop".to_owned()], 6));
}

/// The rest would be rules that nothing counts.
#[test]
fn more_files_than_are_looked_at_are_an_error() {
    let folder = folder_of(&[("a.yaml", SHOP)]);
    let mut deep = folder.path("");
    deep.extend(["d"; 18]);
    fs::create_dir_all(&deep).unwrap();
    let error = source(&root(&folder), &[]).load().unwrap_err();
    assert_eq!(error, "more than 10000 paths, or more than 16 folders inside each other");
    // Hidden names may stand before all others.
    let folder = folder_of(&[("a.yaml", SHOP)]);
    (0..10_000).for_each(|number| write(&folder.path(&format!(".{number}")), ""));
    let error = source(&root(&folder), &[]).load().unwrap_err();
    assert_eq!(error, format!("cannot list {}: it has more than 10000 paths", root(&folder).display()));
}

type Make<'a> = &'a dyn Fn(&Path);
type Change<'a> = &'a dyn Fn(&Path, &str);

/// Below the folder, a name of YAML that cannot be read is an error, and any other is named. No
/// open waits: the load of a pipe would never end.
#[test]
fn a_path_that_is_not_read_is_an_error_or_is_named() {
    let link = |path: &Path| symlink("missing", path).unwrap();
    let pipe = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let socket = |path: &Path| drop(UnixListener::bind(path).unwrap());
    let text = |path: &Path| write(path, &SHOP.replace("shop", "mall"));
    let rows: [(&str, Make<'_>, &str); 9] = [
        ("d.yaml", &link, "No such file or directory (os error 2)"),
        ("d.yml", &pipe, "it is a named pipe, and no file"),
        ("d.yaml", &socket, "it is a socket, and no file"),
        ("d", &link, ""),
        ("d.pipe", &pipe, ""),
        ("d.sock", &socket, ""),
        ("d.yaml.bak", &text, ""),
        ("d.YAML", &text, ""),
        (".d.yaml", &text, ""),
    ];
    for (name, make, why) in rows {
        let folder = folder_of(&[("a.yaml", SHOP)]);
        let (source, mut looks) = (source(&root(&folder), &[]), Looks::default());
        source.load().unwrap();
        make(&folder.path(name));
        let outcome = source.load();
        if why.is_empty() {
            assert_eq!(outcome, Ok(()), "{name}");
            assert_eq!(source.service.in_force().files.unread, [folder.path(name)]);
            assert!(metrics(&source.service).contains("\ntollgate_serve_files_unread 1\n"), "{name}");
        } else {
            assert_eq!(outcome, Err(format!("cannot read {}: {why}", folder.path(name).display())));
        }
        assert_eq!(domains(&source), ["shop"], "{name}");
        // The next change is seen and read.
        fs::remove_file(folder.path(name)).unwrap();
        write(&folder.path("a.yaml"), &SHOP.replace("shop", "mall"));
        assert_eq!([looks.is_settled(&source), looks.is_settled(&source)], [false, true], "{name}");
        source.load().unwrap();
        assert_eq!(domains(&source), ["mall"], "{name}");
        let told = metrics(&source.service);
        assert!(told.contains("\ntollgate_serve_files 1\n") && told.contains("files_unread 0\n"), "{told}");
    }
}

/// No file at all is no wish for no limit: the moment between a deletion and a new file.
#[test]
fn a_folder_without_files_is_an_error_and_keeps_the_rules() {
    let folder = folder_of(&[("a.yaml", SHOP), ("b.txt", "")]);
    let (source, mut looks) = (source(&root(&folder), &[]), Looks::default());
    source.load().unwrap();
    fs::remove_file(folder.path("a.yaml")).unwrap();
    assert_eq!([looks.is_settled(&source), looks.is_settled(&source)], [false, true]);
    let (at, other) = (root(&folder), folder.path("b.txt"));
    let unread = "not read, since only names in .yaml and .yml without a dot before are";
    let told = format!("no file .yaml or .yml in {}; {unread}: {}", at.display(), other.display());
    assert_eq!(source.load(), Err(told));
    assert_eq!(domains(&source), ["shop"]);
    for text in ["", "# nothing\n"] {
        write(&folder.path("a.yaml"), text);
        assert!(source.load().is_err());
        assert_eq!(domains(&source), ["shop"], "{text:?}");
    }
    write(&folder.path("a.yaml"), &SHOP.replace("shop", "mall"));
    source.load().unwrap();
    assert_eq!(domains(&source), ["mall"]);
}

/// A change of each kind is seen, also one that keeps the length and the time of the last write.
#[test]
fn each_way_to_change_a_file_is_seen() {
    let mall = SHOP.replace("shop", "mall");
    let keep_time = |path: &Path, text: &str| {
        let times = fs::metadata(path).unwrap().modified().unwrap();
        write(path, text);
        fs::File::options().write(true).open(path).unwrap().set_modified(times).unwrap();
    };
    let rename = |path: &Path, text: &str| {
        write(&path.with_extension("new"), text);
        fs::rename(path.with_extension("new"), path).unwrap();
    };
    let replace_folder = |path: &Path, text: &str| {
        let folder = path.parent().unwrap();
        fs::remove_dir_all(folder).unwrap();
        fs::create_dir(folder).unwrap();
        write(path, text);
    };
    let rows: [(&str, Change<'_>); 4] =
        [("in place", &write), ("as rsync", &keep_time), ("mv", &rename), ("folder", &replace_folder)];
    for (name, change) in rows {
        let folder = Folder::new();
        fs::create_dir(folder.path("rules")).unwrap();
        let file = folder.path("rules").join("a.yaml");
        write(&file, SHOP);
        // The times of files go by the ticks of the system.
        let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        until("the next tick", || {
            write(&folder.path("tick"), "");
            time(&folder.path("tick")) > time(&file)
        });
        let (source, mut looks) = (source(&folder.path("rules"), &[]), Looks::default());
        source.load().unwrap();
        assert!(!looks.is_settled(&source) && !looks.is_settled(&source), "{name}");
        change(&file, &mall);
        assert_eq!([looks.is_settled(&source), looks.is_settled(&source)], [false, true], "{name}");
        source.load().unwrap();
        assert_eq!(domains(&source), ["mall"], "{name}");
    }
}

/// The log has one line for each error.
#[test]
fn of_many_errors_some_are_told_and_the_others_counted() {
    let many = format!("domain: d\ndescriptors:\n{}", "- {kye: k}\n".repeat(1_000));
    let folder = folder_of(&[("a.yaml", &many)]);
    let told = source(&root(&folder), &[]).load().unwrap_err();
    assert_eq!(told.lines().count(), 21);
    assert!(told.ends_with("\nand 2979 more"), "{told}");
}
