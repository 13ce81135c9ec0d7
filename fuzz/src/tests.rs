//! Runs the committed corpora, built by any compiler.

use std::fs;
use std::path::Path;

use crate::{bucket, headers, keyed, quota_text, rate_limits, state, store, window};

fn each_of(target: &str, run: impl Fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let files = fs::read_dir(corpus).expect("there is a corpus of each target");
    let mut cases = 0;
    for file in files {
        let path = file.expect("an entry").path();
        println!("{}", path.display());
        run(&fs::read(path).expect("a file"));
        cases += 1;
    }
    assert!(cases > 50, "{cases} cases of {target}");
}

#[test]
fn one_bucket() {
    each_of("bucket", |bytes| bucket::Case::read(bytes).run());
}

#[test]
fn many_keys() {
    each_of("keyed", |bytes| keyed::Case::read(bytes).run());
}

#[test]
fn clients() {
    each_of("headers", |bytes| headers::Case::read(bytes).run());
}

#[test]
fn texts() {
    each_of("quota_text", |bytes| quota_text::Case::read(bytes).run());
}

#[test]
fn windows() {
    each_of("window", |bytes| window::Case::read(bytes).run());
}

#[test]
fn stores() {
    each_of("store", |bytes| {
        if let Some(case) = store::Case::read(bytes) {
            case.run();
        }
    });
}

#[test]
fn states() {
    each_of("state", state::restore);
}

#[test]
fn files_of_limits() {
    each_of("rules", rate_limits::read_rules);
}

#[test]
fn requests_of_limits() {
    each_of("requests", rate_limits::decide_on);
}
