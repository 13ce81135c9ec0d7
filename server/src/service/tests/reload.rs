//! Reloads of the configuration: of files that are being written, of wrong ones, and of symlinks.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use super::super::reload::{Looks, Source};
use super::{SHOP, source};
use crate::net::open::tests::Folder;
use crate::net::open::tests::tls::certificate;
use crate::net::tls::Tls;

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
}
