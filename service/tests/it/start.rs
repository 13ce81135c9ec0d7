//! The start without a PATH.

use std::process::Command;

use tollgate_common::testing::Folder;

use crate::client::Service;

/// Returns the end of a start that is refused.
fn refused(options: &[&str], env: &[(&str, &str)]) -> String {
    Service::of_paths(&[], options, env).map(|_| ()).expect_err("it is refused")
}

#[test]
fn the_built_in_limits_show_a_request_and_a_refusal_also_after_a_reload() {
    if Command::new("curl").arg("--version").output().is_err() {
        return eprintln!("not tested: this host has no curl");
    }
    let service = Service::of_paths(&[], &[], &[]).unwrap_or_else(|error| panic!("{error}"));
    for (name, status) in [("a request: ", "200 OK"), ("a refusal: ", "429 Too Many Requests")] {
        let line = service.line_with(name).expect("it is printed");
        let command = line.split_once(name).expect("as above").1;
        let told = Command::new("sh").args(["-c", command]).output().expect("sh runs");
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{command}: {told}");
    }
    assert!(service.reload());
    service.line_with("Successfully loaded").expect("it is logged");
}

/// Where one thing is set, another was forgotten: no built-in limit takes its place.
#[test]
fn a_path_that_is_missing_is_told_with_its_variable() {
    let folder = Folder::new();
    let (root, config) = (folder.text("none"), folder.write("serve.toml", "shadow = false\n"));
    let env = [("RUNTIME_ROOT", &*root), ("RUNTIME_SUBDIRECTORY", "edge")];
    let told = refused(&[], &env);
    let path = format!("cannot read {root}/edge/config: No such file or directory");
    assert!(told.contains(&path), "{told}");
    let from = format!("the path is that of RUNTIME_ROOT={root}, RUNTIME_SUBDIRECTORY=edge");
    assert!(told.contains(&from), "{told}");
    let told = refused(&["--config", &config], &[]);
    assert!(told.contains("no PATH is given, and no RUNTIME_ROOT"), "{told}");
    // A folder that is there and has no file is no reason either.
    let folder = folder.text("");
    let told = refused(&[], &[("RUNTIME_ROOT", &folder), ("RUNTIME_APPDIRECTORY", ".")]);
    assert!(told.contains("no file .yaml or .yml in"), "{told}");
}
