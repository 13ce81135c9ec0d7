//! The settings as `tollgate check` tells them, by the cases of `check.txt`.
//!
//! A case is a block of lines: `@` options, `|` a line of the file, and then `!` the mistake, `!~`
//! a part of it, `=` a line of the description, `~` a part of one, `-` a part that no line has.
//! Runs of spaces count as one, and a `&` in an option is a space.

use crate::support::{Folder, check_text, tollgate};

#[test]
fn each_case_has_its_line() {
    let cases = include_str!("check.txt");
    let (folder, mut wrong, mut count) = (Folder::new(), Vec::new(), 0);
    for case in cases.split("\n\n").filter(|case| case.lines().any(|line| !line.starts_with('#'))) {
        count += 1;
        let lines = || case.lines().filter_map(|line| line.split_once(' ').or(Some((line, ""))));
        let of =
            |mark: &str| lines().filter(move |line| line.0 == mark).map(|line| line.1).collect::<Vec<_>>();
        let (options, text) = (of("@").join(" "), of("|"));
        let file = folder.text("tollgate.toml");
        let ended = if text.is_empty() {
            tollgate(&format!("check {options}"))
        } else {
            check_text(&folder, text.join("\n") + "\n", &format!("--demo {options}"))
        };
        let told = ended.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let told: Vec<String> = told.collect();
        let mistake = ended.error.trim_end().strip_prefix("error: ");
        let mistake = mistake.map(|error| error.replace(&format!("{file}:"), ""));
        let (whole, part) = (of("!"), of("!~"));
        let is_mistake = whole.iter().chain(&part).count() > 0;
        let right = match &mistake {
            Some(mistake) => {
                whole.iter().all(|whole| whole == mistake)
                    && part.iter().all(|part| mistake.contains(part))
                    && of("-").iter().all(|part| !mistake.contains(part))
                    && is_mistake
                    && (ended.code, mistake.lines().count(), told.len()) == (Some(2), 1, 0)
            }
            None => {
                of("=").iter().all(|line| told.iter().any(|own| own == line))
                    && of("~").iter().all(|part| told.iter().any(|own| own.contains(part)))
                    && of("-").iter().all(|part| told.iter().all(|own| !own.contains(part)))
                    && !is_mistake
                    && (ended.code, told.is_empty()) == (Some(0), false)
            }
        };
        if !right {
            wrong.push(format!("{case}\n    is {}", mistake.unwrap_or(told.join("\n       "))));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(count > 150, "{count} cases");
}

/// Cases that are no lines of text.
#[test]
fn a_file_that_may_have_been_cut_is_a_mistake() {
    let folder = Folder::new();
    let file = folder.text("tollgate.toml");
    let large = vec![b'\n'; (1 << 20) + 1];
    let cut = "the last line does not end with a newline: the file may have been cut";
    for (bytes, error) in [
        (&b"shadow = true\nipv4_prefix = 10"[..], format!("{file}:2:17: {cut}")),
        (b"", format!("{file}:1:1: the file is empty: no setting is named")),
        (b"via = \"\xc3\xa4\xff\"\n", format!("{file}:1:9: a byte that is not UTF-8")),
        (&large, format!("cannot read {file}: it is over the bound of 1048576 bytes")),
    ] {
        check_text(&folder, bytes, "").assert_mistake(&format!("{error}\n"), "");
    }
    // Without `--demo` and without an upstream there is nothing to serve.
    check_text(&folder, "shadow = true\n", "").assert_mistake("", "no upstream is named");
}
