//! Tests of the files that are read and of the text about them.

use std::fs;
use std::path::Path;

use super::*;
use tollgate_common::settings::options::TableOptions;

/// Returns a file with this content below the domain.
fn file(path: &str, content: &str) -> (String, String) {
    (path.to_owned(), format!("domain: d\n{content}\n"))
}

#[test]
fn a_report_has_a_line_for_each_finding_and_their_sum() {
    let good = file("a.yaml", "descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]");
    let odd = file("a.yaml", "descriptors: [{key: k, rate_limit: {unit: day}}]");
    let bad = file("a.yaml", "name: n\ndescriptor: []");
    let warning = "a.yaml:2:36: warning: a limit without 'requests_per_unit' refuses each request\n";
    let own = file("a.yaml", "descriptors: [{key: k, rate_limit: {limit: 5/s}}]");
    let note = "a.yaml:2:44: note: 'limit' is of tollgate: envoyproxy/ratelimit refuses the file\n";
    let rows = [
        (own, true, format!("{note}1 file, 1 limit: 0 errors, 0 warnings\n"), true),
        (good, false, "1 file, 1 limit: 0 errors, 0 warnings\n".to_owned(), true),
        (odd.clone(), false, format!("{warning}1 file, 1 limit: 0 errors, 1 warning\n"), true),
        (odd, true, format!("{warning}1 file, 1 limit: 0 errors, 1 warning\n"), false),
        (
            bad,
            false,
            "a.yaml:3:1: config error, unknown key 'descriptor'; did you mean 'descriptors'?\n\
             a.yaml:2:1: warning: 'name' has no effect in the document\n\
             1 file, 0 limits: 1 error, 1 warning\n"
                .to_owned(),
            false,
        ),
    ];
    for (file, strict, text, passes) in rows {
        assert_eq!(
            report(&[file], &[], strict, LoadOptions::default(), &ServeSettings::new(Vec::new())),
            (text, passes)
        );
    }
}

#[test]
fn files_of_a_folder_are_read_in_order_without_hidden_ones() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("b/..data")).unwrap();
    for name in ["c.yml", "a.yaml", "b/x.yaml", "b/..data/y.yaml", ".z.yaml", "notes.txt"] {
        fs::write(at(name), "domain: d\n").unwrap();
    }
    let names = |paths: &[PathBuf]| {
        let files = read(paths).unwrap();
        files
            .iter()
            .map(|(path, _)| Path::new(path).strip_prefix(folder.path()).unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&[folder.path().to_owned()]), ["a.yaml", "b/x.yaml", "c.yml"].map(PathBuf::from));
    assert_eq!(names(&[at("notes.txt"), at(".z.yaml")]), ["notes.txt", ".z.yaml"].map(PathBuf::from));
    fs::write(at("bad.yaml"), [0xff]).unwrap();
    for (path, why) in [("bad.yaml", "is not UTF-8"), ("none.yaml", "cannot read"), ("b/..data/..", "")] {
        match run(&ServeOptions::with_store(&[at(path)], None, &TableOptions::default()), false, &[]) {
            Err(error) => assert!(!why.is_empty() && error.contains(why) && error.contains(path), "{error}"),
            Ok(passes) => assert!(why.is_empty() && passes, "{path}"),
        }
    }
    let unread = |listing: &files::Listing| listing.unread.clone();
    let (listing, _) = files::read(&[at("b"), at("c.yml")], &[]).unwrap();
    assert_eq!(unread(&listing), [] as [PathBuf; 0]);
    fs::remove_file(at("bad.yaml")).unwrap();
    let (listing, _) = files::read(&[folder.path().to_owned()], &[]).unwrap();
    assert_eq!(unread(&listing), [at(".z.yaml"), at("notes.txt")]);
    let told = report(
        &[file("a.yaml", "")],
        &listing.unread,
        true,
        LoadOptions::default(),
        &ServeSettings::new(Vec::new()),
    );
    let line = |name: &str| format!("{}: warning: {}\n", at(name).display(), files::UNREAD);
    let sum = "1 file, 0 limits: 0 errors, 2 warnings\n";
    assert_eq!(told, ([line(".z.yaml"), line("notes.txt"), sum.to_owned()].concat(), false));
    fs::create_dir(at("empty")).unwrap();
    assert!(read(&[at("empty")]).unwrap_err().starts_with("no file .yaml or .yml in "));
}
