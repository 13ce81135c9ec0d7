//! The files of the service, and the lines about those that are not read or are gone.

use std::fs;
use std::process::Command;

use crate::client::Service;
use tollgate_common::testing::{Folder, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tollgate");

/// A file of a domain with a limit.
fn rules(domain: &str) -> String {
    format!("domain: {domain}\ndescriptors: [{{key: k, rate_limit: {{unit: year, requests_per_unit: 9}}}}]\n")
}

#[test]
fn a_reload_says_what_is_gone_and_what_is_not_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    for name in ["a", "b", "c"] {
        fs::write(at(&format!("{name}.yaml")), rules(name)).expect("it is written");
    }
    let service = Service::start(folder.path(), &[], &[]).unwrap_or_else(|error| panic!("{error}"));
    fs::rename(at("b.yaml"), at("b.yaml.off")).expect("it is moved");
    let (gone, unread) = ("limits that are gone (1): b.k", "without a dot before are: ");
    let lines = [gone, unread].map(|part| service.line_with(part).expect("a line"));
    assert!(lines[1].ends_with(&at("b.yaml.off").display().to_string()), "{lines:?}");
    service.line_with("Successfully loaded").expect("a line");
    // The same paths are named once.
    assert!(service.reload());
    let line = service.line_with("o").expect("a line");
    assert!(line.contains("Successfully loaded"), "{line}");
    // A pipe: neither the signal nor the request waits.
    assert!(Command::new("mkfifo").arg(at("p.yaml")).status().expect("mkfifo runs").success());
    assert!(!service.reload());
    service.signal("-HUP");
    for _ in 0..2 {
        let line = service.line_with("Error loading").expect("a line");
        assert!(line.contains("p.yaml: it is a named pipe, and no file"), "{line}");
    }
    fs::remove_file(at("p.yaml")).expect("it is there");
    assert!(service.reload());
}

/// The service and the check agree about a folder without a file.
#[test]
fn a_folder_without_files_is_refused_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display().to_string();
    let part = format!("no file .yaml or .yml in {path}");
    run(PROGRAM, &format!("check {path}")).assert_mistake(&part, "");
    let told = Service::start(folder.path(), &[], &[]).map(|_| ()).expect_err("a mistake");
    assert!(told.contains(&format!("error: {part}")), "{told}");
    for variable in ["FORCE_START_WITHOUT_INITIAL_CONFIG", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"] {
        let service = Service::start(folder.path(), &[], &[(variable, "true")]);
        let service = service.unwrap_or_else(|error| panic!("{error}"));
        fs::write(folder.path().join("a.yaml"), rules("a")).expect("it is written");
        service.line_with("Successfully loaded").expect("a line");
        fs::remove_file(folder.path().join("a.yaml")).expect("it is there");
    }
}

/// A client chooses the headers of its requests, so it chooses its count.
#[test]
fn a_profile_of_headers_alone_is_warned_of() {
    let folder = Folder::new();
    let limits =
        "domain: edge\ndescriptors:\n- {key: api_key, rate_limit: {unit: hour, requests_per_unit: 3}}\n";
    let limits = folder.write("edge.yaml", limits);
    let header = "{ api_key = \"{header:x-api-key}\" }";
    for (client, descriptors, parts) in [
        ("X-Real-IP", header.to_owned(), &["check.api: each descriptor has a header", "{client}"][..]),
        ("X-Real-IP", format!("{header}, {{ ip = \"{{client}}\" }}"), &[]),
        ("peer", "{ ip = \"{client}\" }".to_owned(), &["check.api: client = \"peer\"", "X-Real-IP"]),
        ("peer", "{ path = \"{path}\" }".to_owned(), &[]),
    ] {
        let profile = format!(
            "[check.api]\ndomain = \"edge\"\nfrom = []\nclient = \"{client}\"\ndescriptors = [{descriptors}]\n"
        );
        let checks = folder.write("checks.toml", &profile);
        for (strict, code) in [("", 0), ("--strict", i32::from(!parts.is_empty()))] {
            let ended = run(PROGRAM, &format!("check {limits} --config {checks} {strict}"));
            assert_eq!(ended.code, Some(code), "{profile} {strict}: {}", ended.error);
            assert_eq!(ended.out.contains("warning: "), !parts.is_empty(), "{}", ended.out);
            assert!(parts.iter().all(|part| ended.out.contains(part)), "{}", ended.out);
        }
    }
}
